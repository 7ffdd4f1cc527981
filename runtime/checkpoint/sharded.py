"""The training of a `ShardedOptimizer`, as a checkpoint sees it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from runtime.checkpoint.fingerprint import Fingerprint, fingerprint_of, persistent_buffers
from runtime.checkpoint.groups import options_of, refuse_other_groups, set_options
from runtime.checkpoint.ranges import Range, StateKinds, on_host, state_key, value_key, whole_range
from runtime.fsdp.layout import lay_out
from runtime.fsdp.optimizer import ShardedOptimizer
from runtime.fsdp.unit import Unit
from runtime.ranks import LaunchError


class ShardedTraining:
    """Each rank has a slice of every trained parameter; ranks equal modulo o have the same, and take turns to write."""

    def __init__(self, optimizer: ShardedOptimizer) -> None:
        """Takes the optimizer between two steps."""
        self._optimizer = optimizer
        self._sharded = optimizer.sharded
        self._units = [unit for unit in self._sharded.units if unit.is_trained]
        self._names = {id(values): name for name, values in optimizer.slices.items()}

    def fingerprint(self) -> Fingerprint:
        """Returns the model's names and shapes, and the optimizer's class."""
        return fingerprint_of(self._sharded.model, type(self._optimizer.inner).__name__)

    def ranges(self) -> list[Range]:
        """Returns this rank's slices of parameters and states, its shards of frozen parameters, and the buffers."""
        found = []
        for number, (unit, name, index) in enumerate(self._trained()):
            piece = unit.layout.pieces[index]
            first, last = unit.layout.range_of(unit.rank, piece)
            replicas = self._sharded.groups.world_size // unit.strategy.optim_degree
            is_written = unit.rank // unit.strategy.optim_degree == number % replicas
            values = self._optimizer.slices[name]
            # A slice may end in rows that pad the parameter to a multiple of p.
            found.append(Range(value_key(name), piece.num_elements, first, values.detach()[: last - first], is_written))
            for state, tensor in self._optimizer.inner.state.get(values, {}).items():
                if _is_elementwise(tensor, values):
                    own = tensor[: last - first]
                    found.append(Range(state_key(state, name), piece.num_elements, first, own, is_written))
        return found + self._untrained()

    def states(self) -> StateKinds:
        """Returns the kinds of states of each parameter that the optimizer has updated."""
        kinds: StateKinds = {}
        for name, values in self._optimizer.slices.items():
            states = self._optimizer.inner.state.get(values)
            if states:
                kinds[name] = {
                    key: None if _is_elementwise(each, values) else on_host(each) for key, each in states.items()
                }
        return kinds

    def options(self) -> list[dict[str, Any]]:
        """Returns the options of the optimizer's groups."""
        return options_of(self._optimizer.inner, lambda values: self._names[id(values)])

    def make_states(self, kinds: StateKinds, options: Sequence[dict[str, Any]]) -> None:
        """Makes states without values."""
        inner = self._optimizer.inner
        refuse_other_groups(self.options(), options)
        # The old ones go first, so that no rank ever holds both.
        inner.state.clear()
        numbers: dict[int, int] = {}
        for group in inner.param_groups:
            for values in group["params"]:
                numbers[id(values)] = len(numbers)
        packed = inner.state_dict()
        packed["state"] = {
            numbers[id(self._optimizer.slices[name])]: {
                key: torch.zeros_like(self._optimizer.slices[name].detach()) if value is None else value
                for key, value in states.items()
            }
            for name, states in kinds.items()
        }
        inner.load_state_dict(packed)
        set_options(inner, options)
        # torch's `load_state_dict` makes new lists and dicts.
        self._optimizer.param_groups, self._optimizer.state = inner.param_groups, inner.state

    def loss_scale(self) -> dict[str, float] | None:
        """Returns the loss scale of fp16."""
        scale = self._optimizer.loss_scale
        return {"value": scale.value, "num_good_steps": scale.num_good_steps} if scale else None

    def set_loss_scale(self, scale: dict[str, float]) -> None:
        """Goes on with a loss scale; other precisions have none."""
        if self._optimizer.loss_scale:
            self._optimizer.loss_scale.value = scale["value"]
            self._optimizer.loss_scale.num_good_steps = int(scale["num_good_steps"])

    def settle(self) -> None:
        """Brings the slices to all ranks that compute with them."""
        # A forward without a backward may have left parameters gathered.
        self._sharded.shard_again()
        self._optimizer.publish()
        self._sharded.synchronize()

    def refuse_within_step(self) -> None:
        """Refuses while there are gradients, and ends what the last step has left under way."""
        if self._sharded.reducer.micro_batch:
            raise LaunchError("a checkpoint is of whole steps: call optimizer.step() before it")
        self._sharded.synchronize()

    def _trained(self) -> Iterator[tuple[Unit, str, int]]:
        for unit in self._units:
            for index, name in enumerate(unit.names):
                yield unit, name, index

    def _untrained(self) -> list[Range]:
        found = []
        model = self._sharded.model
        shards = self._frozen_shards()
        frozen = [(name, each) for name, each in model.named_parameters() if not each.requires_grad]
        for name, parameter in frozen:
            if name in shards:
                found.append(_shard_range(name, *shards[name], self._sharded.groups.rank))
            else:
                found.append(whole_range(name, parameter, self._sharded.groups.rank))
        for name, buffer in persistent_buffers(model).items():
            found.append(whole_range(name, buffer, self._sharded.groups.rank))
        return found

    def _frozen_shards(self) -> dict[str, tuple[Any, int]]:
        """Returns FSDP2's records of the frozen parameters of sharded blocks, with the blocks' p."""
        places = {
            (id(module), place): f"{name}.{place}" if name else place
            for name, module in self._sharded.model.named_modules()
            for place, _ in module.named_parameters(recurse=False, remove_duplicate=False)
        }
        found: dict[str, tuple[Any, int]] = {}
        for unit in self._sharded.units:
            for each in unit.group.fsdp_params if unit.group is not None else ():
                if not each.sharded_param.requires_grad:
                    name = places[id(each._module_info.module), each._module_info.param_name]
                    found[name] = (each, unit.strategy.param_degree)
        return found


def _is_elementwise(state: Any, values: Tensor) -> bool:
    return isinstance(state, Tensor) and state.dim() == 1 and state.shape == values.shape


def _shard_range(name: str, source: Any, degree: int, rank: int) -> Range:
    shape = tuple(source._orig_size)
    layout = lay_out([shape], degree, degree, degree)
    first, last = layout.range_of(rank, layout.pieces[0])
    values = source._sharded_param_data[: last - first]
    return Range(value_key(name), layout.pieces[0].num_elements, first, values, rank < degree)
