"""The training of a DeepSpeed engine, as a checkpoint sees it: stages 0 to 3, with torch's own optimizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from runtime.checkpoint.fingerprint import Fingerprint, fingerprint_of, persistent_buffers
from runtime.checkpoint.fragments import Fragment, fragments_of, own_part
from runtime.checkpoint.groups import options_of, refuse_other_groups, set_options
from runtime.checkpoint.ranges import Range, StateKinds, on_host, state_key, value_key, whole_range
from runtime.ranks import LaunchError

_SCALARS = ("eta", "mu", "mu_product", "step")
"""States of torch's optimizers that are one number, whatever the shape of the parameter."""


class EngineTraining:
    """Each rank has fragments of flat fp32 tensors that its optimizer updates."""

    def __init__(self, engine: Any) -> None:
        """Takes the engine between two steps.

        Raises:
            LaunchError: It keeps states where nothing else finds them, or in an optimizer that is not torch's own.
        """
        self._engine = engine
        self._model = engine.module
        self._inner: Any = getattr(engine.optimizer, "optimizer", engine.optimizer)
        if not type(self._inner).__module__.startswith("torch.optim"):
            raise LaunchError(
                f"the states of {type(self._inner).__name__} cannot be saved or loaded: have DeepSpeed use torch's "
                'optimizer, by "torch_adam": true in its params'
            )
        self._fragments = fragments_of(engine)
        self._names = {id(parameter): name for name, parameter in self._model.named_parameters()}

    def fingerprint(self) -> Fingerprint:
        """Returns the model's names and shapes, and the optimizer's class."""
        shapes = {
            name: tuple(parameter.ds_shape)
            for name, parameter in self._model.named_parameters()
            if hasattr(parameter, "ds_shape")
        }
        return fingerprint_of(self._model, type(self._inner).__name__, shapes)

    def ranges(self) -> list[Range]:
        """Returns this rank's fragments of parameters and states, its part of frozen parameters, and the buffers."""
        found = []
        rank, world_size = dist.get_rank(), dist.get_world_size()
        for number, fragment in enumerate(self._fragments):
            if not fragment.length:
                continue
            name = self._name(fragment)
            is_written = not fragment.is_replicated or number % world_size == rank
            tensors = {value_key(name): fragment.flat} | {
                state_key(key, name): each
                for key, each in self._inner.state.get(fragment.flat, {}).items()
                if _is_elementwise(key, each, fragment.flat)
            }
            for key, flat in tensors.items():
                elements = _num_elements(fragment.parameter)
                found.append(Range(key, elements, fragment.first, fragment.within(flat), is_written))
        return found + self._untrained()

    def states(self) -> StateKinds:
        """Returns the kinds of states of each parameter that the optimizer has updated."""
        kinds: StateKinds = {}
        for fragment in self._fragments:
            states = self._inner.state.get(fragment.flat)
            if states:
                kinds[self._name(fragment)] = {
                    key: None if _is_elementwise(key, each, fragment.flat) else on_host(each)
                    for key, each in states.items()
                }
        return kinds

    def options(self) -> list[dict[str, Any]]:
        """Returns the options of the optimizer's groups."""
        found = options_of(self._inner, lambda _: "")
        for number, group in enumerate(found):
            group["params"] = [self._name(each) for each in self._fragments if each.group == number]
        return found

    def make_states(self, kinds: StateKinds, options: Sequence[dict[str, Any]]) -> None:
        """Makes states without values.

        Raises:
            LaunchError: DeepSpeed has one state for several parameters, and the checkpoint others for each.
        """
        refuse_other_groups(self.options(), options)
        self._refuse_mixed(kinds)
        set_options(self._inner, options)
        for fragment in self._fragments:
            old = self._inner.state.get(fragment.flat, {})
            states = kinds.get(self._name(fragment), {})
            group = self._inner.param_groups[fragment.group]
            device = fragment.flat.device if group.get("fused") or group.get("capturable") else torch.device("cpu")
            self._inner.state[fragment.flat] = {
                key: old.get(key, torch.zeros_like(fragment.flat.detach())) if value is None else _placed(value, device)
                for key, value in states.items()
            }

    def loss_scale(self) -> dict[str, float] | None:
        """Returns the loss scale of fp16."""
        scaler = getattr(self._engine.optimizer, "loss_scaler", None)
        if not getattr(scaler, "dynamic", False):
            return None
        assert scaler is not None
        return {"value": scaler.cur_scale, "num_good_steps": scaler.cur_iter - scaler.last_overflow_iter - 1}

    def set_loss_scale(self, scale: dict[str, float]) -> None:
        """Goes on with a loss scale, where it is a dynamic one."""
        scaler = getattr(self._engine.optimizer, "loss_scaler", None)
        if getattr(scaler, "dynamic", False):
            assert scaler is not None
            scaler.cur_scale = scale["value"]
            scaler.last_overflow_iter = scaler.cur_iter - 1 - int(scale["num_good_steps"])

    def settle(self) -> None:
        """Brings the fp32 values to the parameters in the precision of training, on all ranks."""
        optimizer = self._engine.optimizer
        if hasattr(optimizer, "update_lp_params"):
            optimizer.update_lp_params()
            return
        for fragment in self._fragments:
            values = fragment.within(fragment.flat)
            if hasattr(fragment.parameter, "ds_tensor"):
                fragment.parameter.ds_tensor.data[: fragment.length].copy_(values)
            elif fragment.flat is not fragment.parameter:
                fragment.parameter.data.view(-1).copy_(values)
        if hasattr(optimizer, "persistent_parameters"):
            # Small parameters stay whole on every rank, and hpZ keeps parts of its own: as a step ends. Source:
            # DeepSpeed 0.19.8 runtime/zero/stage3.py, `_post_step`.
            if optimizer.persistent_parameters:
                optimizer.persistent_parameters[0].all_gather(optimizer.persistent_parameters)
            optimizer.invalidate_secondary_tensor()

    def refuse_within_step(self) -> None:
        """Refuses between the micro-batches of a step."""
        if self._engine.micro_steps % self._engine.gradient_accumulation_steps():
            raise LaunchError("a checkpoint is of whole steps: call it after the last micro-batch's engine.step()")

    def _name(self, fragment: Fragment) -> str:
        return str(self._names[id(fragment.parameter)])

    def _refuse_mixed(self, kinds: StateKinds) -> None:
        first: dict[int, str] = {}
        for fragment in self._fragments:
            name = self._name(fragment)
            other = first.setdefault(id(fragment.flat), name)
            if not _same(kinds.get(name, {}), kinds.get(other, {})):
                raise LaunchError(
                    f"the checkpoint has optimizer states of {name} that do not go with those of {other}, and "
                    "DeepSpeed updates both at once: load it with the fsdp engine"
                )

    def _untrained(self) -> list[Range]:
        found = []
        rank = dist.get_rank()
        for name, parameter in self._model.named_parameters():
            if parameter.requires_grad:
                continue
            if hasattr(parameter, "ds_tensor"):
                first, length = own_part(parameter)
                values = parameter.ds_tensor.data[:length]
                found.append(Range(value_key(name), parameter.ds_numel, first, values, True))
            else:
                found.append(whole_range(name, parameter, rank))
        return found + [whole_range(name, each, rank) for name, each in persistent_buffers(self._model).items()]


def _is_elementwise(key: str, state: Any, flat: Tensor) -> bool:
    return isinstance(state, Tensor) and state.shape == flat.shape and (flat.dim() > 0 or key not in _SCALARS)


def _num_elements(parameter: Any) -> int:
    return int(parameter.ds_numel) if hasattr(parameter, "ds_numel") else int(parameter.numel())


def _placed(value: Any, device: torch.device) -> Any:
    return value.to(device, copy=True) if isinstance(value, Tensor) else value


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return list(one) == list(other) and all(
        type(each) is type(other[key]) and (each is None or bool(each == other[key])) for key, each in one.items()
    )
