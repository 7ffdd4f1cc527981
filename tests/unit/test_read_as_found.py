"""Dumps as people paste them: out of logs and comments, of broken and of half-shown machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from hw_profiles.errors import ProfileError
from hw_profiles.links.find_levels import find_levels
from hw_profiles.read.read_machine import read_machine
from hw_profiles.read.read_topology import read_topology

DUMPS = Path(__file__).parent / "dumps"
GB = 1e9
PREFIXES = (
    "2025-05-31T10:11:{second}.123456789Z ",
    "worker-0-1  | ",
    "(head, rank=0, pid=3808) ",
    "(head, rank=0, pid=3808) [1,0]<stdout>:",
    "node017: ",
    "# ",
    "> ",
    "jobs/topology.sh:",
)


def text_of(name: str) -> str:
    return (DUMPS / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", ["dgx_h100", "pcie_8", "dgx1v", "mi250x", "amd_smi_mi300x"])
@pytest.mark.parametrize("prefix", PREFIXES)
def test_what_a_log_puts_before_each_line_does_not_matter(name: str, prefix: str) -> None:
    plain = read_topology(text_of(name))
    lines = text_of(name).split("\n")
    found = read_topology("\n".join(prefix.format(second=10 + number % 50) + line for number, line in enumerate(lines)))
    assert (found.graph, found.nics, found.numa_nodes) == (plain.graph, plain.nics, plain.numa_nodes)


def test_lines_of_other_programs_between_prefixed_rows_are_left_alone() -> None:
    lines = [f"node017: {line}" for line in text_of("dgx_h100").split("\n")]
    lines.insert(4, "slurmstepd: error: late")
    assert read_topology("\n".join(lines)).graph == read_topology(text_of("dgx_h100")).graph


def test_a_gpu_with_broken_links_stays_behind_the_switch_and_is_named() -> None:
    rows = []
    for line in text_of("p4d").split("\n"):
        cells = line.split("\t")
        if line.startswith("GPU3\t"):
            cells = [cell.replace("NV12", "NV10") for cell in cells]
        elif line.startswith("GPU"):
            cells[4] = cells[4].replace("NV12", "NV10")
        rows.append("\t".join(cells))
    topology = read_topology("\n".join(rows))
    assert topology.graph.switches == ("nvswitch-0",)
    into = {link.target: link.bytes_per_s for link in topology.graph.links if link.source == "nvswitch-0"}
    assert [into[str(gpu)] / GB for gpu in range(8)] == [300, 300, 300, 250, 300, 300, 300, 300]
    assert any("GPU 3 has 10 NVLinks" in warning for warning in topology.warnings)


def some_gpus(num_gpus: int, cell: str) -> str:
    rows = ["\t" + "\t".join(f"GPU{gpu}" for gpu in range(num_gpus)) + "\tCPU Affinity"]
    for gpu in range(num_gpus):
        cells = [" X " if gpu == other else cell for other in range(num_gpus)]
        rows.append("\t".join([f"GPU{gpu}", *cells, "0-63"]))
    return "\n".join(rows)


@pytest.mark.parametrize(
    ("device_name", "num_gpus", "cell", "gigabytes_per_s"),
    [
        ("Tesla V100-SXM3-32GB", 4, "NV6", 6 * 25),
        ("NVIDIA H100 80GB HBM3", 4, "NV6", 18 * 25),
        ("NVIDIA A100-SXM4-40GB", 4, "NV4", 12 * 25),
        ("NVIDIA A100-SXM4-40GB", 2, "NV12", 12 * 25),
    ],
)
def test_no_gpu_has_more_cables_than_its_kind(
    device_name: str, num_gpus: int, cell: str, gigabytes_per_s: float
) -> None:
    found = find_levels(read_topology(some_gpus(num_gpus, cell), device_name).graph)
    assert found.bytes_per_s == pytest.approx((gigabytes_per_s * GB,))


def test_nvlinks_of_a_device_that_has_none_are_doubted() -> None:
    doubts = [text for text in read_topology(some_gpus(2, "NV4"), "NVIDIA L40S").warnings if "another device" in text]
    assert doubts
    assert not any("another device" in text for text in read_topology(some_gpus(2, "NV4"), "NVIDIA A40").warnings)


def test_a_dump_that_leaves_out_nvlinks_says_so() -> None:
    plain = text_of("pcie_8")
    without = "\n".join(line for line in plain.split("\n") if not line.lstrip().startswith("NV#"))
    assert without != plain
    assert any("leaves out NVLinks" in text for text in read_topology(without).warnings)
    assert any("leaves out NVLinks" in text for text in read_topology(f"$ nvidia-smi topo -mp\n{plain}").warnings)
    assert not any("leaves out NVLinks" in text for text in read_topology(plain).warnings)


@pytest.mark.parametrize("cell", ["N/A", "ERR!", "DIS"])
def test_a_cell_that_is_no_link_is_named_with_its_line(cell: str) -> None:
    with pytest.raises(ProfileError, match=rf"line 3: row GPU1 begins with '{cell}'"):
        read_topology(some_gpus(2, cell))


@pytest.mark.parametrize(("name", "gigabytes_per_s"), [("bridged_4", (4 * 14.0625, 16)), ("mi210_hives", (3 * 46, 16))])
def test_pcie_adds_nothing_to_faster_wires(name: str, gigabytes_per_s: tuple[float, ...]) -> None:
    levels = read_machine(DUMPS / f"{name}.txt", (), None).levels
    assert [level.unit_bytes_per_s for level in levels] == pytest.approx(
        [value * GB for value in gigabytes_per_s], rel=1e-3
    )


def benchmark(sizes_bytes: tuple[int, ...], name: str = "all_gather_perf") -> str:
    rows = [f"# Collective test starting: {name}", "# nThread 1 nGpus 8 iters: 20"]
    rows += [
        f"#  Rank {rank:2d} Group  0 Pid 77 on n0 device {rank:2d} [0x{rank:02x}] NVIDIA H200" for rank in range(8)
    ]
    for size_bytes in sizes_bytes:
        seconds = 20e-6 + size_bytes / 400e9
        algbw = size_bytes / seconds / 1e9
        measures = f"{seconds * 1e6:.2f} {algbw:.2f} {algbw * 7 / 8:.2f} 0"
        rows.append(f"{size_bytes:12d} {size_bytes // 32:12d} float none -1 {measures} {measures}")
    return "\n".join([*rows, "# Avg bus bandwidth    : 300"])


def test_a_run_that_ended_before_large_messages_is_no_curve(tmp_path: Path) -> None:
    path = tmp_path / "cut_off.txt"
    path.write_text(benchmark((256, 512)))
    with pytest.raises(ProfileError, match="largest message has 512 bytes"):
        read_machine(None, (path,), None)


def test_a_run_of_large_messages_only_keeps_small_ones_fast(tmp_path: Path) -> None:
    path = tmp_path / "large.txt"
    path.write_text(benchmark((1 << 30, 1 << 33)))
    profile = read_machine(None, (path,), None)
    assert profile.levels[0].alpha_s < 10e-6
    assert any("start-ups are not measured" in warning for warning in profile.warnings)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"version": 1,\n "results": [{"size": 8}]}\n', "JSON"),
        ('{"numCycle":0, "name":"AllReduce", "size":8, "type":"float"}\n', "JSON"),
        ("numCycle,name,size,type,redop,inPlace,time,algbw,busbw,#wrong\n0,AllReduce,8,float,sum,0,9,0,0,0\n", "CSV"),
    ],
)
def test_another_form_of_a_benchmarks_output_is_named(text: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "results.txt"
    path.write_text(text)
    with pytest.raises(ProfileError, match=f"is {kind}"):
        read_machine(None, (path,), None)


def test_rows_that_are_cut_off_with_the_header_are_missed() -> None:
    rows = text_of("dgx_h100").split("\n")[1:]
    for num_rows in (1, 3, 7, 9):
        with pytest.raises(ProfileError, match=f"{num_rows} rows are there for"):
            read_topology("\n".join(rows[:num_rows]))
    short_header = "\tGPU0\tGPU1"
    with pytest.raises(ProfileError, match="rows are missing"):
        read_topology("\n".join([short_header, *rows[:3]]))


def test_the_line_of_the_last_rank_is_missed(tmp_path: Path) -> None:
    path = tmp_path / "all_gather.txt"
    whole = benchmark((1 << 20, 1 << 30))
    path.write_text("\n".join(line for line in whole.split("\n") if "Rank  7" not in line))
    with pytest.raises(ProfileError, match=r"lines of 7 ranks are there, .*make 8"):
        read_machine(None, (path,), None)


def test_a_pair_that_is_bridged_across_sockets_is_no_socket(tmp_path: Path) -> None:
    # GPU i and i + 3 are bridged; 0 to 2 are on one socket, 3 to 5 on the other.
    rows = ["\tGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tCPU Affinity"]
    for gpu in range(6):
        cells = [
            " X " if gpu == other else "NV4" if abs(gpu - other) == 3 else "NODE" if gpu // 3 == other // 3 else "SYS"
            for other in range(6)
        ]
        rows.append("\t".join([f"GPU{gpu}", *cells, "0-31"]))
    path = tmp_path / "bridged.txt"
    path.write_text("\n".join(rows))
    levels = read_machine(path, (), None).levels
    assert [(level.name, level.size) for level in levels] == [("package", 2), ("node", 3)]
