"""Finds the largest tensor that forward makes: what to make smaller first where memory is short."""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx

from planner.model_graph import LargestActivation
from planner.trace.record.recording import UNTRACKED, Recording


def largest_activation(recording: Recording, micro_batch_size: int) -> LargestActivation | None:
    """Returns the largest tensor that an operator of forward makes, the first of equal ones; None where there is none.

    Logits are as wide as the result of forward's last product, where that is wider than what it is made of; however
    they are shaped, and of whatever type.

    Args:
        recording: A step.
        micro_batch_size: Its samples.
    """
    made = list(_made(recording))
    if not made:
        return None
    largest = max(made, key=lambda node: int(node.meta["bytes"]))
    shape, dtype = largest.meta["out"]
    head = next((node for node in reversed(made) if node.meta.get("flop")), None)
    are_logits = head is not None and _widens(head) and shape[-1:] == head.meta["out"][0][-1:]
    named = head if are_logits and head is not None else largest
    return LargestActivation(
        module=_operator(named).meta.get("fqn", ""),
        are_logits=are_logits,
        shape=tuple(shape),
        dtype=str(dtype).removeprefix("torch."),
        bytes_per_sample=-(-int(largest.meta["bytes"]) // micro_batch_size),
    )


def _made(recording: Recording) -> Iterator[fx.Node]:
    """Yields the tensors that forward's kernels make, in order of time; views make none."""
    for node in recording.graph.nodes:
        if node.op == "call_function" and "bytes" in node.meta:
            meta = _operator(node).meta
            if meta.get("phase") == "forward" and meta.get("is_kernel"):
                yield node


def _operator(node: fx.Node) -> fx.Node:
    """Returns the operator that a tensor is of, where it is one of several results."""
    operator: fx.Node = node.meta.get("part_of", node)
    return operator


def _widens(product: fx.Node) -> bool:
    """Whether a matrix product makes more than it reads, parameters aside."""
    read = [node.meta.get("bytes", 0) for node in product.all_input_nodes if node.meta.get("storage") != UNTRACKED]
    return product.meta.get("kind_of_work") == "matmul" and product.meta["bytes"] > sum(read)
