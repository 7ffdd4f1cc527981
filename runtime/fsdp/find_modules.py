"""Finds the modules and the parameters of each block that a plan names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from runtime.fsdp.strategies import BlockStrategy
from runtime.ranks import LaunchError


@dataclass(frozen=True, slots=True)
class BlockModules:
    """A block of a model."""

    name: str
    """Its module's path; "" is the root."""
    strategy: BlockStrategy
    modules: tuple[str, ...]
    """Its module, and those beyond it that use its parameters too (tied ones): all are hooked as one."""
    parameters: tuple[str, ...]
    """First names of the parameters that it owns, in the model's order."""
    is_borrowed: bool = False
    """Whether a module uses its parameters that cannot be hooked with it: it is a block itself, or around this one."""

    @property
    def depth(self) -> int:
        """Modules around it: inner blocks are sharded before outer ones."""
        return self.name.count(".") + 1 if self.name else 0


def find_modules(model: nn.Module, strategies: Sequence[BlockStrategy]) -> tuple[BlockModules, ...]:
    """Returns the blocks in the order of the model's parameters; those without parameters are left out.

    A parameter belongs to the innermost block around its first name.

    Raises:
        LaunchError: The model has no module of a block's name, or a parameter that belongs to no block.
    """
    strategy_of = {name: strategy for strategy in strategies for name in strategy.blocks}
    for name in strategy_of:
        try:
            model.get_submodule(name)
        except AttributeError as error:
            raise LaunchError(
                f"the plan has a block {name!r}, and the model has no such module: it is the plan of another model"
            ) from error
    names: dict[nn.Parameter, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    owned: dict[str, list[str]] = {}
    beyond: dict[str, dict[str, None]] = {}
    for first, *aliases in names.values():
        block = _block_of(first, strategy_of)
        if block is None:
            raise LaunchError(f"the parameter {first} belongs to no block of the plan: it is the plan of another model")
        owned.setdefault(block, []).append(first)
        for alias in aliases:
            holder = alias.rpartition(".")[0]
            if not _is_within(holder, block) and not _same(model, holder, first.rpartition(".")[0]):
                beyond.setdefault(block, {}).setdefault(holder)
    found = []
    taken = dict.fromkeys(owned)
    for name, parameters in owned.items():
        users = tuple(beyond.get(name, ()))
        is_borrowed = any(user in taken or _is_within(name, user) for user in users)
        modules = (name,) if is_borrowed else (name, *users)
        taken.update(dict.fromkeys(modules))
        found.append(BlockModules(name, strategy_of[name], modules, tuple(parameters), is_borrowed))
    return tuple(found)


def _block_of(parameter: str, strategy_of: dict[str, BlockStrategy]) -> str | None:
    path = parameter
    while path:
        path = path.rpartition(".")[0]
        if path in strategy_of:
            return path
    return None


def _is_within(module: str, block: str) -> bool:
    return not block or module == block or module.startswith(f"{block}.")


def _same(model: nn.Module, one: str, other: str) -> bool:
    """Two names may be of one module."""
    return model.get_submodule(one) is model.get_submodule(other)
