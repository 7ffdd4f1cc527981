"""All entries of the zoo by name, in the order of their files."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from tests.zoo import (
    adapters,
    constructs,
    decoders,
    detectors,
    diffusion,
    encoders,
    image_and_text,
    images,
    mixtures,
    plain,
    recurrences,
    series,
    sounds,
    timm_models,
    translators,
    two_towers,
)
from tests.zoo import held_out as held_out_models
from tests.zoo.entry import Entry

_TUNED = (
    decoders,
    mixtures,
    recurrences,
    encoders,
    translators,
    images,
    detectors,
    sounds,
    two_towers,
    image_and_text,
    series,
    diffusion,
    adapters,
    timm_models,
    plain,
    constructs,
)
_HELD_OUT: tuple[ModuleType, ...] = (held_out_models,)


def entries() -> dict[str, Entry]:
    """Returns every entry by its name; no two files use one name twice."""
    found: dict[str, Entry] = {}
    for module in (*_TUNED, *_HELD_OUT):
        for name, entry in _entries_of(module).items():
            if name in found:
                raise ValueError(f"two entries of the zoo have the name {name}")
            found[name] = entry
    return found


def held_out() -> frozenset[str]:
    """Returns the names of the entries that nothing was ever tuned on."""
    return frozenset(name for module in _HELD_OUT for name in _entries_of(module))


def spec(name: str) -> str:
    """Returns the MODEL that names the entry on the command line, as an absolute path."""
    for module in (*_TUNED, *_HELD_OUT):
        if name in _entries_of(module):
            return f"{Path(str(module.__file__)).resolve()}:{name}"
    raise KeyError(name)


def _entries_of(module: ModuleType) -> dict[str, Entry]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Entry)}
