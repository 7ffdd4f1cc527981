"""Checks that a plan, which somebody may have written or changed by hand, can be run."""

from __future__ import annotations

from runtime.fsdp.strategies import BlockStrategy, ShardingPlan
from runtime.ranks import LaunchError


def check_plan(plan: ShardingPlan) -> None:
    """Returns if degrees nest, and every block has one strategy.

    Raises:
        LaunchError: A degree does not divide what it must, or a block is named twice; the text has both numbers.
    """
    if plan.num_micro_batches < 1:
        raise LaunchError(f"a step of {plan.num_micro_batches} micro-batches: it needs one at least")
    if plan.prefetch < 0:
        raise LaunchError(f"a prefetch of {plan.prefetch} blocks: it is 0 or more")
    named: set[str] = set()
    for strategy in plan.strategies:
        for reason in _wrong(strategy, plan.world_size):
            raise LaunchError(f"the strategy of {_blocks(strategy)} cannot run: {reason}")
        for block in strategy.blocks:
            if block in named:
                raise LaunchError(f"the plan has two strategies for the block {block!r}: leave one")
            named.add(block)


def _wrong(strategy: BlockStrategy, world_size: int) -> list[str]:
    p, s, g, o = (
        strategy.param_degree,
        strategy.secondary_degree,
        strategy.grad_degree,
        strategy.optim_degree,
    )
    named = (("param", p), ("secondary", s), ("grad", g), ("optim", o))
    found = [f"{name} degree {degree} is less than 1" for name, degree in named if degree < 1]
    if found:
        return found
    if world_size % o:
        found.append(f"optim degree {o} does not divide {world_size} ranks")
    found += [f"{name} degree {degree} does not divide the optim degree {o}" for name, degree in named if o % degree]
    if p % g and g % p:
        found.append(f"neither of param degree {p} and grad degree {g} divides the other")
    if p % s:
        found.append(f"secondary degree {s} does not divide the param degree {p}")
    if strategy.hierarchical and (strategy.quantized_weights or strategy.quantized_gradients):
        found.append("quantized messages go their own way through the levels: set hierarchical to false")
    return found


def _blocks(strategy: BlockStrategy) -> str:
    if not strategy.blocks:
        return "no block"
    first = strategy.blocks[0] or "the root"
    rest = len(strategy.blocks) - 1
    return first if rest == 0 else f"{first} and {rest} more"
