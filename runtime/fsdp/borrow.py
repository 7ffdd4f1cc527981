"""Blocks whose parameters are used without a call of their modules: `F.linear(x, embedding.weight)`.

FSDP2 gathers a block's parameters around the forward of its modules, and has a shard in their place elsewhere. A block
whose parameters are borrowed is gathered for the whole of the model's forward instead, and for the whole of its
backward: as often as any other. Which blocks these are shows in the first forward: only there every operator is looked
at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from torch import Tensor, nn
from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from runtime.fsdp.unit import Unit

_TURNED = frozenset({"T", "mT", "H", "mH"})
"""Attributes whose values are made of a parameter's: others are of its shape and type."""


class Borrowing(TorchFunctionMode):
    """Sees each operator that takes a parameter from outside of its block, and gives it the whole one."""

    def __init__(self, units: Sequence[Unit], borrowed: Callable[[Unit], None]) -> None:
        """Calls `borrowed` for each block of which that is so, before the operator."""
        super().__init__()
        self._borrowed = borrowed
        self._units = units
        self._owners: dict[int, Unit] = {}
        """By the identity of a parameter while it is sharded; where p = 1 always."""
        self._whole: dict[int, Any] = {}
        for unit in units:
            for each in unit.sources if unit.group is None else unit.group.fsdp_params:
                parameter = each if unit.group is None else each.sharded_param
                self._owners[id(parameter)] = unit
                if unit.group is not None:
                    self._whole[id(parameter)] = each

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Runs an operator."""
        if getattr(func, "__name__", "") == "__get__" and getattr(func.__self__, "__name__", "") not in _TURNED:
            return func(*args, **kwargs or {})
        args, kwargs = tree_map_only(nn.Parameter, self._settled, (tuple(args), dict(kwargs or {})))
        return func(*args, **kwargs)

    def _settled(self, parameter: Tensor) -> Tensor:
        unit, each = self._owners.get(id(parameter)), self._whole.get(id(parameter))
        if unit is None and isinstance(parameter, DTensor):
            unit, each = self._owner_between(parameter)
        if unit is None:
            return parameter
        self._borrowed(unit)
        whole: Tensor = parameter if each is None else each._unsharded_param
        return whole

    def _owner_between(self, parameter: Tensor) -> tuple[Unit | None, Any]:
        """Returns the owner of a parameter that is sharded to s, between forward and backward."""
        for unit in self._units:
            for each in unit.group.fsdp_params if unit.group is not None else ():
                if getattr(each, "_sharded_post_forward_param", None) is parameter:
                    return unit, each
        return None, None


def hold(unit: Unit) -> None:
    """Keeps a block gathered once it is, whatever FSDP2's hooks around its own modules say."""
    unit.is_held = True
    if unit.group is not None:
        unit.group._to_sharded()
        unit.held_mesh = unit.group.post_forward_mesh_info
        unit.group.post_forward_mesh_info = None
        unit.group.reshard_after_backward = False


def gather_held(unit: Unit, phase: Literal["forward", "backward"]) -> None:
    """Gathers a block outside of the forward of its modules."""
    if unit.group is not None:
        state = TrainingState.FORWARD if phase == "forward" else TrainingState.PRE_BACKWARD
        with _as_planned(unit), unit.group.use_training_state(state):
            unit.group.unshard(unit.group.unshard_async_op)
            unit.group.wait_for_unshard()


def reshard_held(unit: Unit) -> None:
    """Shards a block at the end of the model's forward over s, where it is not kept for backward (s = 1)."""
    if unit.group is not None:
        with _as_planned(unit), unit.group.use_training_state(TrainingState.FORWARD):
            unit.group.reshard()


@contextmanager
def _as_planned(unit: Unit) -> Iterator[None]:
    """Lets FSDP2 know of s."""
    unit.group.post_forward_mesh_info = unit.held_mesh
    try:
        yield
    finally:
        unit.group.post_forward_mesh_info = None
