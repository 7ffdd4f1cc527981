"""Reads single values of a DeepSpeed configuration as pydantic does for DeepSpeed 0.19.8, with a mend for the rest."""

from __future__ import annotations

import math
from typing import Any

from planner.errors import InputError


def optional_whole(config: dict[str, Any], key: str) -> int | None:
    """Returns a whole number of at least 1, or None where there is none or "auto".

    Raises:
        InputError: As for `whole`.
    """
    value = config.get(key)
    if value in (None, "auto"):
        return None
    number = whole(value, key)
    if number < 1:
        raise InputError(f"{key}: {number} must be at least 1")
    return number


def whole(value: Any, key: str) -> int:
    """Returns a whole number as DeepSpeed reads it: 5e8 and "500" are numbers, 0.5 and "5e8" are not.

    Raises:
        InputError: What DeepSpeed would refuse; the text says what to write.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{key}: {value!r} is no number; write a whole number") from None
    if not math.isfinite(number):
        raise InputError(f"{key}: {value!r} is no number; write a whole number")
    if not number.is_integer() or (isinstance(value, str) and not value.strip().lstrip("+-").isdigit()):
        raise InputError(
            f"{key}: DeepSpeed refuses {value!r}, which is not written as a whole number; write {int(number)}"
        )
    if number < 0:
        raise InputError(f"{key}: {value!r} is negative; DeepSpeed wants 0 or more")
    return int(value)


def flag(value: Any, key: str) -> bool:
    """Returns true or false as DeepSpeed reads them.

    Raises:
        InputError: Neither.
    """
    words = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False, "on": True, "off": False}
    found = words.get(str(value).lower())
    if found is None:
        raise InputError(f"{key}: {value!r} is neither true nor false; write true or false")
    return found


def leaf_module(value: Any, key: str) -> dict[str, tuple[str, ...]]:
    """Returns the settings of `leaf_module` as `Knobs` names them; what is left out keeps DeepSpeed's default.

    Source: `DeepSpeedZeroLeafModuleConfig`, deepspeed/runtime/zero/leaf_module_config.py, 0.19.8.

    Raises:
        InputError: Not a section of lists of names.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError(f"{key}: {value!r} is no section; write {{'classes': ['NameOfTheClass']}}")
    known = ("classes", "names", "name_suffixes")
    found: dict[str, tuple[str, ...]] = {}
    for name, entries in value.items():
        if name not in known:
            raise InputError(f"{key}.{name}: DeepSpeed has no such key and refuses it; it has {', '.join(known)}")
        listed = [entries] if isinstance(entries, str) else entries
        if not isinstance(listed, list) or not all(isinstance(entry, str) for entry in listed):
            raise InputError(f"{key}.{name}: {entries!r} is no list of names; write ['NAME', ...]")
        found[f"leaf_{name}"] = tuple(dict.fromkeys(listed))
    return found
