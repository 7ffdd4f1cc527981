"""Pages that a command writes are what the command would write now."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_formulas_is_printed_from_the_code() -> None:
    written = runpy.run_path(str(DOCS / "write_formulas.py"))["page"]()
    assert (DOCS / "formulas.md").read_text(encoding="utf-8") == written


def test_the_tables_of_machines_are_written_from_the_profiles_and_the_models() -> None:
    written = runpy.run_path(str(DOCS / "write_machines.py"))["page"]()
    assert (DOCS / "machines.md").read_text(encoding="utf-8") == written
