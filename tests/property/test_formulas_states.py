"""Laws of degrees, model states and the ideal schedule's traffic and memory."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil, prod

from formula_cases import HIERARCHIES, Case, cases
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.degrees import legal_degrees, nests, strategies, why_illegal
from costmodels.engine import Assignment, Message
from costmodels.fsdp import FSDP
from costmodels.states import OPTIMIZER_BYTES, model_state_bytes, state_widths
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Amount, Block, Parameter, Segment, Workload

EXAMPLES = settings(max_examples=150, deadline=None)
SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple)


@EXAMPLES
@given(SIZES)
def test_legal_degrees_divide_the_world_and_include_every_whole_level(sizes: tuple[int, ...]) -> None:
    degrees = legal_degrees(sizes)
    assert all(prod(sizes) % degree == 0 for degree in degrees)
    assert {prod(sizes[:end]) for end in range(len(sizes) + 1)} <= set(degrees)


@EXAMPLES
@given(SIZES.filter(lambda sizes: prod(sizes) <= 32))
def test_every_enumerated_strategy_is_legal_and_none_is_missing(sizes: tuple[int, ...]) -> None:
    found = strategies(sizes)
    assert all(why_illegal(strategy, sizes) is None for strategy in found)
    legal = legal_degrees(sizes)
    triples = {(p, g, o) for p in legal for g in legal for o in legal if nests(p, g, o, prod(sizes))}
    assert {strategy.degrees for strategy in found} == triples


@EXAMPLES
@given(st.integers(1, 16), st.integers(1, 10**20), st.integers(1, 10**5))
def test_bytes_are_rounded_up_exactly(width: int, num_params: int, degree: int) -> None:
    assert OPTIMIZER_BYTES(width, num_params, degree) == width * ceil(Fraction(num_params, degree))


@EXAMPLES
@given(cases())
def test_more_sharding_never_costs_model_states(case: Case) -> None:
    """First o grows to the world, then g, then p; but for padding: of rows to p, of each shard's elements to o / p."""
    world = case.shape.world_size
    widths = state_widths(case.shape.precision, case.shape.optimizer)
    rows = sum(prod(each.shape[1:]) + 1 for each in case.workload.parameters if each.trainable)
    padding_bytes = rows * (widths.optimizer + world * widths.gradient)
    assignment = case.assignment
    for name in ("optim_degree", "grad_degree", "param_degree"):
        kept = tuple(each if name != "param_degree" else _secondary_kept(each, world) for each in assignment)
        more = tuple(replace(each, **{name: world}) for each in kept)
        assert _state_bytes(case, more) <= _state_bytes(case, assignment) + padding_bytes
        assignment = more


def _state_bytes(case: Case, assignment: Assignment) -> int:
    at_rest = FSDP.memory(case.workload, assignment, case.shape).at_rest
    return at_rest.parameters + at_rest.gradients + at_rest.optimizer_states


def _secondary_kept(strategy: Strategy, world_size: int) -> Strategy:
    """Gathered anew stays gathered anew when p grows to the world."""
    anew = strategy.secondary_degree == strategy.param_degree
    return replace(strategy, secondary_degree=world_size) if anew else strategy


@EXAMPLES
@given(cases())
def test_shards_of_all_ranks_together_hold_every_state(case: Case) -> None:
    states = model_state_bytes(case.workload, case.assignment, case.shape)
    whole = model_state_bytes(
        case.workload, (Strategy(1, 1, 1, 1),) * case.workload.num_classes, replace(case.shape, world_size=1)
    )
    assert states.parameters * case.shape.world_size >= whole.parameters
    assert states.gradients * case.shape.world_size >= whole.gradients
    assert states.optimizer_states * case.shape.world_size >= whole.optimizer_states


@EXAMPLES
@given(cases())
def test_every_strategy_of_the_space_is_accepted_and_answered(case: Case) -> None:
    assert FSDP.refusal(case.workload, case.assignment, case.shape) is None
    memory = FSDP.memory(case.workload, case.assignment, case.shape)
    assert len(memory.during_segment) == len(case.workload.segments)
    assert memory.at_rest.total_bytes >= 0
    for message in FSDP.traffic(case.workload, case.assignment, case.shape):
        assert message.degree_to % message.degree_from == 0
        assert message.degree_from < message.degree_to
        assert message.message_bytes > 0


@EXAMPLES
@given(cases())
def test_keeping_parameters_trades_memory_for_traffic(case: Case) -> None:
    anew = tuple(replace(each, secondary_degree=each.param_degree) for each in case.assignment)
    kept = tuple(replace(each, secondary_degree=1) for each in case.assignment)
    for less, more in zip(
        FSDP.memory(case.workload, anew, case.shape).during_segment,
        FSDP.memory(case.workload, kept, case.shape).during_segment,
        strict=True,
    ):
        assert more.gathered_parameters >= less.gathered_parameters
    sent = [
        sum(each.total_bytes for each in FSDP.traffic(case.workload, assignment, case.shape))
        for assignment in (kept, anew)
    ]
    assert sent[0] <= sent[1]


def received(message: Message) -> Fraction:
    """Bytes that a bandwidth-optimal collective brings into one rank."""
    size = message.degree_to // message.degree_from
    times = 2 if message.operation == "all_reduce" else 1
    return times * message.total_bytes * Fraction(size - 1, size)


def block_of(num_params: int) -> Workload:
    segments = tuple(Segment(0, phase, (), Amount(), Amount(), 0) for phase in ("forward", "backward"))
    return Workload((Parameter("weight", (num_params,)),), (Block("", 0, (0,)),), segments)


@EXAMPLES
@given(st.sampled_from([sizes for sizes in HIERARCHIES if prod(sizes) > 1]), st.integers(1, 4), st.data())
def test_traffic_of_any_degrees_is_the_closed_form(sizes: tuple[int, ...], num: int, data: st.DataObject) -> None:
    """Bytes into one rank, in units of the model in bf16, for parameters that every degree divides."""
    strategy = data.draw(st.sampled_from(strategies(sizes)))
    world = prod(sizes)
    p, s, g, o = strategy.param_degree, strategy.secondary_degree, strategy.grad_degree, strategy.optim_degree
    messages = FSDP.traffic(block_of(world**2), (strategy,), StepShape(world, 1, num))
    gathers = num * (2 - Fraction(1, p) - Fraction(1, s))
    reductions = (
        num * (1 - Fraction(1, g)) + Fraction(1, g) - Fraction(1, o) + 2 * (Fraction(1, o) - Fraction(1, world))
    )
    spread = Fraction(1, p) - Fraction(1, o)
    assert sum(map(received, messages)) == 2 * world**2 * (gathers + reductions + spread)
