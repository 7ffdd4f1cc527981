"""An error for people and, where JSON was asked for, for programs."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.text import Text

from planner.errors import DoesNotFit, RunError


def failure_text(message: str) -> RenderableType:
    """Returns the message behind a red `error:`."""
    return Text.assemble(("error: ", "bold red"), message)


def failure_document(error: Exception, exit_code: int, message: str) -> dict[str, Any]:
    """Returns the JSON document in place of an answer: kind, exit code, message and the error's numbers."""
    document: dict[str, Any] = {"kind": type(error).__name__, "exit_code": exit_code, "message": message}
    if isinstance(error, DoesNotFit):
        document["infeasible"] = error.infeasible.model_dump(mode="json")
    if isinstance(error, RunError):
        document["rank"] = error.rank
    return {"error": document}
