"""Parameter groups of a model, as an optimizer of slices takes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from runtime.ranks import LaunchError


def slice_groups(
    params: Iterable[Any] | None, slices: Mapping[str, nn.Parameter], model: nn.Module
) -> list[dict[str, Any]]:
    """Returns the groups with slices in the place of parameters; frozen parameters are left out.

    Args:
        params: Parameters, their names, or groups of either with their options; None: all that are trained.
        slices: What this rank updates of each trained parameter, by name.
        model: Whose parameters they are.

    Raises:
        LaunchError: One is no parameter of the model.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    known = dict.fromkeys(names.values())
    given: Sequence[Any] = list(slices) if params is None else list(params)
    groups = given if given and isinstance(given[0], dict) else [{"params": given}]
    found = []
    for group in groups:
        listed = [group["params"]] if isinstance(group["params"], Tensor | str) else list(group["params"])
        named = [each if isinstance(each, str) else names.get(id(each)) for each in listed]
        for each, name in zip(listed, named, strict=True):
            if name not in known:
                raise LaunchError(
                    f"{each if isinstance(each, str) else 'a tensor'} is no parameter of the sharded model: take "
                    "parameters from model.parameters() after shard(), or give their names"
                )
        found.append({**group, "params": [slices[name] for name in named if name is not None and name in slices]})
    return found
