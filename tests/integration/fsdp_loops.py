"""Loops of users that are not the plain one: each runs on one rank of a test, and returns what it saw."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from fsdp_training import Tiny, blocks_of, plan_of, tokens_of, train_step, whole_parameters
from torch import Tensor, nn

from runtime.fsdp.optimizer import ShardedOptimizer
from runtime.fsdp.shard import Sharded, shard
from runtime.ranks import LaunchError

Degrees = tuple[int, int, int, int]


def start(degrees: Degrees, num_micro_batches: int = 1, precision: str = "fp32") -> tuple[Sharded, ShardedOptimizer]:
    """Returns a model and its optimizer, of the same seed on every rank."""
    torch.manual_seed(0)
    model = Tiny()
    plan = plan_of(blocks_of(model), degrees, num_micro_batches, precision, dist.get_world_size())
    sharded = shard(model, plan)
    return sharded, ShardedOptimizer(sharded, torch.optim.AdamW, lr=1e-3)


def evaluate(model: nn.Module) -> float:
    """Returns the loss of batches that are never trained on."""
    with torch.no_grad():
        return float(model(tokens_of(99, 0, dist.get_rank())))


def evaluating(degrees: Degrees, moments: tuple[str, ...]) -> tuple[list[float], dict[str, Tensor]]:
    """Trains with evaluations between steps ("between"), before each step ("before"), and in the middle ("middle")."""
    sharded, optimizer = start(degrees, 2)
    rank, losses = dist.get_rank(), []
    for step in range(4):
        for micro_batch in range(2):
            optimizer.backward(sharded.model(tokens_of(step, micro_batch, rank)))
            if "middle" in moments and micro_batch == 0:
                evaluate(sharded.model)
        if "before" in moments:
            evaluate(sharded.model)
        optimizer.step()
        if "between" in moments:
            losses.append(evaluate(sharded.model))
    return losses, whole_parameters(sharded)


def saved_after_steps(degrees: Degrees, precision: str) -> tuple[dict[str, Tensor], ...]:
    """Returns `state_dict` after a step, the parameters then, and those of a step of no length after loading it."""
    sharded, optimizer = start(degrees, 1, precision)
    train_step(sharded.model, optimizer, 0)
    saved = {name: _whole(each).clone() for name, each in sharded.model.state_dict().items()}
    state = {name: each.clone() for name, each in sharded.model.state_dict().items()}
    parameters = whole_parameters(sharded)
    train_step(sharded.model, optimizer, 1)
    sharded.model.load_state_dict(state)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    train_step(sharded.model, optimizer, 1)
    return saved, parameters, whole_parameters(sharded)


def _whole(value: Any) -> Tensor:
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def with_fewer_micro_batches(degrees: Degrees) -> dict[str, Tensor]:
    """Takes 3 steps of 2 micro-batches under a plan of 3."""
    sharded, optimizer = start(degrees, 3)
    for step in range(3):
        for micro_batch in range(2):
            optimizer.backward(sharded.model(tokens_of(step, micro_batch, dist.get_rank())))
        optimizer.step()
    return whole_parameters(sharded)


def with_own_backward(degrees: Degrees, zeroing: bool) -> dict[str, Tensor]:
    """Takes 3 steps of 2 micro-batches by `loss.backward()`, and clears gradients as in plain torch."""
    sharded, optimizer = start(degrees, 2)
    for step in range(3):
        if zeroing:
            optimizer.zero_grad()
        for micro_batch in range(2):
            (sharded.model(tokens_of(step, micro_batch, dist.get_rank())) / 2).backward()
        optimizer.step()
        if zeroing:
            sharded.model.zero_grad()
    return whole_parameters(sharded)


def with_plain_steps(degrees: Degrees, num_steps: int = 3) -> dict[str, Tensor]:
    """Takes steps of 2 micro-batches."""
    sharded, optimizer = start(degrees, 2)
    for step in range(num_steps):
        train_step(sharded.model, optimizer, step)
    return whole_parameters(sharded)


def refusals(degrees: Degrees) -> dict[str, str]:
    """Returns the messages of what is refused, by what was done."""
    found = {}
    sharded, optimizer = start(degrees)

    def loss() -> Tensor:
        return sharded.model(tokens_of(0, 0, dist.get_rank()))

    found["step first"] = _refused(optimizer.step)
    optimizer.backward(loss())
    found["one too many"] = _refused(lambda: optimizer.backward(loss()))
    found["one too many of one's own"] = _refused(lambda: loss().backward())
    optimizer.zero_grad()
    train_step(sharded.model, optimizer, 0)
    if degrees[0] == 1:
        sharded, optimizer = start(degrees, 2, "fp16")
        optimizer.backward(loss())
        loss().backward()
        found["fp16 unscaled"] = _refused(optimizer.step)
    return found


def _refused(call: Any) -> str:
    try:
        call()
    except LaunchError as error:
        return str(error)
    return "nothing was refused"


class _Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        raise ValueError("in the middle of backward")


def after_failures(degrees: Degrees) -> tuple[list[str], dict[str, Tensor]]:
    """Fails in a forward and in a backward of each step, gives the step up, and takes it anew."""
    sharded, optimizer = start(degrees, 2)
    layer, errors = sharded.model.layers[1], []
    for step in range(3):
        optimizer.backward(sharded.model(tokens_of(step, 0, dist.get_rank())))
        for hook in (_fail_in_forward, _fail_in_backward):
            handle = layer.register_forward_hook(hook)
            try:
                optimizer.backward(sharded.model(tokens_of(step, 1, dist.get_rank())))
            except ValueError as error:
                errors.append(str(error))
            handle.remove()
            if hook is _fail_in_backward:
                errors.append(_refused(lambda: sharded.model(tokens_of(0, 0, 0))))
                errors.append(_refused(optimizer.step))
            optimizer.zero_grad()
        train_step(sharded.model, optimizer, step)
    return errors, whole_parameters(sharded)


def _fail_in_forward(*_: Any) -> None:
    raise ValueError("in the middle of forward")


def _fail_in_backward(_: Any, __: Any, output: Tensor) -> Tensor:
    return _Failing.apply(output)


def overflowing(degrees: Degrees) -> list[tuple[float, bool, float]]:
    """Trains in fp16 from a loss scale that overflows; returns scale, whether the step changed anything, and loss."""
    sharded, optimizer = start(degrees, 2, "fp16")
    assert optimizer.loss_scale is not None
    optimizer.loss_scale.value = 2.0**21
    found = []
    for _ in range(16):
        before = {name: each.clone() for name, each in whole_parameters(sharded).items()}
        loss = train_step(sharded.model, optimizer, 0)
        after = whole_parameters(sharded)
        changed = any(not torch.equal(before[name], after[name]) for name in before)
        found.append((optimizer.loss_scale.value, changed, loss))
    return found


def in_groups(degrees: Degrees) -> list[float]:
    """Adds a parameter group later, and leaves parameters out; returns the learning rates and how much each moved."""
    torch.manual_seed(0)
    model = Tiny()
    sharded = shard(model, plan_of(blocks_of(model), degrees, world_size=dist.get_world_size()))
    named = dict(model.named_parameters())
    optimizer = ShardedOptimizer(sharded, torch.optim.SGD, [named["head.weight"]], lr=0.1)
    optimizer.add_param_group({"params": ["head.bias"], "lr": 0.5})
    before = {name: each.clone() for name, each in whole_parameters(sharded).items()}
    train_step(model, optimizer, 0)
    after = whole_parameters(sharded)
    moved = [float((after[name] - before[name]).abs().max()) for name in ("head.weight", "head.bias", "embed.weight")]
    return [*(group["lr"] for group in optimizer.param_groups), *moved]
