"""Peak memory as PyTorch's own tracker counts it beside the cost model's, on ranks that are not there.

`FSDPMemTracker` follows every tensor of a step; a fake process group and tensors without memory let one process be rank
0 of 64. It runs around PyTorch's plain `fully_shard` with Adam, and around this repository's runtime:

    python benchmarks/fsdp_mem_tracker.py            # prints docs/fsdp_memory_cross_check.md; --write writes it
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker, _FSDPRefType
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

from costmodels.fsdp import FSDP
from costmodels.memory import StepMemory, step_memory
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Workload
from planner.model_graph import ModelSource
from planner.trace import trace
from runtime.fsdp.optimizer import ShardedOptimizer
from runtime.fsdp.shard import shard
from runtime.fsdp.strategies import BlockStrategy, ShardingPlan
from runtime.load_model import build

Engine = Literal["fully_shard", "runtime"]
ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "fsdp_memory_cross_check.md"
MIB = 1024**2
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_SEQUENCE, _RANKS_PER_NODE = 256, 8


@dataclass(frozen=True)
class Model:
    """A GPT of examples/gpt.py."""

    width: int = 768
    depth: int = 12
    heads: int = 12
    vocab: int = 8192

    @property
    def source(self) -> ModelSource:
        """Where it is, and what it takes."""
        numbers = {"width": self.width, "depth": self.depth, "heads": self.heads, "vocab": self.vocab}
        arguments = {name: str(number) for name, number in numbers.items()}
        return ModelSource(spec=f"{ROOT}/examples/gpt.py:gpt", kind="file", arguments=arguments)

    @property
    def blocks(self) -> tuple[str, ...]:
        """Names of its blocks."""
        return ("tokens", "positions", *(f"layers.{number}" for number in range(self.depth)), "norm", "head")


@dataclass(frozen=True)
class Case:
    """One step with parameters, gradients and optimizer states all sharded over `degree` ranks."""

    world_size: int
    degree: int
    precision: Literal["fp32", "bf16"]
    engine: Engine
    model: Model = Model()


def cases() -> tuple[Case, ...]:
    """Returns (N, N, N) and (k, k, k) on 8 and on 64 ranks, in both precisions, by both engines."""
    meshes = ((8, 8), (8, 4), (64, 64), (64, 8))
    return tuple(
        Case(*mesh, precision, engine)  # type: ignore[arg-type]
        for engine in ("fully_shard", "runtime")
        for precision in ("fp32", "bf16")
        for mesh in meshes
    )


def predicted_bytes(case: Case) -> int:
    """Returns the cost model's peak for what the case holds.

    The model is of this repository's runtime: fp32 copies of bf16 parameters and fp32 moments of Adam, 12 bytes per
    parameter. Plain `fully_shard` of a bf16 model has bf16 moments and no copies, 4 bytes, which is taken into account.
    """
    said = _predicted(case)
    if case.engine == "runtime" or case.precision == "fp32":
        return said.peak_bytes
    return said.peak_bytes - said.components.optimizer_states * 8 // 12


def _predicted(case: Case) -> StepMemory:
    workload = _traced(case.model, case.precision)
    # Of a GPU: on a CPU the prediction has gloo's copies of messages, and a fake process group makes none.
    shape = StepShape(case.world_size, 1, 1, case.precision, "adam", "cuda")
    strategy = Strategy(case.degree, case.degree, case.degree, case.degree)
    assignment = (strategy,) * workload.num_classes
    return step_memory(workload, FSDP.memory(workload, assignment, shape), assignment, shape)


@functools.cache
def _traced(model: Model, precision: Literal["fp32", "bf16"]) -> Workload:
    return trace(model.source, precision=precision, device="cpu", sequence_length=_SEQUENCE).workload


def tracked(case: Case) -> dict[str, int]:
    """Returns the bytes that the tracker counts at the peak of the second step, by category and in "Total"."""
    dist.init_process_group("fake", rank=0, world_size=case.world_size, store=dist.HashStore())
    try:
        with FakeTensorMode(), _real_meshes():
            torch.set_default_dtype(_DTYPES[case.precision])
            source = case.model.source
            model, batch = build(source.spec, source.kind, source.arguments, 1, _SEQUENCE)
            torch.set_default_dtype(torch.float32)
            return (_plain if case.engine == "fully_shard" else _by_runtime)(case, model, batch)
    finally:
        torch.set_default_dtype(torch.float32)
        dist.destroy_process_group()


@contextmanager
def _real_meshes() -> Iterator[None]:
    """A mesh's numbers of ranks are read while it is made; of tensors without memory they cannot be."""
    original = DeviceMesh.from_group

    def outside(*arguments: Any, **options: Any) -> DeviceMesh:
        with unset_fake_temporarily():
            return original(*arguments, **options)

    DeviceMesh.from_group = staticmethod(outside)  # type: ignore[method-assign]
    try:
        yield
    finally:
        DeviceMesh.from_group = staticmethod(original)  # type: ignore[method-assign]


