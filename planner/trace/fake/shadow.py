"""Real values for small tensors of whole numbers, while everything else is fake.

A model may branch on its masks, positions and routing indices. Fake tensors have no values, so this mode computes small
integer and boolean tensors (and tiny constants) for real beside the fake ones, and answers `item`, `nonzero` and the
like from them. Where a value depends on a large float tensor there is none: the mode then assumes one and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from planner.trace.failure.time_limit import check_time
from planner.trace.record.model_line import model_line

aten = torch.ops.aten

MAX_WHOLE_ELEMENTS = 1 << 22
"""Largest tensor of whole numbers that is computed for real: masks of a few thousand positions squared fit."""
MAX_FLOAT_ELEMENTS = 1 << 14

_WHOLE = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool})
_UNSET = frozenset(
    {
        aten.empty.memory_format,
        aten.empty_strided.default,
        aten.empty_like.default,
        aten.new_empty.default,
        aten.new_empty_strided.default,
    }
)
_BY_VALUE = frozenset(
    {
        aten._local_scalar_dense.default,
        aten.nonzero.default,
        aten.equal.default,
        aten.allclose.default,
        aten.masked_select.default,
        aten.repeat_interleave.Tensor,
        aten._unique2.default,
        aten.unique_consecutive.default,
        aten.unique_dim.default,
        aten.bincount.default,
    }
)
_LIKE = frozenset(
    {
        aten.ones_like.default,
        aten.zeros_like.default,
        aten.full_like.default,
        aten.new_ones.default,
        aten.new_zeros.default,
        aten.new_full.default,
    }
)
"""Operators that ask a tensor for its shape and type alone."""
_INDEXING = frozenset(
    {
        aten.index.Tensor,
        aten.index_put.default,
        aten.index_put_.default,
        aten._index_put_impl_.default,
        aten._unsafe_index.Tensor,
    }
)


class ForeignDeviceError(Exception):
    """The model asked for a device of its own; the trace has only the one its inputs are on."""


class Shadow(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows small values beside the fake tensors of `fake_mode`; `assumed` lists what it had to assume."""

    def __init__(self, fake_mode: FakeTensorMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fake_mode = fake_mode
        self.assumed: list[str] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and torch's guard against it would cost a third of the time."""
        return False

    def value(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Returns the real value of a fake tensor, or None when there is none."""
        if not isinstance(tensor, FakeTensor):
            return tensor
        return getattr(tensor, "_shadow_value", None)

    def fake(self, real: torch.Tensor) -> torch.Tensor:
        """Returns a fake tensor that stands for `real` and keeps its value."""
        with self.fake_mode:
            made = torch.empty_strided(real.shape, real.stride(), dtype=real.dtype, device="cpu")
        made._shadow_value = real  # type: ignore[attr-defined]
        return made

    def assume(self, what: str) -> None:
        """Notes an assumption, with the line of the model that needed it."""
        line = model_line()
        note = f"{line}: {what}" if line else f"in backward: {what}"
        if note not in self.assumed:
            self.assumed.append(note)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim":
            return func(*args, **kwargs)
        check_time()
        device = kwargs.get("device")
        if device is not None and torch.device(device).type not in ("cpu", "meta"):
            raise ForeignDeviceError(str(device))
        handler = _HANDLERS.get(func)
        if handler is not None:
            answered, result = handler(self, func, args, kwargs)
            if answered:
                return result
        result = func(*args, **kwargs)
        if func not in _UNSET:
            self._follow(func, args, kwargs, result)
        return result

    def _real(self, args: Any) -> Any:
        """Returns `args` with real tensors in place of the fake ones, or raises `_NoValueError`."""
        if isinstance(args, torch.Tensor):
            value = self.value(args)
            if value is None:
                raise _NoValueError
            return value
        if isinstance(args, tuple | list):
            return type(args)([self._real(item) for item in args])
        if isinstance(args, dict):
            return {key: self._real(item) for key, item in args.items()}
        return args

    def _follow(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Computes the values of small results whose operands all have values."""
        made = [result] if isinstance(result, torch.Tensor) else [t for t in tree_leaves(result) if _is_fake(t)]
        try:
            if not made or not all(_is_small(tensor) for tensor in made) or _is_random(func, made[0]):
                raise _NoValueError
            known = (_some_tensor_like(args[0]), *args[1:]) if func in _LIKE else args
            real_args, real_kwargs = self._real(known), self._real(kwargs)
        except _NoValueError:
            if func._schema.is_mutable:
                for tensor in made:
                    tensor.__dict__.pop("_shadow_value", None)
            return
        with no_dispatch():
            real = func(*real_args, **real_kwargs)
        values = [real] if isinstance(real, torch.Tensor) else [t for t in tree_leaves(real) if _is_tensor(t)]
        for tensor, value in zip(made, values, strict=True):
            tensor._shadow_value = value  # type: ignore[union-attr]


def _some_tensor_like(tensor: torch.Tensor) -> torch.Tensor:
    with no_dispatch():
        return torch.empty(tensor.shape, dtype=tensor.dtype)


class _NoValueError(Exception):
    """An operand has no real value."""


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _is_fake(value: Any) -> bool:
    return isinstance(value, FakeTensor)


def _is_small(tensor: torch.Tensor) -> bool:
    return tensor.numel() <= (MAX_WHOLE_ELEMENTS if tensor.dtype in _WHOLE else MAX_FLOAT_ELEMENTS)


def _is_random(func: Any, made: torch.Tensor) -> bool:
    """Random floats stay unknown; a single one is drawn, as models branch on it (LayerDrop)."""
    return (
        torch.Tag.nondeterministic_seeded in func.tags and made.numel() > 1 and made.is_floating_point()
    ) or made.is_complex()


_Answer = tuple[bool, Any]
_Handler = Callable[[Shadow, Any, Any, Any], _Answer]


def _by_value(shadow: Shadow, func: Any, args: Any, kwargs: Any) -> _Answer:
    try:
        real_args, real_kwargs = shadow._real(args), shadow._real(kwargs)
    except _NoValueError:
        return _assumed(shadow, func, args)
    with no_dispatch():
        real = func(*real_args, **real_kwargs)
    return True, tree_map(lambda item: shadow.fake(item) if _is_tensor(item) else item, real)


def _assumed(shadow: Shadow, func: Any, args: Any) -> _Answer:
    if func is aten._local_scalar_dense.default:
        dtype = args[0].dtype
        shadow.assume("a value of the model decides what runs; assumed to be 1")
        return True, True if dtype == torch.bool else 1 if dtype in _WHOLE else 1.0
    if func in (aten.equal.default, aten.allclose.default):
        shadow.assume("two tensors are compared; assumed to be equal")
        return True, True
    if func is aten.nonzero.default:
        shadow.assume("the places of non-zero values are asked for; assumed to be all")
        with no_dispatch():
            every = torch.ones(args[0].shape, dtype=torch.bool).nonzero()
        return True, shadow.fake(every)
    return False, None


def _with_places(shadow: Shadow, func: Any, args: Any, kwargs: Any) -> _Answer:
    """Indexing by a mask: the mask becomes the places where it is true, whose number decides the shape."""
    if not any(_is_tensor(index) and index.dtype in (torch.bool, torch.uint8) for index in args[1]):
        return False, None
    places: list[Any] = []
    for index in args[1]:
        if not _is_tensor(index) or index.dtype not in (torch.bool, torch.uint8):
            places.append(index)
            continue
        mask = shadow.value(index)
        with no_dispatch():
            if mask is None:
                shadow.assume("a mask selects elements; assumed to select all")
                mask = torch.ones(index.shape, dtype=torch.bool)
            selected = [axis.contiguous() for axis in mask.nonzero().unbind(1)]
        places += [shadow.fake(axis) for axis in selected]
    return True, func(args[0], places, *args[2:], **kwargs)


def _balanced(shadow: Shadow, func: Any, args: Any, kwargs: Any) -> _Answer:
    """A router's choice depends on floats: assume that it loads all experts alike."""
    result = func(*args, **kwargs)
    if shadow.value(args[0]) is not None or args[0].dtype in _WHOLE:
        shadow._follow(func, args, kwargs, result)
    elif _is_small(result[1]):
        dim = args[2] if len(args) > 2 else -1
        shadow.assume(f"the greatest {args[1]} of {args[0].shape[dim]} are chosen; assumed to be chosen evenly")
        with no_dispatch():
            indices = (torch.arange(result[1].numel()) % args[0].shape[dim]).reshape(result[1].shape)
        result[1]._shadow_value = indices
    return True, result


def _balanced_one(shadow: Shadow, func: Any, args: Any, kwargs: Any) -> _Answer:
    """A router that sends each token to one expert."""
    result = func(*args, **kwargs)
    dim = args[1] if len(args) > 1 else None
    if dim is None or shadow.value(args[0]) is not None or args[0].dtype in _WHOLE or not _is_small(result):
        shadow._follow(func, args, kwargs, result)
        return True, result
    shadow.assume(f"the greatest of {args[0].shape[dim]} is chosen; assumed to be chosen evenly")
    with no_dispatch():
        result._shadow_value = (torch.arange(result.numel()) % args[0].shape[dim]).reshape(result.shape)
    return True, result


def _embedding(shadow: Shadow, func: Any, args: Any, kwargs: Any) -> _Answer:
    """Fake tensors accept any index; a real embedding does not."""
    indices = shadow.value(args[1])
    if indices is not None and indices.numel():
        with no_dispatch():
            least, greatest = int(indices.min()), int(indices.max())
        if least < 0 or greatest >= args[0].shape[0]:
            raise IndexError(f"an index of {least if least < 0 else greatest} into a table of {args[0].shape[0]} rows")
    return True, func(*args, **kwargs)


def _grouped_mm(shadow: Shadow, func: Any, args: Any, kwargs: Any) -> _Answer:  # noqa: ARG001 - a handler
    """The shape rule of this operator insists on bf16 where its kernels do not (torch 2.13)."""
    dtype = args[0].dtype
    if dtype == torch.bfloat16:
        return False, None
    left, right = (torch.empty_strided(t.shape, t.stride(), dtype=torch.bfloat16, device=t.device) for t in args[:2])
    shape = func(left, right, *args[2:], **kwargs)
    return True, torch.empty_strided(shape.shape, shape.stride(), dtype=dtype, device=shape.device)


_HANDLERS: dict[Any, _Handler] = {
    **dict.fromkeys(_BY_VALUE, _by_value),
    **dict.fromkeys(_INDEXING, _with_places),
    aten.topk.default: _balanced,
    aten.argmax.default: _balanced_one,
    aten.embedding.default: _embedding,
    aten._grouped_mm.default: _grouped_mm,
}
