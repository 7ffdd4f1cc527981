"""What every test shares: a cache folder of its own, so that no test depends on what was measured on this machine.

What torch compiles (an operator of DeepSpeed's, when its ranks start) stays where it is for the whole machine.
"""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A law holds or not; how long one example takes on a busy machine is no part of it.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

_COMPILED = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torch_extensions" / "tests"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    cache: Path = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", os.environ.get("TORCH_EXTENSIONS_DIR", str(_COMPILED)))
