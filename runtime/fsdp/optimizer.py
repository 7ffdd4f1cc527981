"""Any elementwise optimizer of torch, on optimizer states sharded to o."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from runtime.fsdp.check_elementwise import check_elementwise
from runtime.fsdp.gradient_norm import gradient_norm
from runtime.fsdp.loss_scale import LossScale
from runtime.fsdp.shard import Sharded
from runtime.fsdp.slice_groups import slice_groups
from runtime.fsdp.spread import spread_units
from runtime.fsdp.unit import Unit
from runtime.ranks import LaunchError


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
        check_elementwise(make, elementwise)
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
        self.inner = make(slice_groups(params, self.slices, sharded.model), **defaults)
        super().__init__(self.inner.param_groups, self.inner.defaults)
        self.param_groups = self.inner.param_groups
        self.state = self.inner.state
        self._num_scaled = 0
        """Backwards of this step that went through `backward`."""
        self.loss_scale = LossScale() if sharded.plan.precision == "fp16" else None
        self.norm: float | None = None
        """Of the gradients of the last step, before clipping; None where nothing asked for it."""
        sharded.model.register_load_state_dict_post_hook(lambda *_: self._take_parameters())  # type: ignore[no-untyped-call]

    @property
    def sharded(self) -> Sharded:
        """The model that it trains."""
        return self._sharded

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches of a step."""
        return self._sharded.plan.num_micro_batches

    def backward(self, loss: Tensor) -> None:
        """Runs the backward of one micro-batch of a step.

        A step takes the mean of its micro-batches' losses, also where fewer than planned have run. Whoever calls
        `loss.backward()` instead divides the loss by their number.

        Args:
            loss: (), of this rank's samples; ranks count alike.

        Raises:
            LaunchError: All micro-batches of the step have had their backward.
        """
        self._sharded.reducer.check_room()
        scale = self.loss_scale.value if self.loss_scale else 1.0
        torch.autograd.backward(loss * (scale / self.num_micro_batches))
        self._num_scaled += 1

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002
        """Updates the parameters by the gradients of all micro-batches since the last step.

        A parameter without a gradient counts as one with a gradient of zeros.

        Raises:
            LaunchError: There was no backward, one failed, or some of fp16 went past `backward`, which scales the loss.
        """
        reducer = self._sharded.reducer
        reducer.check()
        if reducer.micro_batch == 0:
            raise LaunchError("optimizer.step() without a backward before it: there are no gradients")
        if self._num_scaled not in (0, reducer.micro_batch) or (self.loss_scale and not self._num_scaled):
            raise LaunchError(
                f"{reducer.micro_batch - self._num_scaled} of the step's {reducer.micro_batch} backwards did not go "
                "through optimizer.backward(loss), which scales the loss: call it for all of them"
            )
        reducer.finish_step()
        # Before the last update has come to all ranks, this one must not be written over it; and what was gathered
        # since the last backward will be out of date.
        self._sharded.synchronize()
        self._sharded.shard_again()
        self._set_gradients()
        if self._scale_gradients():
            self.inner.step()
            self.publish()
        self._forget_gradients()
        reducer.next_step()

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: ARG002
        """Gives up the gradients of a step that has begun, also where it failed; after a step there are none.

        Every rank must call it at the same place in the step.
        """
        if self._sharded.reducer.has_begun:
            self._sharded.give_up_step()
            self._forget_gradients()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Updates more parameters of the model, by options of their own."""
        if hasattr(self, "param_groups") and self.param_groups is self.inner.param_groups:
            self.inner.add_param_group(slice_groups([param_group], self.slices, self._sharded.model)[0])
        else:
            super().add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """Refuses: see `runtime.checkpoint`, whose checkpoints any other plan can load."""
        raise NotImplementedError("the states of one rank are no use elsewhere: save with runtime.checkpoint.save")

    def _forget_gradients(self) -> None:
        self._num_scaled = 0
        for values in self.slices.values():
            values.grad = None

    @torch.no_grad()
    def _take_parameters(self) -> None:
        """Takes what was loaded into the model."""
        for unit in self._units:
            for name, values in zip(unit.names, unit.slices_of_shards(), strict=True):
                if self._is_fp32:
                    self.slices[name].data = values
                else:
                    self.slices[name].copy_(values)

    def _set_gradients(self) -> None:
        for unit in self._units:
            assert unit.slice is not None
            gradients = unit.slice if self._is_fp32 else unit.slice.float()
            for name, gradient in zip(unit.names, unit.slices_of(gradients), strict=True):
                self.slices[name].grad = gradient

    def _scale_gradients(self) -> bool:
        """Makes sums means, and clips them; returns whether they can be used."""
        factor = 1.0 / self._sharded.groups.world_size
        if self._num_scaled:
            factor *= self.num_micro_batches / self._num_scaled
        if self.loss_scale:
            factor /= self.loss_scale.value
        if self.max_norm > 0 or self.loss_scale:
            norm = gradient_norm(self._units, self.slices, self._sharded.groups) * factor
            self.norm = norm.item()
            if self.loss_scale and not self.loss_scale.update(self.norm):
                return False
            if 0 < self.max_norm < self.norm:
                # As torch.nn.utils.clip_grad_norm_ does it.
                factor *= self.max_norm / (self.norm + 1e-6)
        gradients = [values.grad for values in self.slices.values() if values.grad is not None]
        torch._foreach_mul_(gradients, factor)
        return True

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
