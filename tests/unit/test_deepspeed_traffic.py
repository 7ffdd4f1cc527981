"""The laws of DeepSpeed's traffic, on models written by hand; real runs are in tests/integration/test_traffic.py."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.deepspeed import DEEPSPEED, DeepSpeed
from costmodels.deepspeed.knobs import choose_knobs, default_knobs
from costmodels.deepspeed.reduce import gradient_order
from costmodels.engine import Message
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Amount, Block, ModuleCall, Parameter, Segment, Workload
from runtime.record_traffic import degrees_of

N = 4
POINTS = {
    "0": Strategy(1, 1, 1, 1),
    "1": Strategy(1, 1, 1, N),
    "2": Strategy(1, 1, N, N),
    "3": Strategy(N, N, N, N),
    "kept": Strategy(N, 1, N, N),
    "hpz": Strategy(N, 2, N, N),
}
SIZES = (1001, 60, 512, 512, 33, 7)


def chain(sizes: tuple[int, ...] = SIZES, frozen: tuple[int, ...] = ()) -> Workload:
    """Modules of one parameter each beneath a root without any, one after the other."""
    zero = Amount()
    names = range(len(sizes))
    trained = [i not in frozen for i in names]
    root = ModuleCall("", (), 0, inputs_require_grad=False)
    calls = [ModuleCall(f"m{i}", (i,), 1, any(trained[:i]), int(any(trained[: i + 1]))) for i in names]
    forward = [Segment(i, "forward", (root, calls[i]) if i == 0 else (calls[i],), *[zero] * 2, 0) for i in names]
    backward = [
        Segment(i, "backward", (calls[i],), *[zero] * 2, 0, gradients=(i,) * trained[i]) for i in reversed(names)
    ]
    return Workload(
        tuple(Parameter(f"m{i}.weight", (size, 1), i not in frozen) for i, size in enumerate(sizes)),
        tuple(Block(f"m{i}", 0, (i,), True) for i in names),
        (*forward, *backward),
    )


def sent(
    point: str, workload: Workload | None = None, *, m: int = 1, precision: Any = "bf16", **knobs: Any
) -> tuple[Message, ...]:
    workload = workload or chain()
    shape = StepShape(N, 2, m, precision, "adamw", "cpu")
    assignment = (POINTS[point],)
    engine = DeepSpeed(replace(choose_knobs(workload, assignment, shape), **knobs))
    return engine.traffic(workload, assignment, shape)


def total_bytes(messages: tuple[Message, ...], operation: str, **where: Any) -> int:
    return sum(
        message.total_bytes
        for message in messages
        if message.operation == operation and all(getattr(message, k) == v for k, v in where.items())
    )


def padded(sizes: tuple[int, ...] = SIZES) -> int:
    return sum(-(-size // N) * N for size in sizes)


def test_stage_0_reduces_all_gradients_once_per_step() -> None:
    assert sent("0", m=5) == (Message("all_reduce", 1, N, 2 * sum(SIZES), 1, "boundary"),)


def test_stage_1_reduces_once_and_gathers_what_is_padded_to_twice_the_ranks() -> None:
    messages = sent("1", m=5)
    assert total_bytes(messages, "all_reduce", cause="boundary") == 2 * sum(SIZES)
    assert total_bytes(messages, "all_gather") == 2 * -(-sum(SIZES) // (2 * N)) * 2 * N


def test_stage_2_reduces_in_every_micro_batch() -> None:
    assert total_bytes(sent("2", m=5), "all_reduce", cause="backward") == 5 * 2 * sum(SIZES)


def test_reduce_to_owners_sends_the_same_bytes_in_as_many_messages_as_owners() -> None:
    messages = sent("2", use_multi_rank_bucket_allreduce=False, reduce_bucket_size=sum(SIZES))
    assert total_bytes(messages, "reduce") == 2 * sum(SIZES)
    assert sum(message.count for message in messages if message.operation == "reduce") == N


def test_kept_parameters_are_gathered_once_per_micro_batch() -> None:
    assert total_bytes(sent("kept", m=5), "all_gather", degree_to=N) == 5 * 2 * padded()


def test_without_prefetch_and_reuse_everything_is_gathered_twice() -> None:
    messages = sent("3", m=3, prefetch_bucket_size=0, param_persistence_threshold=0)
    assert total_bytes(messages, "all_gather") == 3 * 2 * 2 * padded()


def test_gradients_are_scattered_padded_in_every_micro_batch() -> None:
    assert total_bytes(sent("3", m=3), "reduce_scatter") == 3 * 2 * padded()


def test_hpz_gathers_over_the_world_once_per_step() -> None:
    messages = sent("hpz", m=3)
    assert total_bytes(messages, "all_gather", degree_to=N) == 2 * padded()
    assert total_bytes(messages, "all_gather", degree_to=2) > 2 * 2 * padded()


def test_persistent_parameters_are_gathered_after_the_update_only() -> None:
    messages = sent("3", param_persistence_threshold=100, prefetch_bucket_size=0)
    small = tuple(size for size in SIZES if size <= 100)
    large = tuple(size for size in SIZES if size > 100)
    assert total_bytes(messages, "all_gather", cause="update") == 2 * padded(small)
    assert total_bytes(messages, "all_gather") == 2 * padded(small) + 2 * 2 * padded(large)


def test_frozen_parameters_are_gathered_and_not_reduced() -> None:
    messages = sent("3", chain(frozen=(0, 3)), prefetch_bucket_size=0, param_persistence_threshold=0)
    trained = tuple(size for i, size in enumerate(SIZES) if i not in (0, 3))
    assert total_bytes(messages, "reduce_scatter") == 2 * padded(trained)
    # m0 comes before all that is trained: no gradient reaches it, and backward does not ask for it.
    assert total_bytes(messages, "all_gather") == 2 * (2 * padded() - padded(SIZES[:1]))


@pytest.mark.parametrize("point", POINTS)
def test_one_rank_sends_nothing(point: str) -> None:
    alone = StepShape(1, 2, 3, "bf16", "adamw", "cpu")
    assert DEEPSPEED.traffic(chain(), (Strategy(1, 1, 1, 1),), alone) == ()


@pytest.mark.parametrize("point", POINTS)
@settings(deadline=None)
@given(extra=st.integers(0, 40))
def test_each_further_micro_batch_sends_the_same(point: str, extra: int) -> None:
    def counts(m: int) -> Counter[tuple[Any, ...]]:
        return Counter({(s.operation, s.degree_to, s.message_bytes, s.cause): s.count for s in sent(point, m=m)})

    first, second, last = counts(3), counts(4), counts(3 + extra)
    for message in first | second | last:
        assert last[message] == first[message] + extra * (second[message] - first[message])


@pytest.mark.parametrize("point", POINTS)
@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=8), bucket=st.integers(1, 6000), m=st.integers(1, 4))
def test_bytes_of_gradients_do_not_depend_on_buckets(point: str, sizes: list[int], bucket: int, m: int) -> None:
    workload = chain(tuple(sizes))
    times = m if point not in ("0", "1") else 1
    full = sum(sizes) if point in ("0", "1", "2") else padded(tuple(sizes))
    messages = sent(point, workload, m=m, reduce_bucket_size=bucket)
    gradients = [message for message in messages if message.cause in ("backward", "boundary")]
    reduced = sum(g.total_bytes for g in gradients if g.operation in ("all_reduce", "reduce_scatter"))
    assert reduced == 2 * full * times


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=8), live=st.integers(0, 9000), ahead=st.integers(0, 9000)
)
def test_no_prefetch_gathers_a_parameter_more_than_twice_or_less_than_once(
    sizes: list[int], live: int, ahead: int
) -> None:
    knobs = {"max_live_parameters": live, "prefetch_bucket_size": ahead, "param_persistence_threshold": 0}
    gathered = total_bytes(sent("3", chain(tuple(sizes)), **knobs), "all_gather")
    assert 2 * padded(tuple(sizes)) <= gathered <= 4 * padded(tuple(sizes))


REFUSED = [
    (Strategy(2, 2, N, N), {}, "no stage"),
    (Strategy(1, 1, 2, N), {}, "no stage"),
    (Strategy(N, 3, N, N), {}, "divides the world size"),
    (Strategy(1, 1, 1, 1, offload="optimizer"), {}, "stages 1 to 3"),
    (Strategy(1, 1, N, N, offload="all"), {}, "stage 3 alone"),
    (Strategy(N, 2, N, N, offload="optimizer"), {}, "hpZ does not go with offload"),
    (Strategy(N, N, N, N, quantized_weights=True), {}, "GPUs only"),
    (Strategy(N, N, N, N), {"precision": "fp16"}, "fp16"),
]


@pytest.mark.parametrize(("strategy", "shape", "reason"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_deepspeed_cannot_run_is_refused_with_the_reason(
    strategy: Strategy, shape: dict[str, Any], reason: str
) -> None:
    asked = replace(StepShape(N, 2, 1, "bf16", "adamw", "cpu"), **shape)
    assert reason in (DEEPSPEED.refusal(chain(), (strategy,), asked) or "")


@pytest.mark.parametrize("strategy", POINTS.values(), ids=POINTS)
def test_what_deepspeed_has_is_not_refused(strategy: Strategy) -> None:
    assert DEEPSPEED.refusal(chain(), (strategy,), StepShape(N, 2, 1, "bf16", "adamw", "cpu")) is None


def test_different_degrees_for_different_blocks_are_refused() -> None:
    mixed = (POINTS["1"], POINTS["3"])
    assert "one set of degrees" in (DEEPSPEED.refusal(chain(), mixed, StepShape(N, 2, 1)) or "")


def test_only_stage_3_refuses_a_parameter_without_dimensions() -> None:
    plain = chain()
    scalar = replace(plain, parameters=(*plain.parameters[:-1], Parameter("gain", ())))
    for point, strategy in POINTS.items():
        refused = DEEPSPEED.refusal(scalar, (strategy,), StepShape(N, 2, 1, "bf16", "adamw", "cpu"))
        assert ("gain" in (refused or "")) == (point in ("3", "kept", "hpz"))


def test_a_linear_operator_of_its_own_gives_stage_3_the_weight_before_the_bias() -> None:
    plain = chain()
    backward = replace(plain.segments[-1], gradients=(0, 1, 2))
    traced = replace(plain, segments=(*plain.segments[: len(SIZES)], backward), linears=((1, 0),))
    assert [gradient_order(traced, default_knobs(stage)) for stage in (1, 2, 3)] == [(0, 1, 2), (0, 1, 2), (1, 0, 2)]


def test_what_has_no_gradient_is_reduced_at_stage_0_only() -> None:
    plain = chain()
    backward = tuple(replace(each, gradients=tuple(g for g in each.gradients if g != 2)) for each in plain.segments)
    unused = replace(plain, segments=backward)
    for point in ("0", "1", "2"):
        missing = total_bytes(sent(point), "all_reduce") - total_bytes(sent(point, unused), "all_reduce")
        assert missing == (0 if point == "0" else 2 * SIZES[2])


@settings(deadline=None)
@given(inner=st.integers(1, 6), size=st.integers(2, 6), block=st.integers(0, 3), data=st.data())
def test_a_group_between_two_degrees_is_named_by_them(inner: int, size: int, block: int, data: st.DataObject) -> None:
    first = block * inner * size + data.draw(st.integers(0, inner - 1))
    ranks = data.draw(st.permutations(range(first, first + inner * size, inner)))
    assert degrees_of(ranks) == (inner, inner * size)


@pytest.mark.parametrize("ranks", [(0, 1, 3), (1, 2), (0, 2, 3), (2, 4)])
def test_a_group_that_crosses_blocks_has_no_degrees(ranks: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="two degrees"):
        degrees_of(ranks)
