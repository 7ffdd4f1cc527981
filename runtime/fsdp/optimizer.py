"""Any elementwise optimizer of torch, on optimizer states sharded to o."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from runtime.fsdp.loss_scale import LossScale
from runtime.fsdp.shard import Sharded
from runtime.fsdp.spread import spread_units
from runtime.fsdp.unit import Unit
from runtime.ranks import LaunchError

ELEMENTWISE = frozenset(
    {"Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"}
)
"""Optimizers of torch 2.13 that update each element from its own gradient and states alone."""

_REFUSED = {
    "Adafactor": "its states are sums over rows and columns of a parameter, which a rank has only pieces of",
    "LBFGS": "it needs several evaluations of the whole model, and inner products of whole gradients",
    "Muon": "it orthogonalizes whole matrices, which a rank has only pieces of",
    "SparseAdam": "gradients that are reduced between ranks are dense",
}


class ShardedOptimizer(Optimizer):
    """Updates this rank's slices of the parameters: fp32 copies, or the parameters themselves where they are fp32.

    Example:
        sharded = shard(model, "plan_folder")
        optimizer = ShardedOptimizer(sharded, torch.optim.AdamW, lr=1e-3)
        for micro_batches in data:
            for batch in micro_batches:
                optimizer.backward(model(**batch).loss)
            optimizer.step()
    """

    def __init__(
        self,
        sharded: Sharded,
        make: Callable[..., Optimizer],
        params: Iterable[Any] | None = None,
        *,
        max_norm: float = 0.0,
        elementwise: bool | None = None,
        **defaults: Any,
    ) -> None:
        """Makes the optimizer of this rank.

        Args:
            sharded: What `shard` returned.
            make: An optimizer's class.
            params: Parameters of the model or their names, or groups of them as torch takes them ({"params": [...],
                "lr": ...}); None: all that are trained. What is left out is not updated.
            max_norm: Gradients whose norm over all parameters is greater are scaled down to it; 0: none are.
            elementwise: True for an optimizer that is not torch's own, if it updates each element by itself.
            **defaults: The optimizer's own options.

        Raises:
            LaunchError: The optimizer is not elementwise, or a parameter is not one of the model's.
        """
        _check_elementwise(make, elementwise)
        self._sharded = sharded
        self.max_norm = max_norm
        self._units = [unit for unit in sharded.units if unit.is_trained]
        self._is_fp32 = sharded.plan.precision == "fp32"
        self.slices: dict[str, nn.Parameter] = {}
        """What this rank updates of each parameter, by name: flat, fp32, maybe of no elements."""
        for unit in self._units:
            for name, values in zip(unit.names, unit.slices_of_shards(), strict=True):
                self.slices[name] = nn.Parameter(values if self._is_fp32 else values.float())
        if "fused" in inspect.signature(make).parameters and not {"fused", "foreach"} & defaults.keys():
            # In place: the default on CUDA (foreach) has temporaries as large as the states.
            defaults["fused"] = True
        self.inner = make(_groups(self._named(params)), **defaults)
        super().__init__(self.inner.param_groups, self.inner.defaults)
        self.param_groups = self.inner.param_groups
        self.state = self.inner.state
        self.loss_scale = LossScale() if sharded.plan.precision == "fp16" else None
        self.norm: float | None = None
        """Of the gradients of the last step, before clipping; None where nothing asked for it."""

    @property
    def sharded(self) -> Sharded:
        """The model that it trains."""
        return self._sharded

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches of a step."""
        return self._sharded.plan.num_micro_batches

    def backward(self, loss: Tensor) -> None:
        """Runs the backward of one micro-batch of a step, whose loss is the mean over them."""
        scale = self.loss_scale.value if self.loss_scale else 1.0
        torch.autograd.backward(loss * (scale / self.num_micro_batches))

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002
        """Updates the parameters by the gradients of all micro-batches since the last step.

        Raises:
            RuntimeError: There was no backward.
        """
        reducer = self._sharded.reducer
        if reducer.micro_batch == 0:
            raise RuntimeError("optimizer.step() without a backward before it: there are no gradients")
        reducer.finish_step()
        # Before the last update has come to all ranks, this one must not be written over it.
        self._sharded.synchronize()
        self._set_gradients()
        if self._scale_gradients():
            self.inner.step()
            self.publish()
        for values in self.slices.values():
            values.grad = None
        reducer.next_step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Does nothing: a step leaves no gradients."""

    def state_dict(self) -> dict[str, Any]:
        """Refuses: see `runtime.checkpoint`, whose checkpoints any other plan can load."""
        raise NotImplementedError("the states of one rank are no use elsewhere: save with runtime.checkpoint.save")

    def _set_gradients(self) -> None:
        for unit in self._units:
            assert unit.slice is not None
            gradients = unit.slice if self._is_fp32 else unit.slice.float()
            for name, gradient in zip(unit.names, unit.slices_of(gradients), strict=True):
                self.slices[name].grad = gradient

    def _scale_gradients(self) -> bool:
        """Makes sums means, and clips them; returns whether they can be used."""
        factor = 1.0 / self._sharded.groups.world_size
        if self.loss_scale:
            factor /= self.loss_scale.value
        if self.max_norm > 0 or self.loss_scale:
            norm = self._norm() * factor
            self.norm = norm.item()
            if self.loss_scale and not self.loss_scale.update(self.norm):
                return False
            if 0 < self.max_norm < self.norm:
                # As torch.nn.utils.clip_grad_norm_ does it.
                factor *= self.max_norm / (self.norm + 1e-6)
        gradients = [values.grad for values in self.slices.values() if values.grad is not None]
        torch._foreach_mul_(gradients, factor)
        return True

    def _norm(self) -> Tensor:
        """Returns the norm of the summed gradients of all parameters: one message of 4 bytes."""
        world_size = self._sharded.groups.world_size
        total = torch.zeros((), dtype=torch.float32, device=next(iter(self.slices.values())).device)
        for unit in self._units:
            grads = [self.slices[name].grad for name in unit.names]
            squares = torch.stack([grad.float().square().sum() for grad in grads if grad is not None]).sum()
            # Each slice is on world / o ranks.
            total += squares * (unit.strategy.optim_degree / world_size)
        dist.all_reduce(total, group=self._sharded.groups.between(1, world_size, "reduce"))
        return total.sqrt()

    @torch.no_grad()
    def publish(self) -> None:
        """Writes what has changed the slices into the shards, and has it spread where these are larger."""
        spread = set(spread_units(self._units))
        if not self._is_fp32:
            for unit in self._units:
                if unit not in spread:
                    for target, name in zip(unit.slices_of_shards(), unit.names, strict=True):
                        target.copy_(self.slices[name])
        self._sharded.spreader.update({unit: self._writer(unit) for unit in self._units if unit in spread})

    def _writer(self, unit: Unit) -> Callable[[Tensor], None]:
        def write(own: Tensor) -> None:
            for target, name in zip(unit.slices_of(own), unit.names, strict=True):
                target.copy_(self.slices[name])

        return write

    def _named(self, params: Iterable[Any] | None) -> list[dict[str, Any]]:
        names = {id(parameter): name for name, parameter in self._sharded.model.named_parameters()}
        given: Sequence[Any] = list(self.slices) if params is None else list(params)
        groups = given if given and isinstance(given[0], dict) else [{"params": given}]
        return [{**group, "params": self._slices(group["params"], names)} for group in groups]

    def _slices(self, params: Any, names: dict[int, str]) -> list[nn.Parameter]:
        listed = [params] if isinstance(params, Tensor | str) else list(params)
        found = []
        for each in listed:
            name = each if isinstance(each, str) else names.get(id(each))
            if name in self.slices:
                found.append(self.slices[name])
            elif name is None or name not in names.values():
                raise LaunchError(
                    f"{each if isinstance(each, str) else 'a tensor'} is no parameter of the sharded model"
                )
        return found


def _groups(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [group for group in groups if group["params"]]


def _check_elementwise(make: Callable[..., Optimizer], elementwise: bool | None) -> None:
    name = getattr(make, "__name__", str(make))
    if elementwise or (elementwise is None and name in ELEMENTWISE):
        return
    reason = _REFUSED.get(name, "it is not known to update each element by itself; if it does, give elementwise=True")
    raise LaunchError(
        f"optimizer {name} cannot run on sharded optimizer states: {reason}. Use AdamW, Adam or SGD, or plan with "
        "--engine deepspeed"
    )
