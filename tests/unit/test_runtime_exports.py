"""What the runtime exports is there, documented, and imported when it is asked for and no sooner."""

import subprocess
import sys

import pytest

import runtime


@pytest.mark.parametrize("name", runtime.__all__)
def test_every_export_is_there_and_documented(name: str) -> None:
    assert getattr(runtime, name).__doc__


def test_exports_are_sorted_and_each_has_its_module() -> None:
    assert runtime.__all__ == sorted(runtime.__all__) == sorted(runtime._MODULES)


def test_the_package_alone_imports_no_torch() -> None:
    script = "import sys, runtime; dir(runtime); print(sorted(m for m in sys.modules if m.split('.')[0] == 'torch'))"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        runtime.nothing  # noqa: B018
