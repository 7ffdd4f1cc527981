"""What int8 and int4 may change of a message, and what they may not."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.fsdp.quantize import dequantize, dequantize_sum, quantize
from runtime.fsdp.quantized_layout import BLOCK, Bits, Code, residual_code, run_bytes

LARGEST: dict[Bits, int] = {4: 7, 8: 127}
BITS = st.sampled_from((4, 8))
RUNS = st.lists(st.one_of(st.integers(0, 3), st.integers(0, 3 * BLOCK + 5)), max_size=4).map(tuple)
DTYPES = st.sampled_from((torch.float32, torch.bfloat16, torch.float16))


def numbers(code: Code, rows: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Returns rows whose elements are of very different sizes, some of them zero."""
    generator = torch.Generator().manual_seed(seed)
    found = torch.randn(*rows, code.num_elements, generator=generator)
    found *= 10.0 ** torch.randint(-3, 3, found.shape, generator=generator)
    found[torch.rand(found.shape, generator=generator) < 0.2] = 0
    return found.to(dtype)


def encoded(source: torch.Tensor, code: Code, residual: torch.Tensor | None = None) -> torch.Tensor:
    message = torch.full((*source.shape[:-1], code.num_bytes), 0xAA, dtype=torch.uint8)
    quantize(source, message, code, residual)
    return message


def decoded(message: torch.Tensor, code: Code, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    target = torch.full((*message.shape[:-1], code.num_elements), torch.nan, dtype=dtype)
    dequantize(message, target, code)
    return target


def half_steps(source: torch.Tensor, code: Code) -> torch.Tensor:
    """Returns, for each element, half of its block's scale."""
    blocks = [block for run in source.float().split(code.runs, dim=-1) for block in run.split(BLOCK, dim=-1)]
    steps = [
        (block.abs().amax(-1, keepdim=True) / LARGEST[code.bits]).expand_as(block) for block in blocks if block.numel()
    ]
    return torch.cat(steps, -1) / 2 if steps else torch.empty_like(source)


@given(BITS, RUNS, st.integers(0, 2**32), DTYPES)
@settings(max_examples=60, deadline=None)
def test_no_element_is_wrong_by_more_than_half_a_step_of_its_block(bits, runs, seed, dtype) -> None:
    code = Code(bits, runs)
    source = numbers(code, (2, 3), seed, dtype)
    error = (decoded(encoded(source, code), code) - source.float()).abs()
    assert bool((error <= half_steps(source, code) * (1 + 1e-5)).all())


@given(BITS, RUNS, st.integers(0, 2**32), DTYPES)
@settings(max_examples=30, deadline=None)
def test_what_is_read_in_16_bits_is_what_is_read_in_32_rounded_once(bits, runs, seed, dtype) -> None:
    code = Code(bits, runs)
    message = encoded(numbers(code, (2,), seed), code)
    assert torch.equal(decoded(message, code, dtype), decoded(message, code).to(dtype))


@given(BITS, RUNS, st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_zeros_and_the_largest_of_a_block_are_exact(bits, runs, seed) -> None:
    code = Code(bits, runs)
    source = numbers(code, (2,), seed)
    read = decoded(encoded(source, code), code)
    assert bool((read[source == 0] == 0).all())
    largest = source.abs() == half_steps(source, code) * 2 * LARGEST[bits]
    assert torch.allclose(read[largest], source[largest], rtol=1e-6, atol=0)


@given(BITS, RUNS, st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_strides_and_the_elements_at_a_time_change_no_bit(bits, runs, seed) -> None:
    code = Code(bits, runs)
    source = numbers(code, (3, 2), seed)
    plain = encoded(source, code)
    turned = encoded(source.transpose(0, 1), code)
    assert torch.equal(turned.transpose(0, 1), plain)
    by_rows = torch.stack([encoded(row, code) for row in source])
    assert torch.equal(by_rows, plain)
    target = torch.full((2, 3, code.num_elements), torch.nan)
    dequantize(plain, target.transpose(0, 1), code)
    assert torch.equal(target.transpose(0, 1), decoded(plain, code))


@given(BITS, RUNS, st.integers(0, 2**32), st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_the_sum_of_messages_is_the_sum_of_what_each_says(bits, runs, seed, num_messages) -> None:
    code = Code(bits, runs)
    messages = encoded(numbers(code, (num_messages, 2), seed), code)
    total = torch.full((2, code.num_elements), torch.nan)
    dequantize_sum(messages, total, code)
    assert torch.allclose(total, decoded(messages, code).sum(0), rtol=1e-5, atol=1e-5)


@given(BITS, st.sampled_from((torch.inf, -torch.inf, torch.nan)), st.integers(0, 2 * BLOCK + 9))
@settings(max_examples=40, deadline=None)
def test_a_number_that_is_not_finite_spoils_its_block_and_no_other(bits, spoiled, place) -> None:
    code = Code(bits, (2 * BLOCK + 10,))
    source = numbers(code, (1,), 0)
    source[0, place] = spoiled
    read = decoded(encoded(source, code), code)
    block = torch.zeros_like(read, dtype=torch.bool)
    block[0, place // BLOCK * BLOCK : (place // BLOCK + 1) * BLOCK] = True
    assert not bool(read[block].isfinite().any())
    assert bool(read[~block].isfinite().all())


@given(BITS, RUNS, st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_what_is_left_out_is_made_up_for_by_the_next(bits, runs, seed) -> None:
    """Over many messages the error stays that of one."""
    code = Code(bits, runs)
    source = numbers(code, (2,), seed)
    residual = torch.zeros(2, residual_code(code).num_bytes, dtype=torch.uint8)
    total, times = torch.zeros_like(source), 12
    for _ in range(times):
        total += decoded(encoded(source, code, residual), code)
    # What was left out enlarges the numbers that are quantized, by a half step of theirs at most.
    allowed = half_steps(source, code) * (1 + 1 / LARGEST[bits]) + 1e-4 * source.abs()
    allowed *= 1 + times / 127  # what is left out is itself kept in 8 bits
    assert bool(((total - times * source).abs() <= allowed + 1e-12).all())


def test_nothing_is_made_up_for_after_an_overflow() -> None:
    code = Code(4, (BLOCK,))
    residual = torch.zeros(1, residual_code(code).num_bytes, dtype=torch.uint8)
    source = numbers(code, (1,), 0)
    source[0, 0] = torch.inf
    encoded(source, code, residual)
    assert torch.equal(decoded(encoded(torch.zeros(1, BLOCK), code, residual), code), torch.zeros(1, BLOCK))


@pytest.mark.parametrize(("bits", "ratio"), [(8, 0.51), (4, 0.27)])
def test_scales_leave_the_messages_a_half_and_a_quarter_of_bf16(bits: Bits, ratio: float) -> None:
    for num_elements in (BLOCK, 10 * BLOCK, 1_000_003):
        assert run_bytes(num_elements, bits) <= ratio * 2 * num_elements
    assert run_bytes(0, bits) == 0
    assert run_bytes(BLOCK, bits) == 4 + BLOCK * bits // 8
