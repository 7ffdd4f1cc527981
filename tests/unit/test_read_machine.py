"""Files that people have of a machine become its profile, each number with the file it is from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hw_profiles.devices import Device, UnknownDevice
from hw_profiles.errors import ProfileError
from hw_profiles.load import load, read_profile
from hw_profiles.read.machine_device import same_device
from hw_profiles.read.read_machine import read_machine
from hw_profiles.resize import resize
from hw_profiles.save import save
from hw_profiles.schema import HardwareProfile

DUMPS = Path(__file__).parent / "dumps"
ONE_NODE = tuple(sorted(DUMPS.glob("a100_1node_*_perf.txt")))
TWO_NODES = DUMPS / "a100_2nodes_all_gather.log"
SPLIT = DUMPS / "a100_2nodes_split_mod8_all_gather_perf.txt"
ONE_PER_NODE = DUMPS / "a100_one_per_node_all_reduce_perf.txt"
DGX_A100 = DUMPS / "dgx_a100.txt"


def sizes(profile: HardwareProfile) -> list[tuple[str, int]]:
    return [(level.name, level.size) for level in profile.levels]


def kinds(profile: HardwareProfile) -> list[tuple[str, int, int]]:
    return [(curve.operation, curve.degree_from, curve.degree_to) for curve in profile.curves]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dgx1v", [("package", 4), ("node", 2)]),
        ("dgx2", [("node", 16)]),
        ("dgx_h100", [("node", 8)]),
        ("pcie_8", [("socket", 4), ("node", 2)]),
        ("bridged_4", [("socket", 2), ("node", 2)]),
        ("bridged_4_one_socket", [("package", 2), ("node", 2)]),
        ("two_boards_16", [("socket", 8), ("node", 2)]),
        ("mi250x", [("package", 2), ("node", 4)]),
        ("mi300x", [("node", 8)]),
        ("gpus_5", [("node", 5)]),
        ("gpu_1", [("node", 1)]),
    ],
)
def test_a_topology_alone_gives_levels_and_links_of_one_node(
    name: str, expected: list[tuple[str, int]], tmp_path: Path
) -> None:
    profile = read_machine(DUMPS / f"{name}.txt", (), None)
    assert sizes(profile) == expected
    assert profile.num_nodes == 1
    assert isinstance(profile.device, UnknownDevice)
    assert bool(profile.links) == (profile.world_size > 1)
    assert f"{name}.txt" in profile.sources["levels.0.size"]
    assert read_profile(save(profile, tmp_path / "profile.json")) == profile


def test_a_profile_of_an_unknown_device_is_refused_where_its_figures_are_needed() -> None:
    profile = read_machine(DGX_A100, (), None)
    for part in ("known_device", "known_host"):
        with pytest.raises(ProfileError, match="--like NAME"):
            getattr(profile, part)


def test_like_gives_device_host_and_network() -> None:
    profile = read_machine(DGX_A100, (), None, like="dgx-a100-80gb")
    model = load("dgx-a100-80gb")
    assert profile.device == model.device
    assert profile.host == model.host
    assert sizes(profile) == [("node", 8), ("cluster", 1)]
    assert profile.levels[0].unit_bytes_per_s == 300e9, "the dump's own wires come first"
    assert profile.levels[0].efficiency == model.levels[0].efficiency, "what collectives reach of the wires"
    assert profile.levels[1].unit_bytes_per_s == model.levels[1].unit_bytes_per_s
    assert "dgx-a100-80gb (--like)" in profile.sources["levels.1.unit_bytes_per_s"]
    assert "dgx-a100-80gb (--like)" in profile.sources["device.memory_bytes"]
    assert read_machine(DGX_A100, (), None, like="dgx-a100-80gb", num_nodes=4).num_nodes == 4


def test_racks_of_the_profile_that_it_is_like_are_kept(tmp_path: Path) -> None:
    rows = ["\t" + "\t".join(f"GPU{gpu}" for gpu in range(4)) + "\tCPU Affinity\tNUMA Affinity"]
    rows += ["\t".join([f"GPU{i}", *(" X " if i == j else "NV18" for j in range(4)), "0-71", "0"]) for i in range(4)]
    path = tmp_path / "tray.txt"
    path.write_text("\n".join(rows))
    profile = read_machine(path, (), None, like="gb200-nvl72")
    assert sizes(profile) == [("node", 4), ("rack", 18), ("cluster", 1)]
    assert profile.levels[0].unit_bytes_per_s == 18 * 50e9
    assert "gb200-nvl72 (--like)" in profile.sources["levels.1.size"]
    assert sizes(read_machine(path, (), None, like="gb200-nvl72", num_nodes=36)) == [
        ("node", 4),
        ("rack", 18),
        ("cluster", 2),
    ]
    with pytest.raises(ProfileError, match="20 nodes fill no whole units"):
        read_machine(path, (), None, like="gb200-nvl72", num_nodes=20)


def test_a_profile_of_cpus_is_like_no_gpu() -> None:
    with pytest.raises(ProfileError, match="local-cpu is of CPUs"):
        read_machine(DGX_A100, (), None, like="local-cpu")


def test_the_device_that_benchmarks_name_is_taken_from_the_shipped_profile_that_has_it() -> None:
    profile = read_machine(DGX_A100, ONE_NODE, None)
    assert isinstance(profile.device, Device)
    assert profile.known_device.memory_bytes == load("dgx-a100-80gb").known_device.memory_bytes
    assert profile.host is None, "nothing read tells of the host"
    assert "NVIDIA A100-SXM4-80GB" in profile.sources["device.memory_bytes"]
    assert "a100_1node" in profile.sources["device.memory_bytes"]


def test_a_device_of_no_shipped_profile_stays_unknown() -> None:
    profile = read_machine(None, (DUMPS / "v100_old_all_reduce_perf.txt",), None)
    assert profile.device == UnknownDevice(name="Tesla V100-SXM2-32GB", kind="cuda")
    assert any("no shipped profile has the device" in warning for warning in profile.warnings)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB", True),
        ("NVIDIA A100-SXM-80GB", "NVIDIA A100-SXM4-80GB", True),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-40GB", False),
        ("Tesla V100-SXM2-32GB", "Tesla V100-SXM3-32GB", False),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", False),
        ("AMD Instinct MI300X VF", "AMD Instinct MI300X", True),
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090", True),
    ],
)
def test_only_spelling_makes_no_difference_between_devices(one: str, other: str, is_same: bool) -> None:
    assert same_device(one, other) == same_device(other, one) == is_same


def test_runs_of_all_ranks_become_curves_and_tell_the_levels() -> None:
    profile = read_machine(DGX_A100, (*ONE_NODE, TWO_NODES, SPLIT), None)
    assert sizes(profile) == [("node", 8), ("cluster", 2)]
    assert kinds(profile) == [
        ("all_gather", 1, 8),
        ("all_gather", 1, 16),
        ("all_gather", 8, 16),
        ("all_reduce", 1, 8),
        ("all_to_all", 1, 8),
        ("broadcast", 1, 8),
        ("reduce", 1, 8),
        ("reduce_scatter", 1, 8),
    ]
    assert "a100_2nodes_all_gather.log: 2 x 8 ranks" in profile.sources["curves.1"]
    assert all("fitted to" in profile.sources[f"levels.{index}"] for index in (0, 1))
    # 230 GB/s bus bandwidth was written into the dump's rows.
    node = profile.levels[0]
    assert node.unit_bytes_per_s * node.efficiency["all_gather"] == pytest.approx(230e9, rel=0.1)
    assert profile.transport.startswith("NCCL 2.21.5 over IB")
    assert profile.algorithms["all_reduce"] == ("ring", "tree")
    assert profile.name == "nvidia-a100-sxm4-80gb-2x8"


def test_benchmarks_alone_make_a_node_and_a_cluster() -> None:
    profile = read_machine(None, (DUMPS / "h100_16nodes_reduce_scatter.log",), None)
    assert sizes(profile) == [("node", 8), ("cluster", 16)]
    assert profile.links == ()
    assert sizes(read_machine(None, ONE_NODE, None)) == [("node", 8)]


def test_levels_can_be_given() -> None:
    profile = read_machine(DGX_A100, ONE_NODE, None, levels=(2, 4))
    assert sizes(profile) == [("package", 2), ("node", 4)]
    assert profile.sources["levels.0.size"].startswith("--levels")
    profile = read_machine(None, (TWO_NODES,), None, levels=(4, 2, 2))
    assert sizes(profile) == [("package", 4), ("node", 2), ("cluster", 2)]
    with pytest.raises(ProfileError, match=r"--levels 3,2 has 6 ranks, but a node has 8 \(dgx_a100.txt\)"):
        read_machine(DGX_A100, (), None, levels=(3, 2))


def test_a_run_with_one_rank_per_node_is_no_curve() -> None:
    profile = read_machine(DGX_A100, (*ONE_NODE, ONE_PER_NODE), None)
    assert all(degree_to == 8 for _, _, degree_to in kinds(profile))
    assert any("one rank of 8 on each node" in warning and "MOD 8" in warning for warning in profile.warnings)


def test_more_nodes_without_any_sign_of_their_network_are_refused() -> None:
    with pytest.raises(ProfileError, match=r"network between the 2 nodes.*--collectives.*--like"):
        read_machine(DGX_A100, (), None, num_nodes=2)
    with pytest.raises(ProfileError, match="network between the 2 nodes"):
        read_machine(DGX_A100, ONE_NODE, None, num_nodes=2)


def test_runs_that_do_not_fit_the_number_of_nodes_are_named_where_they_are_missed() -> None:
    two_nodes = DUMPS / "a100_2nodes_all_gather.log"
    with pytest.raises(
        ProfileError, match=r"network between the 3 nodes(?s:.*)16 ranks do not fill(?s:.*)plan --nodes"
    ):
        read_machine(DGX_A100, (two_nodes,), None, num_nodes=3)
    assert resize(read_machine(DGX_A100, (two_nodes,), None), num_nodes=3).num_nodes == 3


def test_a_group_inside_the_innermost_level_needs_no_other_groups(tmp_path: Path) -> None:
    four = tmp_path / "four_all_gather_perf.txt"
    lines = (DUMPS / "a100_2nodes_split_mod8_all_gather_perf.txt").read_text().split("\n")
    kept = [line for line in lines if "Rank" not in line or "Rank  0" in line or "Rank  1 Group  1" in line]
    four.write_text("\n".join(kept).replace("Group  1", "Group  0"))
    profile = read_machine(DGX_A100, (*ONE_NODE, four), None)
    assert ("all_gather", 1, 2) in kinds(profile)
    assert any("2 of 8 ranks ran" in warning for warning in profile.warnings)


def test_files_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ProfileError, match=r"bridged_4.txt is of a node with 4 ranks, but .*perf.txt ran 8 on each"):
        read_machine(DUMPS / "bridged_4.txt", ONE_NODE, None)
    with pytest.raises(ProfileError, match=r"ran on NVIDIA A100-SXM4-80GB, but .* on NVIDIA H100 80GB HBM3"):
        read_machine(None, (ONE_NODE[0], DUMPS / "h100_cycles_all_reduce_perf.txt"), None)
    with pytest.raises(ProfileError, match="no profile 'dgx-a1000'"):
        read_machine(DGX_A100, (), None, like="dgx-a1000")


def test_devices_of_another_vendor_than_the_dump_are_refused() -> None:
    with pytest.raises(ProfileError, match=r"dump is of AMD GPUs, but --like dgx-h100 has NVIDIA H100"):
        read_machine(DUMPS / "mi300x.txt", (), None, like="dgx-h100")
    with pytest.raises(ProfileError, match=r"dump is of NVIDIA GPUs, but mi300x_rccl.* has AMD Instinct MI300X"):
        read_machine(DGX_A100, (DUMPS / "mi300x_rccl_all_gather_perf.txt",), None)


def test_one_rank_per_node_without_a_topology_is_said_to_be_a_guess() -> None:
    profile = read_machine(None, (ONE_PER_NODE,), None)
    assert sizes(profile) == [("node", 1), ("cluster", 2)]
    assert any("one rank on each node: taken to be all" in warning for warning in profile.warnings)


def test_network_cards_are_named_with_their_use() -> None:
    source = read_machine(DGX_A100, (), None).sources["transport"]
    assert "near GPUs: mlx5_0, mlx5_1" in source
    assert source.endswith("for storage or management: mlx5_4, mlx5_5")


def test_another_device_than_the_named_one_is_a_warning() -> None:
    profile = read_machine(None, ONE_NODE, None, like="dgx-h100")
    assert any(
        "--like dgx-h100 has NVIDIA H100 80GB HBM3, but the benchmarks ran on" in text for text in profile.warnings
    )


def test_mixed_devices_count_with_the_least_of_them(tmp_path: Path) -> None:
    text = (DUMPS / "a100_1node_all_gather_perf.txt").read_text().split("\n")
    mixed = [line.replace("80GB", "40GB") if "Rank  5" in line else line for line in text]
    (tmp_path / "mixed.txt").write_text("\n".join(mixed))
    profile = read_machine(None, (tmp_path / "mixed.txt",), None)
    assert profile.known_device.memory_bytes == load("p4d-a100-40gb").known_device.memory_bytes
    assert any("ranks have different devices" in warning for warning in profile.warnings)


def test_an_operation_can_be_given_with_its_file(tmp_path: Path) -> None:
    text = (DUMPS / "a100_1node_alltoall_perf.txt").read_text()
    path = tmp_path / "out.txt"
    path.write_text("\n".join(line for line in text.split("\n") if "_perf" not in line))
    with pytest.raises(ProfileError, match="does not say which operation"):
        read_machine(None, (path,), None)
    assert kinds(read_machine(None, (Path(f"all_to_all={path}"),), None)) == [("all_to_all", 1, 8)]


def test_links_come_before_those_of_the_dump(tmp_path: Path) -> None:
    path = tmp_path / "links.json"
    pairs = [(0, 1), (2, 3), (0, 2), (1, 3)]
    links = [{"between": [str(a), str(b)], "bytes_per_s": 100e9 if abs(a - b) == 1 else 10e9} for a, b in pairs]
    path.write_text(json.dumps({"ranks": 4, "links": links}))
    profile = read_machine(None, (), path)
    assert sizes(profile) == [("package", 2), ("node", 2)]
    assert "links.json" in profile.sources["links"]
    assert sizes(read_machine(DUMPS / "hgx_a100_4.txt", (), path)) == [("package", 2), ("node", 2)]
    with pytest.raises(ProfileError, match=r"8 GPUs and .* 4 ranks"):
        read_machine(DGX_A100, (), path)


def test_ranks_are_numbered_so_that_units_are_neighbours(tmp_path: Path) -> None:
    names = {0: 0, 1: 4, 2: 1, 3: 5, 4: 2, 5: 6, 6: 3, 7: 7}
    rows = ["\t" + "\t".join(f"GPU{gpu}" for gpu in range(8)) + "\tCPU Affinity\tNUMA Affinity"]
    for i in range(8):
        cells = [" X " if i == j else "NODE" if names[i] // 4 == names[j] // 4 else "SYS" for j in range(8)]
        rows.append("\t".join([f"GPU{i}", *cells, "0-7", str(names[i] // 4)]))
    path = tmp_path / "interleaved.txt"
    path.write_text("\n".join(rows))
    profile = read_machine(path, (), None)
    assert sizes(profile) == [("socket", 4), ("node", 2)]
    assert any("CUDA_VISIBLE_DEVICES=0,2,4,6,1,3,5,7" in warning for warning in profile.warnings)
    socket_of = {link.source: link.target for link in profile.links if link.source.isdigit()}
    assert len({socket_of[str(rank)] for rank in range(4)}) == 1


def test_the_same_files_give_the_same_profile() -> None:
    first, second = (read_machine(DGX_A100, (*ONE_NODE, TWO_NODES), None) for _ in range(2))
    assert first == second
