"""One block while it trains: its parameters, and its gradients from backward to the update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from runtime.fsdp.layout import Layout, lay_out
from runtime.fsdp.quantized_reduction import QuantizedReduction
from runtime.fsdp.strategies import BlockStrategy


class Unit:
    """A block whose parameters are gathered, reduced and spread as one message each."""

    def __init__(
        self,
        name: str,
        strategy: BlockStrategy,
        modules: Sequence[nn.Module],
        parameters: Sequence[tuple[str, nn.Parameter]],
        rank: int,
    ) -> None:
        """Takes a block whose parameters have memory and are sharded already, where p > 1."""
        self.name = name
        self.strategy = strategy
        self.modules = tuple(modules)
        self.rank = rank
        self.group: Any = None
        """FSDP2's group of the block's parameters; None where p = 1."""
        self.names = tuple(name for name, _ in parameters)
        self.sources: tuple[Any, ...] = ()
        """For each trainable parameter, FSDP2's record of it; where p = 1 the parameter itself."""
        self._shapes = tuple(tuple(parameter.shape) for _, parameter in parameters)
        self.layout: Layout = lay_out(self._shapes, strategy.param_degree, strategy.grad_degree, strategy.optim_degree)
        self.quantized_reduction: QuantizedReduction | None = None
        """Reduces over g as int4; None: it is reduced as it is."""
        self.accumulated: Tensor | None = None
        """(shard_elements,) where g > 1; where g = 1 whole gradients, one after the other."""
        self.slice: Tensor | None = None
        """(slice_elements,): what the update takes, once all reductions of the boundary are over."""
        self.num_reductions = 0
        """Of this step."""
        self.is_held = False
        """Whether its parameters are used outside of it: they are whole in all of forward, and in all of backward."""
        self.held_mesh: Any = None
        """FSDP2's mesh of s, over which a held block is sharded between the two; None: it is kept."""

    @property
    def is_trained(self) -> bool:
        """Whether there is anything to reduce and to update."""
        return bool(self.names)

    @property
    def reduces_at_once(self) -> bool:
        """Whether gradients are reduced in every micro-batch (g > 1)."""
        return self.strategy.grad_degree > 1

    def adopt(self, sources: Sequence[Any], device: torch.device, dtype: torch.dtype) -> None:
        """Takes what holds the parameters, in the order of `names`, and makes the memory of their gradients."""
        self.sources = tuple(sources)
        if self.is_trained:
            elements = self.layout.shard_elements if self.reduces_at_once else self._whole_elements
            self.accumulated = torch.zeros(elements, device=device, dtype=dtype)

    @property
    def _whole_elements(self) -> int:
        return sum(piece.num_elements for piece in self.layout.pieces)

    def leaves(self) -> list[Tensor | None]:
        """Returns the tensors that autograd differentiates by; None: of a block that was never gathered."""
        return [each if self.group is None else getattr(each, "_unsharded_param", None) for each in self.sources]

    @property
    def is_ready(self) -> bool:
        """Whether there is something that autograd can differentiate by."""
        return all(leaf is not None for leaf in self.leaves())

    def shards(self) -> list[Tensor]:
        """Returns the memory of this rank's shard of each parameter, flat: whole rows, padded where p > 1."""
        return [each.data.view(-1) if self.group is None else each._sharded_param_data for each in self.sources]

    def accumulate_in_place(self, leaf: Tensor, number: int) -> None:
        """Where g = 1, has autograd add a parameter's gradients to memory that stays.

        Whoever sets them to None meanwhile (`model.zero_grad`) has autograd make others, which are brought back here.
        """
        assert self.accumulated is not None
        start = sum(piece.num_elements for piece in self.layout.pieces[:number])
        own = self.accumulated[start : start + self.layout.pieces[number].num_elements].view(self._shapes[number])
        if leaf.grad is not None:
            own += leaf.grad
        leaf.grad = own

    def is_in_place(self, leaf: Tensor) -> bool:
        """Returns whether a leaf's gradient lies in the memory that stays."""
        assert self.accumulated is not None
        own, grad = self.accumulated.untyped_storage(), leaf.grad
        return grad is not None and grad.untyped_storage().data_ptr() == own.data_ptr()

    def take_gradients(self) -> list[Tensor | None]:
        """Returns the gradients of this micro-batch; where g > 1 they are the caller's to free."""
        leaves = self.leaves()
        gradients = [None if leaf is None else leaf.grad for leaf in leaves]
        if self.reduces_at_once:
            for leaf in leaves:
                if leaf is not None:
                    leaf.grad = None
        return gradients

    def forget_gradients(self) -> None:
        """Begins a step: nothing is accumulated."""
        self.num_reductions = 0
        self.slice = None
        if self.reduces_at_once:
            self.take_gradients()
        elif self.accumulated is not None:
            self.accumulated.zero_()

    def shard_again(self) -> None:
        """Drops what is gathered of the block: kept by a forward without a backward, or ahead of one that did not come.

        Source: PyTorch 2.13 torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, `finalize_backward`, which does
        the same for gathers that nothing waited for.
        """
        if self.group is None:
            return
        gathered = self.group._all_gather_result
        if gathered is not None:
            if gathered.all_gather_work is not None:
                gathered.all_gather_work.wait()
            self.group._all_gather_result = None
        self.group._to_sharded()

    def slices_of(self, flat: Tensor) -> list[Tensor]:
        """Returns this rank's elements of each parameter in a tensor of (slice_elements,), without padding."""
        found = []
        for piece in self.layout.pieces:
            first, last = self.layout.slice_of(self.rank, piece)
            found.append(flat[piece.offset : piece.offset + last - first])
        return found

    def slices_of_shards(self) -> list[Tensor]:
        """Returns this rank's elements of each parameter in its shards."""
        ranges = [self.layout.slice_of(self.rank, piece) for piece in self.layout.pieces]
        return [shard[first:last] for shard, (first, last) in zip(self.shards(), ranges, strict=True)]
