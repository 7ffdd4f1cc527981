"""Model states against arithmetic by hand."""

from __future__ import annotations

import pytest
from hand_workload import hand_workload

from costmodels.lower import fill_in, lower
from costmodels.states import (
    OPTIMIZER_BYTES,
    PARAMETER_BYTES,
    StateBytes,
    StateWidths,
    model_state_bytes,
    state_bytes,
    state_widths,
)
from costmodels.strategy import StepShape, Strategy
from costmodels.symbols import NUM_PARAMS, OPTIM_DEGREE, OPTIM_WIDTH, PARAM_DEGREE, PARAM_WIDTH


@pytest.mark.parametrize(
    ("precision", "optimizer", "widths", "k"),
    [
        ("bf16", "adamw", (2, 2), 12),
        ("fp16", "adam", (2, 2), 12),
        ("fp32", "adamw", (4, 4), 8),
        ("bf16", "sgd", (2, 2), 4),
        ("bf16", "sgd_momentum", (2, 2), 8),
        ("fp32", "sgd", (4, 4), 0),
        ("fp32", "sgd_momentum", (4, 4), 4),
    ],
)
def test_widths_are_those_of_the_precision_and_the_optimizer(precision, optimizer, widths, k) -> None:
    found = state_widths(precision, optimizer)
    assert (found.parameter, found.gradient) == widths
    assert found.optimizer == k


def test_an_unknown_optimizer_is_an_error() -> None:
    with pytest.raises(ValueError, match="'lion' are not known"):
        state_widths("bf16", "lion")


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (Strategy(1, 1, 1, 1), StateBytes(200, 0, 200, 1200)),
        (Strategy(1, 1, 1, 8), StateBytes(200, 0, 200, 156)),
        (Strategy(1, 1, 8, 8), StateBytes(200, 0, 26, 156)),
        (Strategy(8, 8, 8, 8), StateBytes(26, 0, 26, 156)),
        (Strategy(8, 1, 8, 8), StateBytes(26, 0, 26, 156)),
        (Strategy(8, 2, 8, 8), StateBytes(26, 100, 26, 156)),
        (Strategy(2, 2, 4, 8), StateBytes(100, 0, 50, 156)),
        (Strategy(8, 8, 1, 8), StateBytes(26, 0, 200, 156)),
    ],
)
def test_each_state_is_held_in_shards_of_its_own_degree(strategy: Strategy, expected: StateBytes) -> None:
    """100 parameters in bf16 with Adam: a shard of eight has 13 elements."""
    assert state_bytes(100, 100, strategy, StateWidths(2, 2, 8, 4)) == expected


def test_frozen_parameters_have_no_gradients_and_no_optimizer_states() -> None:
    workload = hand_workload((1000, 10), (0, 1), frozen=(0,))
    states = model_state_bytes(workload, (Strategy(1, 1, 1, 1),) * 2, StepShape(1, 1, 1))
    assert states == StateBytes(2020, 0, 20, 120)


def test_each_block_is_sharded_as_its_class_is_assigned() -> None:
    workload = hand_workload((100, 60, 60), (0, 1, 1))
    states = model_state_bytes(workload, (Strategy(1, 1, 1, 1), Strategy(4, 4, 4, 4)), StepShape(4, 1, 1))
    assert states == StateBytes(2 * (100 + 15 + 15), 0, 2 * (100 + 15 + 15), 12 * (100 + 15 + 15))


def test_whole_bytes_are_exact_beyond_the_precision_of_floats() -> None:
    num_params = 10**17 + 1
    assert PARAMETER_BYTES(2, num_params, 8) == 2 * (num_params // 8 + 1)


def test_a_formula_prints_with_its_numbers_filled_in() -> None:
    filled = fill_in(PARAMETER_BYTES, {PARAM_WIDTH: 2, NUM_PARAMS: 1001, PARAM_DEGREE: 8})
    assert str(filled) == "parameters = c_p × ⌈P / p⌉ = 2 × ⌈1,001 / 8⌉ = 252 bytes"
    states = fill_in(OPTIMIZER_BYTES, {OPTIM_WIDTH: 12, NUM_PARAMS: 1000, OPTIM_DEGREE: 8})
    assert (states.substituted, states.value) == ("12 × ⌈1,000 / 8⌉", 1500)


def test_lowering_refuses_an_expression_with_letters_it_is_not_given() -> None:
    with pytest.raises(ValueError, match="needs p as arguments"):
        lower(PARAMETER_BYTES.expression, (PARAM_WIDTH, NUM_PARAMS))


def test_lowering_rounds_up_once() -> None:
    expression = NUM_PARAMS / PARAM_DEGREE + NUM_PARAMS / PARAM_DEGREE
    assert lower(expression, (NUM_PARAMS, PARAM_DEGREE))(5, 4) == 3
    assert lower(expression, (NUM_PARAMS, PARAM_DEGREE), "none")(5, 4) == 2.5
