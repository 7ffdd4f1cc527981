"""A dump of a real machine's topology gives its levels, links and network cards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hw_profiles.errors import ProfileError
from hw_profiles.links.find_levels import find_levels
from hw_profiles.read.read_topology import read_topology
from hw_profiles.read.topology import Topology

DUMPS = Path(__file__).parent / "dumps"
GB = 1e9


def dump(name: str) -> str:
    return (DUMPS / f"{name}.txt").read_bytes().decode()


def into(topology: Topology, rank: str) -> float:
    """What all links into `rank` carry together."""
    return sum(link.bytes_per_s for link in topology.graph.links if link.target == rank)


def between(topology: Topology, source: str, target: str) -> float:
    return sum(link.bytes_per_s for link in topology.graph.links if (link.source, link.target) == (source, target))


@pytest.mark.parametrize(
    ("name", "num_gpus", "sizes"),
    [
        ("dgx1v", 8, (4, 2)),
        ("dgx2", 16, (16,)),
        ("dgx_a100", 8, (8,)),
        ("p4d", 8, (8,)),
        ("dgx_h100", 8, (8,)),
        ("hgx_a100_4", 4, (4,)),
        ("pcie_8", 8, (4, 2)),
        ("bridged_4", 4, (2, 2)),
        ("bridged_4_one_socket", 4, (2, 2)),
        ("two_boards_16", 16, (8, 2)),
        ("cascaded_switches_16", 16, (4, 2, 2)),
        ("gpus_6", 6, (3, 2)),
        ("gpus_6_4_and_2", 6, (6,)),
        ("gpus_5", 5, (5,)),
        ("mi250x", 8, (2, 4)),
        ("mi300x", 8, (8,)),
        ("amd_smi_mi300x", 8, (8,)),
        ("mi210_hives", 8, (4, 2)),
        ("mi50_pcie_4", 4, (4,)),
    ],
)
def test_a_machine_has_the_levels_that_it_was_built_with(name: str, num_gpus: int, sizes: tuple[int, ...]) -> None:
    topology = read_topology(DUMPS / f"{name}.txt")
    assert topology.num_gpus == num_gpus
    assert find_levels(topology.graph).sizes == sizes


def test_gpus_that_cannot_be_split_evenly_are_named() -> None:
    found = find_levels(read_topology(DUMPS / "gpus_6_4_and_2.txt").graph)
    assert any("no equal split" in note for note in found.notes)


@pytest.mark.parametrize(
    ("name", "device_name", "gigabytes_per_s"),
    [
        ("dgx1v", "", 6 * 25),
        ("dgx2", "", 6 * 25),
        ("dgx_a100", "", 12 * 25),
        ("dgx_h100", "", 18 * 25),
        ("dgx_h100", "NVIDIA B200", 18 * 50),
        ("hgx_a100_4", "", 3 * 4 * 25),
        ("mi300x", "", 7 * 64),
        ("mi300x", "AMD Instinct MI355X", 7 * 76.8),
        ("amd_smi_mi300x", "", 7 * 64),
        ("mi250x", "", 200 + 2 * 50),
        ("pcie_8", "", 31.5),
        ("pcie_8", "Tesla T4", 15.75),
        ("pcie_8", "NVIDIA L4", 31.5),
    ],
)
def test_what_enters_a_gpu_is_its_links_times_the_speed_of_one(
    name: str, device_name: str, gigabytes_per_s: float
) -> None:
    topology = read_topology(DUMPS / f"{name}.txt", device_name)
    assert into(topology, "0") == pytest.approx(gigabytes_per_s * GB)


@pytest.mark.parametrize("name", ["dgx2", "dgx_a100", "dgx_h100"])
def test_gpus_with_more_links_to_all_others_than_they_have_are_behind_a_switch(name: str) -> None:
    topology = read_topology(DUMPS / f"{name}.txt")
    assert topology.graph.switches == ("nvswitch-0",)
    assert all("nvswitch-0" in (link.source, link.target) for link in topology.graph.links)


def test_cabled_gpus_are_joined_two_by_two() -> None:
    topology = read_topology(DUMPS / "dgx1v.txt")
    assert topology.graph.switches == ()
    assert between(topology, "0", "3") == between(topology, "3", "0") == 50 * GB
    assert between(topology, "0", "1") == 25 * GB
    assert between(topology, "0", "5") == 0.0


def test_two_dies_of_a_package_share_four_links() -> None:
    topology = read_topology(DUMPS / "mi250x.txt")
    assert [between(topology, str(die), str(die + 1)) for die in (0, 2, 4, 6)] == [200 * GB] * 4
    assert between(topology, "0", "2") == 50 * GB
    assert between(topology, "0", "3") == 0.0, "two hops away"
    assert any("does not count links" in warning for warning in topology.warnings)


def test_dies_are_paired_by_number_where_their_numa_nodes_are_too_large() -> None:
    one_node = "\n".join(
        line.split("Numa")[0] + "Numa Node: 0" if "Numa Node:" in line else line for line in dump("mi250x").split("\n")
    )
    topology = read_topology(one_node)
    assert find_levels(topology.graph).sizes == (2, 4)
    assert any("neighbours in number" in warning for warning in topology.warnings)


def test_bandwidths_in_the_dump_come_before_assumed_ones() -> None:
    topology = read_topology(dump("amd_smi_mi300x").replace("64000-64000", "50000-48000"))
    assert into(topology, "0") == pytest.approx(7 * 48 * GB)
    assert topology.warnings == ()
    assert into(read_topology(dump("amd_smi_mi300x").replace("64000-64000", "0-0        ")), "0") == 7 * 64 * GB


def test_pcie_is_a_tree_of_switches_bridges_and_sockets() -> None:
    topology = read_topology(DUMPS / "cascaded_switches_16.txt")
    kinds = [switch.rsplit("-", 1)[0] for switch in topology.graph.switches]
    assert kinds == ["pcie-switch"] * 4 + ["pcie-bridge"] * 2 + ["sockets"]
    assert into(topology, "sockets-0") == 2 * 16 * GB


def test_network_cards_near_gpus_are_for_compute_and_others_for_storage() -> None:
    nics = read_topology(DUMPS / "dgx_a100.txt").nics
    assert [nic.name for nic in nics if nic.use == "other"] == ["mlx5_4", "mlx5_5"]
    assert [nic.gpus for nic in nics if nic.use == "compute"] == [(0, 1)] * 2 + [(2, 3)] * 2 + [(4, 5)] * 2 + [
        (6, 7)
    ] * 2
    nics = read_topology(DUMPS / "dgx_h100.txt").nics
    assert [nic.name for nic in nics if nic.use == "other"] == ["mlx5_1", "mlx5_2", "mlx5_7", "mlx5_8"]
    assert [nic.name for nic in read_topology(DUMPS / "dgx1v.txt").nics] == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]


def test_unevenly_attached_network_cards_are_named() -> None:
    warnings = read_topology(DUMPS / "gpus_6.txt").warnings
    assert any("GPU 3: NIC1, NIC2" in warning and "not evenly attached" in warning for warning in warnings)
    assert not any("evenly" in warning for warning in read_topology(DUMPS / "dgx_a100.txt").warnings)


def test_numa_nodes_are_those_of_the_dump() -> None:
    assert read_topology(DUMPS / "dgx_a100.txt").numa_nodes == (3, 3, 1, 1, 7, 7, 5, 5)
    assert read_topology(DUMPS / "dgx1v.txt").numa_nodes == (None,) * 8
    assert read_topology(DUMPS / "mi250x.txt").numa_nodes == (3, 3, 1, 1, 0, 0, 2, 2)


@pytest.mark.parametrize(
    ("name", "device_name", "assumed"),
    [
        ("dgx_h100", "", "B200"),
        ("dgx_h100", "NVIDIA H100 80GB HBM3", ""),
        ("bridged_4", "", "14 GB/s"),
        ("pcie_8", "", "PCIe 4.0"),
        ("mi300x", "", "MI355X"),
        ("dgx_a100", "", ""),
    ],
)
def test_what_a_dump_does_not_say_is_a_warning(name: str, device_name: str, assumed: str) -> None:
    warnings = [text for text in read_topology(DUMPS / f"{name}.txt", device_name).warnings if "assumed" in text]
    assert (assumed in " ".join(warnings)) if assumed else warnings == []


def test_every_speed_has_a_source() -> None:
    for path in sorted(DUMPS.glob("*.txt")):
        if "perf" not in path.name:
            topology = read_topology(path)
            assert path.name in topology.sources[0]
            assert len(topology.sources) > 1 or topology.num_gpus == 1 or "own table" in topology.sources[0]


def levels_and_links(topology: Topology) -> tuple[object, ...]:
    return topology.graph, topology.nics, topology.numa_nodes


@pytest.mark.parametrize("name", ["dgx1v", "dgx_a100", "dgx_h100", "mi250x", "amd_smi_mi300x"])
def test_how_a_dump_was_copied_does_not_matter(name: str) -> None:
    text = dump(name)
    plain = levels_and_links(read_topology(text))
    labelled = "\n".join(f"0: {line}" for line in text.split("\n"))
    tagged = "\n".join(f"[1,0]<stdout>:{line}" for line in text.split("\n"))
    both_nodes = labelled + "\n".join(f"1: {line}" for line in text.split("\n"))
    for variant in (
        text.replace("\n", "\r\n"),
        labelled,
        tagged,
        both_nodes,
        text.replace("\x1b", ""),
        f"$ cmd\n{text}",
    ):
        assert levels_and_links(read_topology(variant)) == plain


def test_any_encoding_is_read(tmp_path: Path) -> None:
    path = tmp_path / "topology.txt"
    path.write_bytes(dump("p4d").encode("utf-16"))
    assert read_topology(path).num_gpus == 8
    path.write_bytes(b"\xff\xfe\xfd junk \x80\n".replace(b"\xff\xfe", b"\xff") + dump("p4d").encode())
    assert read_topology(path).num_gpus == 8


def test_glued_columns_are_taken_apart() -> None:
    text = (
        dump("p4d")
        .replace("\t X \tNV12", "\t XNV12")
        .replace("NV12\tNV12", "NV12NV12")
        .replace("GPU0\tGPU1", "GPU0GPU1")
    )
    assert levels_and_links(read_topology(text)) == levels_and_links(read_topology(dump("p4d")))


def test_a_header_that_is_shorter_than_the_rows_is_filled_by_their_names() -> None:
    text = dump("dgx1v").replace("\tmlx5_2\tmlx5_3\tCPU Affinity", "")
    topology = read_topology(text)
    assert levels_and_links(topology)[0] == levels_and_links(read_topology(dump("dgx1v")))[0]
    assert any("header names 10 of 12 columns" in warning for warning in topology.warnings)
    lost = "\n".join(text.split("\n")[1:])
    assert read_topology(lost).graph == topology.graph


def test_log_lines_between_the_rows_are_no_rows() -> None:
    lines = dump("p4d").split("\n")
    lines.insert(3, "node7:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB")
    lines.insert(5, "slurmstepd: error: task 3 SYS was late")
    assert levels_and_links(read_topology("\n".join(lines))) == levels_and_links(read_topology(dump("p4d")))


def test_the_table_of_peers_beside_the_matrix_is_left_alone() -> None:
    peers = "\n\n \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tGNS\tX\t\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n"
    for text in (dump("pcie_8") + peers, peers + dump("pcie_8")):
        assert find_levels(read_topology(text).graph).sizes == (4, 2)


def test_an_old_driver_says_soc_for_sys() -> None:
    assert find_levels(read_topology(dump("pcie_8").replace("SYS", "SOC")).graph).sizes == (4, 2)


def changed(name: str, old: str, new: str, count: int = 1) -> str:
    text = dump(name)
    assert old in text
    return text.replace(old, new, count)


def without_line(name: str, start: str) -> str:
    lines = dump(name).split("\n")
    index = next(index for index, line in enumerate(lines) if line.startswith(start))
    return "\n".join(lines[:index] + lines[index + 1 :])


DAMAGED = {
    "an empty file": ("", ["is no topology dump", "nvidia-smi topo -m"]),
    "another file": ("all: build\n\tcc main.c\n", ["is no topology dump", "rocm-smi --showtopo"]),
    "the overview": ("| NVIDIA-SMI 535.104  Driver Version: 535.104  CUDA Version: 12.2 |\n", ["overview", "topo -m"]),
    "a JSON": ('{"system": {"(Topology) Weight": "15"}}\n', ["is JSON", "without --json"]),
    "a failed command": ("bash: nvidia-smi: command not found\n", ["failed command"]),
    "the table of peers": ("\tGPU0\tGPU1\nGPU0\tX\tOK\nGPU1\tOK\tX\n", ["topo -p2p", "names no links"]),
    "a lost row": (without_line("dgx_a100", "GPU3\t"), ["GPU3", "no such row"]),
    "a short row": (changed("dgx_a100", "GPU2\tNV12\tNV12\t", "GPU2\tNV12\t"), ["line 4", "GPU2", "17 cells for 18"]),
    "a shifted row": (
        changed("p4d", "GPU1\tNV12\t X \tNV12", "GPU1\tNV12\tNV12\t X "),
        ["line 3", "GPU1", "X in its own column"],
    ),
    "an asymmetric matrix": (changed("dgx1v", "GPU0\t X \tNV1", "GPU0\t X \tNV2"), ["GPU0 to GPU1 is NV2", "NV1"]),
    "too many links": (dump("bridged_4").replace("NV4", "NV40"), ["GPU0 to GPU1 is NV40", "1 to 18"]),
    "two nodes that differ": (dump("dgx1v") + dump("p4d"), ["row GPU0", "line 2", "two different dumps"]),
    "a header with too few names": (
        "\tGPU0\tGPU1\nGPU0\t X \tPHB\tPIX\nGPU1\tPHB\t X \tPIX\nNIC0\tPIX\tPIX\t X \nNIC1\tPIX\tPIX\tPIX\n",
        ["line 5", "NIC1"],
    ),
    "no table of link types": (dump("mi300x").split("Link Type")[0], ["no table of link types", "rocm-smi --showtopo"]),
    "a lost row of rocm-smi": (without_line("mi300x", "GPU5"), ["the table of weight has no row GPU5"]),
    "a cut row of rocm-smi": (
        changed("mi300x", "15           15           15           \nGPU1", "15\nGPU1"),
        ["row GPU0 of weight has 6 values for 8"],
    ),
    "an unknown link": (dump("mi300x").replace("XGMI", "WIFI"), ["GPU0 to GPU1 is 'WIFI'", "neither XGMI nor PCIE"]),
    "an asymmetric table": (
        changed("mi250x", "GPU0   0            15", "GPU0   0            30"),
        ["weight", "is 30", "is 15"],
    ),
    "a weight that is no number": (dump("mi50_pcie_4").replace("40  ", "4O  "), ["'4O'", "weight"]),
}  # fmt: skip


@pytest.mark.parametrize("damage", sorted(DAMAGED))
def test_a_damaged_dump_is_refused_with_the_place_and_what_to_try(damage: str) -> None:
    text, parts = DAMAGED[damage]
    with pytest.raises(ProfileError) as refused:
        read_topology(text)
    for part in parts:
        assert part in str(refused.value)
    assert json.dumps(str(refused.value))


def test_a_file_that_is_not_there_or_empty_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="cannot read"):
        read_topology(tmp_path / "missing.txt")
    (tmp_path / "empty.txt").write_text(" \n")
    with pytest.raises(ProfileError, match="is empty"):
        read_topology(tmp_path / "empty.txt")
    with pytest.raises(ProfileError, match="cannot read"):
        read_topology(tmp_path)