def _plain(case: Case, model: nn.Module, batch: dict[str, torch.Tensor]) -> dict[str, int]:
    with unset_fake_temporarily():
        mesh = init_device_mesh("cpu", (case.degree,), mesh_dim_names=("shard",))
        if case.degree < case.world_size:
            shape = (case.world_size // case.degree, case.degree)
            mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))
    for name in case.model.blocks:
        fully_shard(model.get_submodule(name), mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)

    def step() -> None:
        model(**batch).backward()
        optimizer.step()
        # Kept from step to step, as the runtime and DeepSpeed keep their flat gradients.
        optimizer.zero_grad(set_to_none=False)

    return _peak_of_second(model, optimizer, batch, step, ())


def _by_runtime(case: Case, model: nn.Module, batch: dict[str, torch.Tensor]) -> dict[str, int]:
    strategy = BlockStrategy(case.model.blocks, case.degree, case.degree, case.degree, case.degree)
    levels = (_RANKS_PER_NODE, case.world_size // _RANKS_PER_NODE)
    plan = ShardingPlan((strategy,), case.world_size, _RANKS_PER_NODE, 1, case.precision, levels)
    sharded = shard(model, plan, device=torch.device("cpu"))
    optimizer = ShardedOptimizer(sharded, torch.optim.Adam, foreach=False)
    held = [(unit.accumulated, _FSDPRefType.SHARDED_GRAD) for unit in sharded.units]
    if case.precision != "fp32":
        held += [(values, _FSDPRefType.OPT) for values in optimizer.slices.values()]

    def step() -> None:
        optimizer.backward(model(**batch))
        optimizer.step()
        sharded.synchronize()

    return _peak_of_second(model, optimizer, batch, step, held)


def _peak_of_second(
    model: nn.Module, optimizer: Any, batch: Any, step: Callable[[], None], held: Any
) -> dict[str, int]:
    step()  # makes the optimizer states
    tracker = FSDPMemTracker(model, optimizer)
    tracker.track_inputs((batch,))
    for tensor, kind in held:
        tracker._update_and_maybe_create_winfos(tensor, kind)
    with tracker:
        step()
    (found,) = tracker.get_tracker_snapshot("peak").values()
    return {getattr(kind, "value", str(kind)): size for kind, size in found.items()}


def page() -> str:
    """Returns the page of the documentation."""
    rows = []
    for case in cases():
        measured, said = tracked(case)["Total"], predicted_bytes(case)
        degrees = ", ".join([str(case.degree)] * 3)
        rows.append(
            f"| {case.engine} | {case.precision} | {case.world_size} | ({degrees}) | {measured / MIB:,.1f} MiB "
            f"| {said / MIB:,.1f} MiB | {said / measured - 1:+.1%} |"
        )
    return _PAGE.format(rows="\n".join(rows), torch=torch.__version__.partition("+")[0])


_PAGE = """# Peak memory beside PyTorch's own tracker

`FSDPMemTracker` (`torch/distributed/_tools/fsdp2_mem_tracker.py`, torch {torch}) counts every tensor of a training
step. With a fake process group and tensors without memory one process is rank 0 of 8 or of 64, so the cost model of
the fsdp engine can be checked on more ranks than there are. GPT of `examples/gpt.py`, 97.8 million parameters (width
768, 12 layers, 8,192 tokens of vocabulary), 1 sample of 256 tokens per rank, Adam with `foreach=False`, the
second step:

| engine | precision | ranks | (p, g, o) | tracker | predicted | difference |
|---|---|---|---|---|---|---|
{rows}

    python benchmarks/fsdp_mem_tracker.py

Like is set beside like:

- `fully_shard` is PyTorch's own, one call for each block that the plan names, on a mesh of one dimension for (N, N, N)
  and of two (HSDP) for (k, k, k). Its gradients are kept from step to step (`zero_grad(set_to_none=False)`), as the
  runtime keeps its flat ones; by default they are freed, and its peak is less by the shards of those blocks whose
  backward has not come.
- A bf16 model is cast to bf16 as a whole, without a `MixedPrecisionPolicy`. Then plain `fully_shard` has moments of 2
  bytes and no fp32 copy, 4 bytes of optimizer states per parameter, and the runtime 12: the other 8 are taken off.
- On CPUs gloo copies the output of a gather and the input of a reduction, and the prediction for CPUs counts that: 27
  MiB more here, in fp32. A fake process group copies nothing, as NCCL does not, so this is the prediction for GPUs.
- `runtime` is this repository's, whose flat gradients and fp32 slices are told to the tracker, as it knows only what
  is made while it is on; nothing is taken off.

At the peak, the backward of a layer near the last, both hold two gathered layers (the running one and the next), the
gradients of the running one, and the reduction of the one before it. What the prediction lacks, 2.3 MiB in fp32 and 1.1
in bf16, is as much as the gradient of one layer's queries, keys and values (256 x 2,304). With (k, k, k) plain
`fully_shard` holds more: `FSDPParamGroup` keeps what it all-reduces of each block (`_all_reduce_state`) until the end
of backward, here the shards of the head's and the last layer's gradients, 6.4 MiB for k = 8.
"""


def main() -> None:
    """Prints the page, or writes it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    text = page()
    if parser.parse_args().write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
