"""Ranks, nodes and devices as people's clusters really have them.

Of the rest of the kind, other tests have:

| what | where |
|---|---|
| what a transport is called, and sockets beside InfiniBand | test_measure_transport: test_nccl_says_its_network_and_devices, test_sockets_beside_infiniband_devices_are_warned_of; test_profile |
| hosts with unequal slots, where groups end at nodes | test_hostfile: test_other_hostfiles_are_refused_with_their_line |
| ranks that were launched unequally, for `profile` | test_measure_hosts: test_nodes_with_unequal_numbers_of_ranks_are_refused_by_name |
| nodes of 5 and of 6 GPUs in dumps | test_read_topology and test_read_machine, by the dumps gpus_5 and gpus_6 |
| mixed devices by name, with their ranks | test_hw_fit: test_mixed_devices_are_named_with_their_ranks |
"""  # noqa: E501

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from field_models import GIB, graph_of
from test_hw_fit import ALL_KINDS, measured
from transformer_graph import SMALL, transformer_graph

from hw_profiles.errors import ProfileError
from hw_profiles.fit.fit import fit
from hw_profiles.load import load
from hw_profiles.measure.vendor_peak import vendor_peak
from planner import Job, Plan, estimate, plan
from planner.emit.emit import emit
from planner.errors import InputError
from planner.model_graph import ModelGraph
from planner.run.hostfile import Host, read_hostfile
from planner.run.run import run
from runtime.settings import read_settings

HOSTS = "node1 slots=4\nnode2 slots=1\n"


def on_cpu() -> ModelGraph:
    graph = transformer_graph(replace(SMALL, num_layers=2), precision="fp32")
    return graph.model_copy(update={"device": "cpu"})


def degrees_of(answer: Plan) -> set[int]:
    return {
        degree
        for other in answer.alternatives
        for each in other.strategies
        for degree in (each.param_degree, each.secondary_degree, each.grad_degree, each.optim_degree)
    }


@pytest.fixture
def hostfile(tmp_path: Path) -> Path:
    path = tmp_path / "hostfile"
    path.write_text(HOSTS)
    return path


def test_hosts_may_be_unequal_where_no_group_ends_at_a_node(hostfile: Path) -> None:
    assert read_hostfile(hostfile, 8, equal=False) == (Host("node1", 4), Host("node2", 1))


def test_a_plan_of_five_ranks_goes_to_hosts_of_four_and_one(
    hostfile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = plan(graph_of("BERT-large"), load("p4d-a100-40gb", 5, 1), Job(global_batch_size=5))
    emit(answer, tmp_path / "plan")
    # Without pdsh nothing is launched, and that is said only once the hosts have been accepted.
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"pdsh.*node1, node2"):
        run(tmp_path / "plan", hostfile=hostfile)


def test_groups_within_nodes_need_as_many_ranks_on_each_host(hostfile: Path, tmp_path: Path) -> None:
    answer = estimate(
        graph_of("BERT-large"), load("p4d-a100-40gb", 2, 2), Job(global_batch_size=4), (4, 4, 4), secondary_degree=2
    )
    emit(answer, tmp_path / "plan")
    with pytest.raises(InputError, match="unequal slots: node1 has 4, node2 has 1"):
        run(tmp_path / "plan", hostfile=hostfile)


@pytest.mark.parametrize(
    ("degrees", "secondary_degree", "needed"), [((1, 4, 4), 1, None), ((4, 4, 4), 4, None), ((4, 4, 4), 2, 2)]
)
def test_a_launched_rank_asks_for_equal_nodes_where_groups_end_at_them(
    degrees: tuple[int, int, int], secondary_degree: int, needed: int | None, tmp_path: Path
) -> None:
    job = Job(global_batch_size=4)
    answer = estimate(graph_of("BERT-large"), load("p4d-a100-40gb", 2, 2), job, degrees, secondary_degree)
    emit(answer, tmp_path / "plan")
    assert read_settings(tmp_path / "plan", None).needed_ranks_per_node == needed


@pytest.mark.parametrize("ranks", [5, 6])
def test_nodes_of_five_and_six_have_degrees_of_their_own(ranks: int) -> None:
    profile = fit(measured((), ranks=ranks))
    found = degrees_of(plan(on_cpu(), profile, Job(global_batch_size=2 * ranks, precision="fp32")))
    assert {1, ranks, 2 * ranks} <= found
    assert all(2 * ranks % degree == 0 for degree in found)


def test_degrees_are_of_the_ranks_that_are_launched_and_not_of_the_devices_there() -> None:
    answer = plan(graph_of("BERT-large"), load("p4d-a100-40gb", 1, 4), Job(global_batch_size=8))
    assert answer.hardware.world_size == 4
    assert max(degrees_of(answer)) == 4
    with pytest.raises(ProfileError, match="cannot run 5 ranks per node"):
        load("p4d-a100-40gb", 1, 5)


def test_the_smallest_of_mixed_cards_is_the_budget_and_all_are_named() -> None:
    devices = ("V100-16GB",) * 2 + ("V100-32GB",) * 4 + ("P40",) * 2
    by_device = {"V100-16GB": 16 * GIB, "V100-32GB": 32 * GIB, "P40": 24 * GIB}
    measurement = measured(
        ALL_KINDS, devices=devices, memory_bytes=min(by_device.values()), memory_bytes_by_device=by_device
    )
    profile = fit(measurement)
    (warning,) = profile.warnings
    for named in ("V100-16GB (16 GiB) on ranks 0-1", "V100-32GB (32 GiB) on ranks 2-5", "P40 (24 GiB) on ranks 6-7"):
        assert named in warning
    answer = plan(on_cpu(), profile, Job(global_batch_size=8, precision="fp32"))
    assert answer.predicted.memory.budget_bytes == 16 * GIB - measurement.reserved_bytes


def test_the_vendors_peak_of_mixed_cards_is_the_slowest_ones() -> None:
    slow, fast = (load(name).known_device for name in ("dgx2-v100-32gb", "dgx-a100-80gb"))
    # V100s have no bf16: what not every rank has, none has.
    assert vendor_peak([fast.name] * 4 + [slow.name] * 4) == slow.peak_flop_per_s
    assert vendor_peak([fast.name] * 8) == fast.peak_flop_per_s
    assert vendor_peak([fast.name, "a card that no profile has"]) is None


def test_shards_and_replicas_make_up_the_world() -> None:
    sixteen = load("p4d-a100-40gb", 2)
    answer = estimate(graph_of("1.5B"), sixteen, Job(global_batch_size=16), (8, 8, 8))
    # Two replicas of eight shards: what each rank has reduced inside its node is summed up between the two.
    groups = {(row.operation, row.degree_from, row.degree_to) for row in answer.predicted.traffic}
    assert groups == {("all_gather", 1, 8), ("reduce_scatter", 1, 8), ("all_reduce", 8, 16)}
    with pytest.raises(InputError, match="16"):
        estimate(graph_of("1.5B"), load("p4d-a100-40gb", 1), Job(global_batch_size=16), (16, 16, 16))
    with pytest.raises(InputError, match="8 does not divide"):
        estimate(graph_of("1.5B"), load("p4d-a100-40gb", 3, 4), Job(global_batch_size=12), (8, 8, 8))
