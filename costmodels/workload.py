"""What one training step of a model does, as numbers: the input of every cost model.

Nothing here knows torch: a `Workload` is what the trace found, written down as parameters, blocks and the segments
of a step in order of execution. Every amount that grows with the micro-batch is an `Amount`, affine in its size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

Phase = Literal["forward", "backward"]


@dataclass(frozen=True, slots=True)
class Amount:
    """A whole number that grows linearly with the micro-batch size b: constant + per_sample x b."""

    constant: int = 0
    per_sample: int = 0

    def at(self, micro_batch_size: int) -> int:
        """Returns the amount for a micro-batch of `micro_batch_size` samples."""
        return self.constant + self.per_sample * micro_batch_size

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.constant + other.constant, self.per_sample + other.per_sample)


class Event(NamedTuple):
    """Bytes that come to life (positive) or die (negative) at one moment: constant + per_sample x b."""

    constant: int
    per_sample: int
    is_gradient: bool = False
    """Whether they are gradients of parameters, as autograd leaves them; an engine decides how long those live."""


@dataclass(frozen=True)
class Timeline:
    """What is allocated and freed in one segment, in order of time; neighbours of equal sign are summed.

    The gradients of parameters are marked events, and count in no figure here: an engine decides what becomes of them.
    """

    events: tuple[Event, ...] = ()
    completed: tuple[int, ...] = ()
    """For each of the segment's `gradients`, the events before it was complete."""

    @cached_property
    def net_bytes(self) -> Amount:
        """Live bytes at the end minus those at the beginning."""
        return self._alive[-1]

    def peak_bytes(self, micro_batch_size: int) -> int:
        """Returns the greatest live bytes minus those at the beginning; never negative."""
        return max(self.peaks_bytes(micro_batch_size))

    def peaks_bytes(self, micro_batch_size: int) -> tuple[int, ...]:
        """Returns the same before the first gradient is complete, from then to the second, and so on."""
        return tuple(max(moment.at(micro_batch_size) for moment in summits) for summits in self.summits)

    def completing_bytes(self, micro_batch_size: int) -> tuple[int, ...]:
        """Returns live bytes minus those at the beginning when each gradient is complete."""
        return tuple(moment.at(micro_batch_size) for moment in self.completing)

    @property
    def completing(self) -> tuple[Amount, ...]:
        """Live bytes minus those at the beginning when each gradient is complete."""
        return tuple(self._alive[position] for position in self.completed)

    @cached_property
    def _alive(self) -> tuple[Amount, ...]:
        """Live bytes before the first event and after each."""
        alive = [Amount()]
        for event in self.events:
            change = Amount() if event.is_gradient else Amount(event.constant, event.per_sample)
            alive.append(alive[-1] + change)
        return tuple(alive)

    @cached_property
    def summits(self) -> tuple[tuple[Amount, ...], ...]:
        """Between completions, the live bytes that are the greatest for some b: few, so that many b are quick."""
        cuts = (0, *self.completed, len(self.events))
        return tuple(_upper_envelope(self._alive[first : last + 1]) for first, last in pairwise(cuts))


def _upper_envelope(amounts: tuple[Amount, ...]) -> tuple[Amount, ...]:
    """Returns the amounts of which one is the greatest at any b >= 1: more per sample than all greater ones."""
    falling = sorted(amounts, key=lambda amount: (amount.at(1), amount.per_sample), reverse=True)
    kept = falling[:1]
    for amount in falling[1:]:
        if amount.per_sample > kept[-1].per_sample:
            kept.append(amount)
    return tuple(kept)


Kind = Literal["matmul", "convolution", "attention", "recurrence", "scan", "fft", "other"]
"""What an operator with FLOPs computes."""


@dataclass(frozen=True, slots=True)
class Work:
    """FLOPs of one kind in one type of number."""

    kind: Kind
    dtype: str
    """`float32`, `bfloat16`, ...: the type of the operands."""
    flop: Amount


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter tensor, full size (never a shard). A tied parameter is one Parameter with aliases."""

    name: str
    """The first fully qualified name, as `model.named_parameters()` gives it."""
    shape: tuple[int, ...]
    trainable: bool = True
    aliases: tuple[str, ...] = ()
    """The further names of a tied parameter."""
    expert_axis: int | None = None
    """The axis along which the experts of a layer are stacked; None where the tensor is not of experts stacked."""

    @property
    def num_elements(self) -> int:
        """Elements of the full tensor (1 for a scalar)."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Block:
    """The unit gathered at once: a transformer layer, an embedding, a head. Named by its module."""

    name: str
    """Module path; "" is the root: operators and parameters that belong to no other block."""
    block_class: int
    """Equal blocks (same module signature and same traced operators) share a class; numbered by first appearance."""
    parameters: tuple[int, ...]
    """Indices into `Workload.parameters` of the parameters that this block owns, in module order; each parameter is
    owned by exactly one block."""
    recomputable: bool = False
    """True for repeated blocks whose module can be re-run in backward (`recompute: full` wraps these modules)."""


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """One forward call of a module, in order of execution: every module, those without parameters too.

    An engine's prefetcher acts at each module's hook, so that calls of modules without parameters decide how messages
    are joined. Callers come before what they call; the root (module "") is the first call of the first segment.
    """

    module: str
    parameters: tuple[int, ...]
    """Indices into `Workload.parameters`, in the module's own order of registration; first those that it owns
    directly, then those of other modules that its forward itself asks for, be it for their type alone
    (`F.linear(x, self.embedding.weight)`, `x.to(self.out.weight.dtype)`). Empty for a module without parameters."""
    depth: int = 1
    """Calls around it, 0 for the root: a call lasts until the next one that is not deeper."""
    inputs_require_grad: bool = True
    """A tensor among its positional arguments does; engines do not look at keyword arguments."""
    num_outputs: int = 1
    """Its output tensors that need a gradient and that something reads once it has returned: engines hook each."""
    num_places: int = 1
    """Places of the module in the model's tree; an engine that walks the tree hooks it at each."""


