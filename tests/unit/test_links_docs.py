"""The example in docs/links.md prints what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "links.md"


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    return str(found)


def test_the_example_prints_what_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "links.json").write_text(block("json"), encoding="utf-8")
    command = [sys.executable, "-c", block("python")]
    done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == block("text")
