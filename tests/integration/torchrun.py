"""Scripts launched by torchrun on this machine's CPUs, as a user launches them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def torchrun(script: Path, num_ranks: int, *arguments: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    """Returns the finished launch, whatever its exit code."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_ranks)]
    return subprocess.run(
        [*command, str(script), *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def check(launch: subprocess.CompletedProcess[str]) -> None:
    """Raises AssertionError with what the ranks said, which comes before torchrun's own summary of a failure."""
    assert launch.returncode == 0, launch.stderr[:6000] + "\n...\n" + launch.stderr[-2000:]
