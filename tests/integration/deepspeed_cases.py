"""Cases that run one after the other in the same ranks of real DeepSpeed, started and ended as a plan's ranks are."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torchrun import check, torchrun

from runtime.ranks import join, leave


def launch(worker: Path, cases: list[dict[str, Any]], folder: Path, num_ranks: int) -> list[list[Any]]:
    """Runs `worker`, whose last line is `run_cases(...)`, and returns by rank what it found for each case."""
    (folder / "cases.json").write_text(json.dumps(cases))
    check(torchrun(worker, num_ranks, str(folder / "cases.json"), str(folder / "found"), timeout_s=900))
    return [json.loads((folder / f"found.{rank}").read_text()) for rank in range(num_ranks)]


def run_cases(run: Callable[[dict[str, Any]], Any]) -> None:
    """Runs this rank: `run(case)` for each case of the file that is named first, into the file named second."""
    join("cpu", int(os.environ["WORLD_SIZE"]), None)
    from deepspeed.utils import groups

    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    found = []
    for case in json.loads(Path(sys.argv[1]).read_text()):
        found.append(run(case))
        groups._ZERO_PARAM_INTRA_PARALLEL_GROUP = None  # hpZ's group is made once per process
    Path(f"{sys.argv[2]}.{dist.get_rank()}").write_text(json.dumps(found))
    leave()
