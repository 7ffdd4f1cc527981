"""A trace fills no weights, and leaves everybody else's initializers as they were."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

AFTER_A_TRACE = """
import sys
from planner.model_graph import ModelSource
from planner.trace.fake.fake_model import fake_model
from runtime.load_model import build

spec, kind = sys.argv[1], "file"
assert "transformers" not in sys.modules
fake_model(ModelSource(spec=spec, kind=kind), 2, "fp32", None)
assert "transformers.models.mixtral.modeling_mixtral" in sys.modules
model, _ = build(spec, kind, {}, 2, None)
spread = {name: float(p.detach().std()) for name, p in model.named_parameters() if p.dim() > 1}
assert spread
assert all(0.01 < value < 0.03 for value in spread.values()), spread
"""


def test_a_model_that_is_built_after_a_trace_has_its_weights() -> None:
    """In a process of its own: what counts is that the trace imports transformers first."""
    spec = f"{ROOT / 'tests' / 'zoo' / 'mixtures.py'}:mixtral"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", AFTER_A_TRACE, spec]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
