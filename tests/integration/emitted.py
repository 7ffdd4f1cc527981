"""Plans of the tiny model on this machine's CPUs, emitted and launched as a user does."""

import json
from pathlib import Path

from torchrun import check, torchrun

from hw_profiles.load import load
from planner.emit.emit import emit
from planner.job import Job
from planner.model_graph import ModelSource
from planner.pipeline import estimate
from planner.trace import trace

TINY = Path(__file__).with_name("tiny_model.py")


def emitted(
    folder,
    degrees,
    *,
    world_size=2,
    secondary_degree=None,
    recompute="none",
    model="Net",
    micro_batch_size=2,
    offload="auto",
    engine="auto",
    precision="fp32",
):
    """Returns `folder` with the plan of one strategy, with 4 samples of each rank in a global batch."""
    source = ModelSource(spec=f"{TINY}:net", kind="file", arguments={"model": model})
    graph = trace(source, precision=precision, device="cpu", sequence_length=16)
    job = Job(
        global_batch_size=4 * world_size,
        micro_batch_size=micro_batch_size,
        sequence_length=16,
        precision=precision,
        engine=engine,
        recompute=recompute,
        offload=offload,
    )
    profile = load("local-cpu", 1, world_size)
    emit(estimate(graph, profile, job, degrees, secondary_degree=secondary_degree), folder)
    return folder


def losses(folder, num_ranks, num_steps=5, *options):
    """Returns the losses of a launch."""
    report = folder / "report.json"
    done = torchrun(folder / "launch.py", num_ranks, "--steps", str(num_steps), "--report", str(report), *options)
    check(done)
    return [step["loss"] for step in json.loads(report.read_text())["steps"]]
