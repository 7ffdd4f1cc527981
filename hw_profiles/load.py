"""Reads a profile by name or path, checks it, and gives it the asked number of nodes and ranks."""

from __future__ import annotations

import difflib
import json
import os
from pathlib import Path

from pydantic import ValidationError

from hw_profiles.devices import DEVICE_TAGS
from hw_profiles.errors import ProfileError
from hw_profiles.resize import resize
from hw_profiles.schema import HardwareProfile

LOCAL_NAME = "local-cpu"
"""The shipped profile that a measured one in the user's cache folder replaces."""

_SHIPPED = Path(__file__).parent


def shipped_names() -> tuple[str, ...]:
    """Returns the names of the shipped profiles, sorted."""
    return tuple(sorted(path.stem for path in _SHIPPED.glob("*.json")))


def user_profile_path() -> Path:
    """Returns where the measured profile of this machine is kept: under XDG_CACHE_HOME, else ~/.cache."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(cache) if cache else Path.home() / ".cache"
    return folder / "shardplan" / f"{LOCAL_NAME}.json"


def load(name_or_path: str | Path, num_nodes: int | None = None, ranks_per_node: int | None = None) -> HardwareProfile:
    """Returns the profile of a shipped name or of a JSON file, with `num_nodes` and `ranks_per_node` if given.

    A name that is shipped comes before a file of that name. `local-cpu` is the measured profile of this machine where
    one is kept (`user_profile_path`), else the shipped one.

    Raises:
        ProfileError: no such name or file, unreadable content, or sizes that the machine cannot have.
    """
    path = _find(name_or_path)
    try:
        profile = read_profile(path)
    except ProfileError as error:
        if path != user_profile_path():
            raise
        mend = f"{error}\nMeasure it again with `shardplan profile`, or remove the file"
        raise ProfileError(mend, key=error.key, value=error.value, expected=error.expected) from error
    return resize(profile, num_nodes, ranks_per_node)


def read_profile(path: Path) -> HardwareProfile:
    """Returns the profile in the JSON file `path`, as it is.

    Raises:
        ProfileError: with the dotted key at fault, its value, and what is expected.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"cannot read the profile {path}: {error}") from error
    try:
        content = json.loads(text, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        raise ProfileError(f"{path} is not JSON: {error.msg} in line {error.lineno}") from error
    except (RecursionError, ValueError) as error:
        raise ProfileError(f"{path} is nested too deep, or has a number that is too long: {error}") from error
    except ProfileError as error:
        raise ProfileError(f"{path}: {error}", key=error.key, expected=error.expected) from error
    try:
        return HardwareProfile.model_validate(content)
    except ValidationError as error:
        raise _profile_error(path, error) from error


def _find(name_or_path: str | Path) -> Path:
    name = str(name_or_path)
    if name == LOCAL_NAME and user_profile_path().is_file():
        return user_profile_path()
    if name in shipped_names():
        return _SHIPPED / f"{name}.json"
    if Path(name).is_file():
        return Path(name)
    shipped = ", ".join(shipped_names())
    near = difflib.get_close_matches(name.lower(), shipped_names(), n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise ProfileError(
        f"no profile {name!r}: it is neither a file nor a shipped name.{hint} Shipped: {shipped}.",
        key="name",
        value=name,
        expected=f"a JSON file or one of {shipped}",
    )


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content: dict[str, object] = {}
    for key, value in pairs:
        if key in content:
            raise ProfileError(f"the key {key!r} stands twice in one object", key=key, expected="each key once")
        content[key] = value
    return content


def _profile_error(path: Path, error: ValidationError) -> ProfileError:
    """Turns pydantic's findings into one error; its attributes are those of the first finding."""
    lines = []
    for finding in error.errors():
        key = _key(finding["loc"])
        # A validator of a whole object reports that object, which is no help to read.
        whole = isinstance(finding["input"], dict) and finding["type"] != "dict_type"
        value = "" if whole else f" (found {finding['input']!r})"
        lines.append(f"{key or 'profile'}: {finding['msg'].removeprefix('Value error, ')}{value}")
    first = error.errors()[0]
    return ProfileError(
        f"{path} is no hardware profile:\n  " + "\n  ".join(lines),
        key=_key(first["loc"]),
        value=first["input"],
        expected=first["msg"].removeprefix("Value error, "),
    )


def _key(place: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in place if part not in DEVICE_TAGS)
