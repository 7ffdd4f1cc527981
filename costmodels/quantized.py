"""Quantized collectives: the bytes they really send, scales of the blocks included, and what they take.

qwZ gathers parameters as int8, a scale for each block of a parameter. qgZ reduces gradients by two all-to-alls of int4:
inside the node, then, reduced and quantized anew, between nodes. Each rank also reads what it quantizes and writes what
it dequantizes; that runs at the device's memory bandwidth.

Source: ZeRO++ (arXiv 2306.10209) sections 3.1 and 3.3; DeepSpeed 0.19.8 runtime/zero/partition_parameters.py,
CUDAQuantizer.quantize, and runtime/comm/coalesced_collectives.py, all_to_all_quant_reduce.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from sympy import Integer, Symbol

from costmodels.collectives import collective_time
from costmodels.degrees import divisors
from costmodels.engine import Operation
from costmodels.lower import Formula
from costmodels.network import FROM_LEAST_CERTAIN, CollectiveTime, DeviceSpeed, Network

ELEMENTS, BLOCKS, BITS = (Symbol(name, integer=True, positive=True) for name in ("x", "b", "w"))  # type: ignore[no-untyped-call]
"""x: elements of the message. b: blocks with a scale of their own. w: bits of a quantized element."""
_SCALE_BYTES = 4
"""A symmetric quantizer keeps one fp32 number for each block.

Source: DeepSpeed 0.19.8 csrc/quantization/pt_binding.cpp, quantize_kernel: params of at::kFloat, one where symmetric.
"""
_TARGET_BLOCK, _MOST_BLOCK = 8000, 16000
"""Source: DeepSpeed 0.19.8 CUDAQuantizer.target_group_size, and its hard limit."""
_UNQUANTIZED_BYTES = 2

QUANTIZED_BYTES = Formula(
    name="bytes of a quantized message",
    expression=ELEMENTS * BITS / 8 + Integer(_SCALE_BYTES) * BLOCKS,
    arguments=(ELEMENTS, BLOCKS, BITS),
    unit="bytes",
    source="ZeRO++ (arXiv 2306.10209) section 3.1; one fp32 scale for each block, DeepSpeed 0.19.8 pt_binding.cpp",
)


@dataclass(frozen=True, slots=True)
class QuantizedMessage:
    """One collective of quantized elements, sent as two messages: the elements, then their scales."""

    operation: Operation
    degree_from: int
    degree_to: int
    element_bytes: int
    scale_bytes: int

    @property
    def message_bytes(self) -> int:
        """All its bytes, before sharding."""
        return self.element_bytes + self.scale_bytes


@lru_cache(maxsize=4096)
def weight_blocks(num_elements: int) -> int | None:
    """Returns how many blocks DeepSpeed quantizes a parameter's shard in, or None where it cannot.

    Args:
        num_elements: elements of one rank's shard.
    """
    if num_elements % 8:
        return None
    blocks = next((each for each in divisors(num_elements // 8) if each * _TARGET_BLOCK >= num_elements), None)
    while blocks is not None and num_elements % (16 * blocks) == 0 and num_elements / blocks > _TARGET_BLOCK:
        blocks *= 2
    return blocks if blocks is not None and num_elements / blocks < _MOST_BLOCK else None


def quantized_gather(num_elements: int, degree: int) -> QuantizedMessage | None:
    """Returns the all-gather of int8 parameters over `degree` ranks (qwZ), or None where DeepSpeed cannot quantize it.

    Args:
        num_elements: elements of the whole parameter, before sharding; padded to whole shards.
        degree: ranks that hold a shard each.
    """
    shard = math.ceil(num_elements / degree)
    blocks = weight_blocks(shard)
    if blocks is None:
        return None
    return QuantizedMessage("all_gather", 1, degree, shard * degree, blocks * degree * _SCALE_BYTES)


def quantized_reduce(shape: Sequence[int], ranks_per_node: int, world_size: int) -> tuple[QuantizedMessage, ...] | None:
    """Returns the two hops of an int4 gradient reduction (qgZ), or None where DeepSpeed falls back to a reduce-scatter.

    Args:
        shape: of the gradient.
        ranks_per_node: ranks of the first hop.
        world_size: ranks that each get a shard.
    """
    num_elements = math.prod(shape)
    if len(shape) < 2 or num_elements % (2 * world_size) or world_size == ranks_per_node:
        return None
    blocks = max(shape[0], shape[1], world_size)
    inside = QuantizedMessage("all_to_all", 1, ranks_per_node, num_elements // 2, blocks * _SCALE_BYTES)
    # Each rank goes on with its part of the reduced sum.
    left, left_blocks = num_elements // ranks_per_node, blocks // ranks_per_node
    between = QuantizedMessage("all_to_all", ranks_per_node, world_size, left // 2, left_blocks * _SCALE_BYTES)
    return inside, between


def quantized_time(messages: Sequence[QuantizedMessage], network: Network, speed: DeviceSpeed) -> CollectiveTime:
    """Returns what the messages take in turn, with the quantizing before and the dequantizing after each.

    Args:
        messages: hops of one quantized collective.
        network: the machine's links.
        speed: the devices, whose memory bandwidth the quantizer runs at.

    Raises:
        ValueError: degrees that the network does not have.
    """
    seconds, provenance = 0.0, FROM_LEAST_CERTAIN[-1]
    for message in messages:
        for size_bytes in (message.element_bytes, message.scale_bytes):
            time = collective_time(message.operation, message.degree_from, message.degree_to, size_bytes, network)
            seconds += time.seconds
            provenance = min(provenance, time.provenance, key=FROM_LEAST_CERTAIN.index)
        seconds += converted_bytes(message) / speed.memory_bytes_per_s
    return CollectiveTime(seconds, provenance)


def converted_bytes(message: QuantizedMessage) -> float:
    """Returns the bytes that a rank reads and writes to quantize what it sends and dequantize what it gets."""
    bits = 8 if message.operation == "all_gather" else 4
    num_elements = message.element_bytes * 8 / bits
    ranks = message.degree_to // message.degree_from
    # A rank of a gather quantizes its shard alone; of an all-to-all, all that it sends.
    own = num_elements / ranks if message.operation == "all_gather" else num_elements
    return (own + num_elements) * (_UNQUANTIZED_BYTES + bits / 8)
