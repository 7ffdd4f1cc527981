"""A model that some published systems cannot train is planned with the others beside it."""

from pathlib import Path

import pytest

from planner import Job, plan

MODEL = f"{Path(__file__).with_name('scalar_model.py')}:scaled"


@pytest.mark.parametrize("engine", ["auto", "deepspeed", "fsdp"])
def test_a_parameter_without_dimensions_leaves_stage_3_out_and_nothing_else(engine: str) -> None:
    chosen = plan(MODEL, "dgx-a100-80gb", Job(global_batch_size=16, engine=engine))
    shown = [each.name for each in chosen.alternatives]
    assert {"DDP", "ZeRO-1", "ZeRO-2"} <= set(shown)
    assert not any(name.startswith("ZeRO-3") for name in shown)
