"""What ranks of the tests do in order: messages that start and are over, among forwards and backwards of blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from runtime.fsdp.optimizer import ShardedOptimizer
from runtime.fsdp.shard import Sharded, shard
from runtime.fsdp.strategies import BlockStrategy, ShardingPlan
from runtime.fsdp.unit import Unit
from runtime.record_traffic import degrees_of

NUM_LAYERS = 6
WIDTH = 8


class Event(NamedTuple):
    """One moment: `("gather", "layers.1", "starts")`, `("forward", "layers.0", "begins")`."""

    what: str
    """forward, backward; gather, reduce, to slice, to world, spread."""
    block: str
    moment: str
    """begins, ends; starts, is over."""


_EVENTS: list[Event] = []


class _Mark(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, block: str, forward: str, backward: str) -> Tensor:
        ctx.event = Event("backward", block, backward)
        _EVENTS.append(Event("forward", block, forward))
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        _EVENTS.append(ctx.event)
        return gradient, None, None, None


class TracedLayer(nn.Module):
    """A block of a size of its own, by which its messages are known."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.name = f"layers.{number}"
        hidden = 8 * (number + 1)
        self.up = nn.Linear(WIDTH, hidden, bias=False)
        self.down = nn.Linear(hidden, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Returns x and what the layer adds."""
        x = _Mark.apply(x, self.name, "begins", "ends")
        x = x + self.down(torch.relu(self.up(x)))
        return _Mark.apply(x, self.name, "ends", "begins")


class TracedModel(nn.Module):
    """Layers whose forward and backward are noted."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(TracedLayer(number) for number in range(NUM_LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        """Returns a loss."""
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


class _TracedWork(dist.Work):
    """Notes when somebody has waited for a message; `fully_shard` waits for what is a `Work` alone."""

    def __init__(self, work: Any, event: Event) -> None:
        super().__init__()
        self._work, self._event = work, event

    def wait(self, *arguments: Any) -> bool:
        """Waits for the message."""
        done: bool = self._work.wait(*arguments)
        _EVENTS.append(self._event)
        return done


@contextmanager
def traced(sharded: Sharded) -> Iterator[list[Event]]:
    """Notes all events, in the list that it yields."""
    names = _names(sharded)
    kept = {name: getattr(dist, name) for name in ("all_gather_single", "reduce_scatter_single", "all_reduce")}
    for name, original in kept.items():
        setattr(dist, name, _noting(name, original, names))
    _EVENTS.clear()
    try:
        yield _EVENTS
    finally:
        for name, original in kept.items():
            setattr(dist, name, original)


def _noting(
    operation: str, original: Callable[..., Any], names: dict[tuple[Any, ...], tuple[str, str]]
) -> Callable[..., Any]:
    def call(*tensors: Tensor, group: Any = None, async_op: bool = False, **others: Any) -> Any:
        given = [*tensors, *(value for value in others.values() if isinstance(value, Tensor))]
        full = max(tensor.numel() for tensor in given)
        degrees = degrees_of(dist.get_process_group_ranks(group))
        what, block = names[operation, *degrees, full]
        _EVENTS.append(Event(what, block, "starts"))
        work = original(*tensors, group=group, async_op=async_op, **others)
        over = Event(what, block, "is over")
        if async_op:
            return _TracedWork(work, over)
        _EVENTS.append(over)
        return work

    return call


def _names(sharded: Sharded) -> dict[tuple[Any, ...], tuple[str, str]]:
    """Returns what each message is, by its operation, degrees and elements."""
    found: dict[tuple[Any, ...], tuple[str, str]] = {}
    world_size = sharded.groups.world_size
    for unit in sharded.units:
        layout = unit.layout
        p, g, o = layout.param_degree, layout.grad_degree, layout.optim_degree
        num_params = sum(piece.num_elements for piece in layout.pieces)
        for s in dict.fromkeys((p, unit.strategy.secondary_degree)):
            _add(found, ("all_gather_single", 1, s, num_params), "gather", unit)
        _add(found, ("reduce_scatter_single", 1, g, layout.full_elements), "reduce", unit)
        _add(found, ("reduce_scatter_single", g, o, layout.shard_elements), "to slice", unit)
        _add(found, ("all_reduce", o, world_size, layout.slice_elements), "to world", unit)
        _add(found, ("all_gather_single", p, o, o // p * layout.slice_elements), "spread", unit)
    return found


def _add(found: dict[tuple[Any, ...], tuple[str, str]], key: tuple[Any, ...], what: str, unit: Unit) -> None:
    if key[1] < key[2]:
        assert key not in found, f"{what} of {unit.name} looks like {found[key]}"
        found[key] = (what, unit.name)


class TracedStep(NamedTuple):
    """The second step of a training, when the order of the blocks is known."""

    update_before: list[Event]
    micro_batches: list[list[Event]]
    update: list[Event]


def trace_step(degrees: tuple[int, int, int, int], num_micro_batches: int, prefetch: int) -> TracedStep:
    """Trains by (p, s, g, o), and returns what this rank did."""
    torch.manual_seed(0)
    model = TracedModel()
    names = tuple(f"layers.{number}" for number in range(NUM_LAYERS))
    strategies = (BlockStrategy(names, *degrees),)
    plan = ShardingPlan(strategies, dist.get_world_size(), 4, num_micro_batches, "fp32", (2, 2, 2), prefetch=prefetch)
    sharded = shard(model, plan)
    optimizer = ShardedOptimizer(sharded, torch.optim.SGD, lr=1e-2)
    found: list[list[Event]] = []
    for _ in range(2):
        for _ in range(num_micro_batches):
            with traced(sharded) as events:
                optimizer.backward(model(torch.randn(2, WIDTH)))
            found.append(list(events))
        with traced(sharded) as events:
            optimizer.step()
        found.append(list(events))
    sharded.synchronize()
    return TracedStep(found[num_micro_batches], found[num_micro_batches + 1 : -1], found[-1])