@dataclass(frozen=True, slots=True)
class Recomputed:
    """The memory of a segment whose block is recomputed: forward keeps its inputs only, backward runs it again."""

    timeline: Timeline
    """In place of the segment's own."""
    again: Timeline = Timeline()
    """Backward only: the forward that runs before it, with all that it saves. Its FLOPs are those of the forward."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a step executed inside one block in one phase, without recomputation.

    "Live bytes" are those of every tensor storage alive, without parameters, buffers, inputs of the step and
    gradients of parameters (an engine decides how long those live).
    """

    block: int
    """Index into `Workload.blocks`."""
    phase: Phase
    calls: tuple[ModuleCall, ...]
    """Forward: the module calls in order of execution. Backward: the same calls in order of their gradients."""
    flop: Amount
    """Floating-point operations of matrix products, convolutions, attention and the like: the sum of `work`."""
    io_bytes: Amount
    """Bytes that the operators without FLOPs (norms, activations, copies) read and write: they run at the memory's
    speed, one after the other with the products."""
    num_operators: int
    timeline: Timeline = Timeline()
    """Live bytes through the segment; at the end of forward that is what is saved for backward, outputs included."""
    product_io_bytes: Amount = Amount()
    """Bytes that the operators with FLOPs read and write, the memory side of their roofline."""
    frozen_input_bytes: Amount = Amount()
    """Forward only: of what linear maps of frozen weights read, the storages that nobody keeps for backward."""
    gradients: tuple[int, ...] = ()
    """Backward only: indices into `Workload.parameters` of the trainable parameters whose gradients are complete in
    it, in order of time. A parameter that the loss does not reach is in no segment."""
    work: tuple[Work, ...] = ()
    """`flop` by kind and type of number."""
    recomputed: Recomputed | None = None
    """What differs where the block is recomputed; None where it cannot be. Of a block that cannot be itself: what
    differs where all that can be are, as tensors of its own then live longer or shorter."""

    @property
    def net_bytes(self) -> Amount:
        """Live bytes at its end minus those at its beginning, without recomputation."""
        return self.timeline.net_bytes


@dataclass(frozen=True)
class Workload:
    """A traced training step: parameters, blocks, and the segments of forward and backward in order of execution.

    It has thousands of parts, and is asked the same again and again, so that it keeps its totals and its hash.
    """

    parameters: tuple[Parameter, ...]
    """In the order of `model.named_parameters()`, tied ones once."""
    blocks: tuple[Block, ...]
    """In order of first execution."""
    segments: tuple[Segment, ...]
    """All forward segments in order, then all backward segments in order."""
    input_bytes: Amount = Amount()
    """Bytes of the batch, alive through the step."""
    buffer_bytes: int = 0
    """Bytes of the module's registered buffers."""
    composites: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Of the modules that consist of others: the qualified name of their class, and their names."""
    linears: tuple[tuple[int, int], ...] = ()
    """(weight, bias) of the uses of `torch.nn.functional.linear`, once each: engines put their own in its place."""
    saved_views: tuple[int, ...] = ()
    """Parameters of which autograd saves views for backward (`einsum`, `bmm`, a slice), not only the parameter itself:
    where an engine frees a parameter by giving it other memory, what a view is of stays alive."""
    leaf_modules: tuple[str, ...] = ()
    """Modules that call modules of their own only where their tokens need them (experts): ranks may call different
    ones, so that an engine which gathers by module has to gather these whole."""

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Workload], tuple[object, ...]]:
        """Leaves out what is kept: a hash of texts is another one in another process."""
        return Workload, tuple(getattr(self, field.name) for field in fields(self))

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in fields(self)))

    @cached_property
    def num_classes(self) -> int:
        """Number of classes of equal blocks."""
        return 1 + max((block.block_class for block in self.blocks), default=-1)

    @cached_property
    def elements(self) -> tuple[int, ...]:
        """Elements of each parameter."""
        return tuple(parameter.num_elements for parameter in self.parameters)

    @cached_property
    def num_params(self) -> int:
        """Elements of all parameters, tied ones once."""
        return sum(self.elements)

    @cached_property
    def num_trainable_params(self) -> int:
        """Elements of the parameters that have gradients and optimizer states."""
        return sum(parameter.num_elements for parameter in self.parameters if parameter.trainable)
