"""All-gathers the parameters of a block as int8 (qwZ): in forward over p, in backward over s.

Scales and elements are one message.
Every rank computes with the same parameters, its own shard's included: all of them read the same message. What the
update changed is spread from o to p as it is (`runtime.fsdp.spread`): that is what shards are made of, and an error in
them would stay and add up, while one in a gathered copy is gone after the block.

Source: ZeRO++ (arXiv 2306.10209) section 3.1; the shards stay in full precision there, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather

from runtime.fsdp.quantize import dequantize, quantize
from runtime.fsdp.quantized_layout import Code


class QuantizedGather(AllGather):
    """The all-gather of one block: `FSDPModule.set_custom_all_gather` takes it."""

    def __init__(self, group: Any) -> None:
        """Takes FSDP2's group of the block's parameters."""
        self._group = group

    def allocate(self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Returns memory for the gathered parameters."""
        return torch.empty(tuple(size), dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> dist.Work | None:
        """Gathers shards.

        Args:
            output_tensor: (ranks x elements,).
            input_tensor: (elements,): this rank's part of it, all parameters of the block one after the other.
            group: p or s ranks.
            async_op: return at once what has to be waited for.
        """
        # Each parameter has scales of its own: a norm's weights are of another size than a matrix's.
        code = Code(8, tuple(shard.numel() for each in self._group.fsdp_params for shard in each.all_gather_inputs))
        message = torch.empty(group.size(), code.num_bytes, dtype=torch.uint8, device=input_tensor.device)
        own = message[group.rank()]
        quantize(input_tensor, own, code)
        work = dist.all_gather_single(message.view(-1), own, group=group, async_op=True)
        arriving = _Arriving(work, message, output_tensor.view(group.size(), -1), code)
        if async_op:
            return arriving
        arriving.wait()
        return None


class _Arriving(dist.Work):
    """A message under way, which is dequantized when it is waited for."""

    def __init__(self, work: Any, message: Tensor, target: Tensor, code: Code) -> None:
        super().__init__()
        self._work = work
        self._message: Tensor | None = message
        self._target: Tensor | None = target
        self._code = code

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Fills the target, on CUDA in the current stream."""
        if self._message is not None and self._target is not None:
            if self._work is not None:
                self._work.wait() if timeout is None else self._work.wait(timeout)
            dequantize(self._message, self._target, self._code)
            self._message = self._target = None
        return True
