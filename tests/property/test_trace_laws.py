"""Laws of the trace over models of any size."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.model_graph import ModelSource
from planner.trace import trace
from planner.trace.measure.amounts import affine

EXAMPLE = f"{Path(__file__).parents[2] / 'examples' / 'gpt.py'}:gpt"


@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12), st.integers(1, 64))
def test_an_affine_amount_passes_through_both_points(small: int, large: int, size: int) -> None:
    amount = affine(small, large, size)
    assert (amount.at(size), amount.at(size + 1)) == (small, large)


@settings(max_examples=4, deadline=None)
@given(
    depth=st.integers(1, 7),
    heads=st.sampled_from([1, 2]),
    width=st.sampled_from([8, 24]),
    tied=st.booleans(),
    precision=st.sampled_from(["fp32", "bf16"]),
    device=st.sampled_from(["cpu", "cuda"]),
)
def test_a_traced_step_is_whole(depth: int, heads: int, width: int, tied: bool, precision: str, device: str) -> None:
    arguments = {
        "depth": str(depth),
        "heads": str(heads),
        "width": str(width),
        "vocab": "32",
        "tied": str(tied).lower(),
    }
    source = ModelSource(spec=EXAMPLE, kind="file", arguments=arguments)
    workload = trace(source, precision=precision, device=device, sequence_length=8).workload  # type: ignore[arg-type]
    phases = [segment.phase for segment in workload.segments]
    assert phases == sorted(phases, reverse=True)
    assert sorted(i for block in workload.blocks for i in block.parameters) == list(range(len(workload.parameters)))
    assert sum(block.recomputable for block in workload.blocks) == depth
    for size in (1, 2, 7):
        live = 0
        for segment in workload.segments:
            assert segment.timeline.peak_bytes(size) >= max(0, segment.net_bytes.at(size))
            live += segment.net_bytes.at(size)
            assert live >= 0
        assert live == 4
