"""The output of nccl-tests and rccl-tests gives the time of a collective by its size, on known groups."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hw_profiles.errors import ProfileError
from hw_profiles.read.collective_run import CollectiveRun
from hw_profiles.read.read_collectives import read_collectives

DUMPS = Path(__file__).parent / "dumps"


def output(name: str) -> str:
    return (DUMPS / name).read_bytes().decode()


def one(path: Path) -> CollectiveRun:
    runs, notes = read_collectives(path)
    assert len(runs) == 1
    assert notes == ()
    return runs[0]


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., CollectiveRun]:
    def from_text(text: str, name: str = "out.txt") -> CollectiveRun:
        path = tmp_path / name
        path.write_bytes(text.encode())
        return one(path)

    return from_text


@pytest.mark.parametrize(
    ("name", "operation", "degrees", "num_nodes", "per_node"),
    [
        ("a100_1node_all_gather_perf.txt", "all_gather", (1, 8), 1, 8),
        ("a100_1node_reduce_scatter_perf.txt", "reduce_scatter", (1, 8), 1, 8),
        ("a100_1node_all_reduce_perf.txt", "all_reduce", (1, 8), 1, 8),
        ("a100_1node_alltoall_perf.txt", "all_to_all", (1, 8), 1, 8),
        ("a100_1node_broadcast_perf.txt", "broadcast", (1, 8), 1, 8),
        ("a100_1node_reduce_perf.txt", "reduce", (1, 8), 1, 8),
        ("a100_2nodes_all_gather.log", "all_gather", (1, 16), 2, 8),
        ("a100_2nodes_split_mod8_all_gather_perf.txt", "all_gather", (8, 16), 2, 8),
        ("a100_one_per_node_all_reduce_perf.txt", "all_reduce", (1, 2), 2, 1),
        ("h100_16nodes_reduce_scatter.log", "reduce_scatter", (1, 128), 16, 8),
        ("mi300x_rccl_all_gather_perf.txt", "all_gather", (1, 8), 1, 8),
        ("v100_old_all_reduce_perf.txt", "all_reduce", (1, 8), 1, 8),
        ("v100_old_broadcast_perf.txt", "broadcast", (1, 8), 1, 8),
    ],
)
def test_a_run_is_of_its_operation_on_its_groups(
    name: str, operation: str, degrees: tuple[int, int], num_nodes: int, per_node: int
) -> None:
    run = one(DUMPS / name)
    assert run.operation == operation
    assert (run.degree_from, run.degree_to) == degrees
    assert (run.num_nodes, run.ranks_per_node) == (num_nodes, per_node)
    assert len(run.device_names) == 1


def test_a_point_is_the_full_message_and_its_out_of_place_seconds() -> None:
    run = one(DUMPS / "a100_1node_all_gather_perf.txt")
    assert [point.bytes for point in run.points] == [1 << power for power in range(10, 31, 2)]
    row = next(line for line in output("a100_1node_all_gather_perf.txt").split("\n") if line.startswith("  1073741824"))
    assert run.points[-1].seconds == pytest.approx(float(row.split()[5]) * 1e-6)
    assert run.points[-1].repetitions == 20


def test_repeated_cycles_become_medians() -> None:
    name = "h100_cycles_all_reduce_perf.txt"
    run = one(DUMPS / name)
    times = sorted(float(line.split()[5]) for line in output(name).split("\n") if line.startswith("  1073741824"))
    assert len(times) == 5
    assert run.points[-1].seconds == pytest.approx(times[2] * 1e-6)
    assert run.points[-1].repetitions == 5 * 20
    assert run.points[-1].spread is not None


@pytest.mark.parametrize(
    "name",
    [
        "a100_1node_reduce_scatter_perf.txt",
        "a100_1node_all_reduce_perf.txt",
        "a100_1node_broadcast_perf.txt",
        "a100_1node_reduce_perf.txt",
        "v100_old_all_reduce_perf.txt",
    ],
)
def test_numbers_tell_an_operation_that_nothing_names(name: str, read: Callable[..., CollectiveRun]) -> None:
    text = "\n".join(line for line in output(name).split("\n") if "_perf" not in line)
    run = read(text)
    assert run.operation == one(DUMPS / name).operation
    assert any("nothing names the operation" in note for note in run.notes)


def test_an_open_operation_is_asked_for(tmp_path: Path, read: Callable[..., CollectiveRun]) -> None:
    name = "a100_1node_all_gather_perf.txt"
    text = "\n".join(line for line in output(name).split("\n") if "_perf" not in line)
    with pytest.raises(ProfileError, match=r"fit all_gather and all_to_all.*--collectives all_gather=FILE"):
        read(text)
    assert read(text, "8gpus_allgather.txt").operation == "all_gather"
    assert read(text, "8gpus-all-to-all.log").operation == "all_to_all"
    assert any("by the file's name" in note for note in read(text, "gather_8.txt").notes)
    assert read(text, "gather_8.txt").operation == "all_gather"
    (runs, _) = read_collectives(tmp_path / "out.txt", "all_to_all")
    assert runs[0].operation == "all_to_all"


def test_how_an_output_was_copied_does_not_matter(read: Callable[..., CollectiveRun]) -> None:
    name = "a100_2nodes_all_gather.log"
    plain = one(DUMPS / name).points
    text = output(name)
    labelled = "\n".join(f"0: {line}" for line in text.split("\n"))
    variants = [
        text.replace("\n", "\r\n"),
        labelled,
        "\n".join(f"[1,0]<stdout>:{line}" for line in text.split("\n")),
        text.replace("float    none      -1", "float none -1"),
        text.replace("float    none      -1", "float    none-1"),
        text.replace("     float", "float"),
        text.replace("# Avg bus bandwidth", "\ufffd\n# Avg bus bandwidth"),
    ]
    for variant in variants:
        assert read(variant, "all_gather.txt").points == plain


def test_glued_numbers_are_taken_apart_by_their_arithmetic(read: Callable[..., CollectiveRun]) -> None:
    name = "a100_1node_all_reduce_perf.txt"
    text = output(name)
    row = next(line for line in text.split("\n") if line.startswith("   268435456"))
    size, count, _, _, _, time, algbw, *_ = row.split()
    for glued in (row.replace(f"{size}      {count}", size + count), row.replace(f"{time}  {algbw}", time + algbw)):
        assert glued != row
        assert read(text.replace(row, glued), name).points == one(DUMPS / name).points


def test_rows_that_other_output_breaks_are_joined(read: Callable[..., CollectiveRun]) -> None:
    name = "a100_1node_all_reduce_perf.txt"
    plain = one(DUMPS / name).points
    log = "dgx-01:1200:1300 [0] NCCL INFO 24 coll channels, 32 p2p channels\n"
    lines = output(name).split("\n")
    rows = [index for index, line in enumerate(lines) if line[:12].strip().isdigit()]
    before, after = lines[rows[3]].split("     -1  ")
    broken = [*lines]
    broken[rows[3]] = f"{before}     -1{log}{log}  {after}"
    assert read("\n".join(broken), name).points == plain
    # A label before each part that is printed, as some launchers put it.
    parts = re.compile(r"(.* -1)( +\S+ +\S+ +\S+ +0)( .*)")
    labelled = ["[0]" + parts.sub(r"\1[0]\2[0]\3", line) for line in lines]
    assert read("\n".join(labelled), name).points == plain


def test_damaged_rows_are_left_out_and_named(read: Callable[..., CollectiveRun]) -> None:
    name = "a100_1node_all_reduce_perf.txt"
    text = output(name)
    lines = text.split("\n")
    where = next(index for index, line in enumerate(lines) if line.startswith("    67108864"))
    lines[where] = lines[where].replace("67108864", "67108846")
    run = read("\n".join(lines), name)
    assert len(run.points) == len(one(DUMPS / name).points) - 1
    assert any(f"1 damaged rows left out (lines {where + 1})" in note for note in run.notes)


def test_thinned_rows_leave_fewer_points(read: Callable[..., CollectiveRun]) -> None:
    name = "a100_1node_all_gather_perf.txt"
    lines = output(name).split("\n")
    thin = [line for index, line in enumerate(lines) if line.startswith("#") or index % 3 == 0]
    assert set(read("\n".join(thin), name).points) < set(one(DUMPS / name).points)


def test_a_cut_off_output_is_used_and_said(read: Callable[..., CollectiveRun]) -> None:
    name = "a100_1node_all_gather_perf.txt"
    text = output(name)
    run = read(text[: text.index("  1073741824") + 60], name)
    assert len(run.points) == len(one(DUMPS / name).points) - 1
    assert any("ends before its summary" in note for note in run.notes)


def test_several_programs_in_one_log_are_several_runs(tmp_path: Path) -> None:
    path = tmp_path / "all.log"
    names = ["a100_1node_all_gather_perf.txt", "a100_1node_all_reduce_perf.txt", "a100_2nodes_all_gather.log"]
    path.write_text("".join(output(name) for name in names))
    runs, _ = read_collectives(path)
    assert [(run.operation, run.degree_to) for run in runs] == [
        ("all_gather", 8),
        ("all_reduce", 8),
        ("all_gather", 16),
    ]


def test_the_network_is_the_one_that_the_log_names(read: Callable[..., CollectiveRun]) -> None:
    run = one(DUMPS / "a100_2nodes_all_gather.log")
    assert run.transport == "NCCL 2.21.5 over IB (mlx5_0:1/IB, mlx5_1:1/IB, mlx5_2:1/IB, mlx5_3:1/IB)"
    assert not run.over_sockets
    text = output("a100_2nodes_all_gather.log")
    sockets = text.replace("NET/IB : Using [0]mlx5_0:1/IB", "NET/Socket : Using [0]eth0:10.0.0.1<0>")
    run = read(sockets.replace("Using network IB", "Using network Socket"), "all_gather.txt")
    assert run.over_sockets
    assert "over Socket (eth0:10.0.0.1" in run.transport


def test_containers_of_one_name_are_told_apart_by_their_devices(read: Callable[..., CollectiveRun]) -> None:
    run = read(output("a100_2nodes_all_gather.log").replace("dgx-02", "dgx-01"), "all_gather.txt")
    assert (run.num_nodes, run.ranks_per_node) == (2, 8)
    assert any("taken for 2 nodes" in note for note in run.notes)


def test_lost_lines_of_ranks_are_filled_where_their_neighbours_agree(read: Callable[..., CollectiveRun]) -> None:
    lines = output("a100_2nodes_all_gather.log").split("\n")
    fewer = [line for line in lines if "Rank  3" not in line and "Rank 12" not in line]
    run = read("\n".join(fewer), "all_gather.txt")
    assert (run.num_nodes, run.ranks_per_node) == (2, 8)
    assert any("lines of 2 ranks are missing" in note for note in run.notes)


def test_wrong_results_are_a_warning(read: Callable[..., CollectiveRun]) -> None:
    text = output("a100_1node_all_reduce_perf.txt")
    row = next(line for line in text.split("\n") if line.startswith("   268435456"))
    columns = row.split()
    bad = row.replace(f"{columns[7]}      0", f"{columns[7]}     17")
    assert bad != row
    assert any("results were wrong" in note for note in read(text.replace(row, bad), "all_reduce.txt").notes)


def test_an_operation_that_nothing_plans_with_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    other = output("a100_1node_broadcast_perf.txt").replace("broadcast_perf", "sendrecv_perf")
    path.write_text(other + output("a100_1node_all_gather_perf.txt"))
    runs, notes = read_collectives(path)
    assert [run.operation for run in runs] == ["all_gather"]
    assert any("sendrecv_perf is of no collective" in note for note in notes)
    path.write_text(other)
    with pytest.raises(ProfileError, match=r"sendrecv_perf is of no collective.*Give runs of all_gather_perf"):
        read_collectives(path)


def alone(text: str) -> str:
    """Every process for itself, as without MPI: each prints its own header, then its own rows."""
    lines = text.split("\n")
    rows = [line for line in lines if line[:12].strip().isdigit()]
    head = [line for line in lines if line.startswith("#") and "Rank" not in line and "Avg" not in line]
    rank = "#  Rank  0 Group  0 Pid {} on     dgx-01 device  0 [0x07] NVIDIA A100-SXM4-80GB"
    return "\n".join([*head, rank.format(1), *head, rank.format(2), *rows, *rows, "# Avg bus bandwidth    : 0 "])


def ranks_gone(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if " Rank " not in line)


TWO, ONE = output("a100_2nodes_all_gather.log"), output("a100_1node_all_gather_perf.txt")
REFUSED = {
    "each rank alone": (alone(ONE), ["Rank 0 stands 2 times", "1 rank each", "MPI=1", "srun --mpi=pmix"]),
    "each node alone": (
        TWO.replace("Rank 8 ", "Rank  0 ").replace("Rank  8", "Rank  0"),
        ["Rank 0 stands 2 times", "without MPI"],
    ),
    "a single rank": (
        "\n".join(line for line in ONE.split("\n") if "Rank" not in line or "Rank  0" in line).replace(
            ": 100.123", ": 0"
        ),
        ["a single rank ran alone", "-g 8", "MPI"],
    ),
    "no ranks": (ranks_gone(ONE), ["no lines `#  Rank  0", "whole output"]),
    "lost last ranks": (
        "\n".join(line for line in ONE.split("\n") if "Rank  7" not in line),
        ["rows do not agree with themselves", "x 7 ranks"],
    ),
    "lost first ranks of a node": (
        "\n".join(line for line in TWO.split("\n") if "Rank  8" not in line),
        ["lines of 1 ranks are missing (8)"],
    ),
    "all ranks but one lost": (
        "\n".join(line for line in ONE.split("\n") if "Rank" not in line or "Rank  0" in line),
        ["one line of a rank", "100.123", "lines are missing"],
    ),
    "unequal nodes": (
        TWO.replace("Rank  7 Group  0 Pid   1207 on     dgx-01", "Rank  7 Group  0 Pid   1207 on     dgx-02"),
        ["dgx-01: 7, dgx-02: 9", "nodes are alike"],
    ),
    "numbers of another operation": (
        output("a100_1node_all_reduce_perf.txt").replace("all_reduce_perf", "broadcast_perf"),
        ["not those of broadcast with 8 ranks", "1.75 x", "fit all_reduce"],
    ),
    "a header alone": (
        "\n".join(line for line in ONE.split("\n") if line.startswith("#")),
        ["header and no rows"],
    ),
    "a failed run": (
        "# nThread 1 nGpus 8\ndgx-01: Test NCCL failure common.cu:1005 'unhandled system error'\n",
        ["the run failed (line 2", "unhandled system error"],
    ),
    "another file": ("Hello\n", ["no output of nccl-tests", "all_gather_perf -b 1K"]),
    "rows that were all damaged": (
        ONE.replace("float", "half"),
        ["11 of 11 rows do not agree", "algbw = size / time"],
    ),
    "times of the processor": (ONE.replace("time   algbw", "cputime algbw"), ["-C 1", "run it without"]),
    "odd groups": (
        output("a100_2nodes_split_mod8_all_gather_perf.txt").replace("Rank  1 Group  1", "Rank  1 Group  2"),
        ["8 groups over 16 ranks", "NCCL_TESTS_SPLIT"],
    ),
}


@pytest.mark.parametrize("damage", sorted(REFUSED))
def test_an_output_that_cannot_be_used_is_refused_with_what_went_wrong_and_what_to_try(
    damage: str, tmp_path: Path
) -> None:
    text, parts = REFUSED[damage]
    path = tmp_path / "all_gather.txt"
    path.write_text(text)
    with pytest.raises(ProfileError) as refused:
        read_collectives(path)
    assert "all_gather.txt" in str(refused.value)
    for part in parts:
        assert part in str(refused.value)
