"""Tensors that functions keep by `functools.lru_cache` (grids of positions, anchors): forgotten between runs.

What a run on fake tensors leaves in such a cache must not reach another run, fake or real; and a run that finds a
result there does other operators than one that does not.
"""

from __future__ import annotations

import functools
import gc
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

_Cache = functools._lru_cache_wrapper
_misses: dict[int, int] = {}
"""Of each cache by its identity, when it was last looked into: what is in it now came by misses."""
_known: list[Any] = []


def find_caches() -> None:
    """Looks through all objects for caches, which takes a while: to be called when code may have been loaded."""
    # Every instance refers to its type. `gc.get_objects` would hold the tuples that other threads build just now, too,
    # and their `tuple(generator)` would then fail with a SystemError (bugs.python.org, issue 15108).
    _known[:] = [found for found in gc.get_referrers(_Cache) if type(found) is _Cache]


def forget_cached_tensors() -> None:
    """Clears every cache of `functools` that was found and holds a tensor among its keys or results."""
    for cache in _known:
        info = cache.cache_info()
        if info.currsize and _misses.get(id(cache)) != info.misses:
            if _holds_tensors(cache):
                cache.cache_clear()
            _misses[id(cache)] = cache.cache_info().misses


def _holds_tensors(cache: Any) -> bool:
    # The collector is told of keys and results one by one, or of the dictionary where their number is not bounded.
    return any(isinstance(leaf, torch.Tensor) for item in gc.get_referents(cache) for leaf in _leaves(item))


def _leaves(item: Any) -> list[Any]:
    return tree_leaves(list(item.values())) if type(item) is dict else tree_leaves(item)
