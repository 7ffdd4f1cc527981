"""What `explain` answers: formulas with their numbers, or two plans beside each other."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Line(_Frozen):
    """One figure of a plan, and how it comes about."""

    name: str
    formula: str = ""
    """With letters; empty where the figure is given."""
    substituted: str = ""
    """The same with numbers."""
    value: float
    unit: Literal["bytes", "s", "tokens/s", "samples/s", ""]
    source: str = ""


class Section(_Frozen):
    """Figures of one kind."""

    title: str
    lines: tuple[Line, ...]


class Explanation(_Frozen):
    """A plan's figures, section by section."""

    sections: tuple[Section, ...]


class Difference(_Frozen):
    """One figure of two plans."""

    name: str
    chosen: float
    other: float
    unit: Literal["bytes", "s"]


class Comparison(_Frozen):
    """Why one strategy was chosen over another."""

    chosen_name: str
    other_name: str
    reason: Literal["memory", "engine", "time", "tie", "same", "faster"]
    """What decided: the other does not fit, cannot be run by the chosen plan's engine, or is slower. `tie`: it is as
    fast. `same`: it is the plan. `faster`: it would be faster, so the plan was not free to choose it or was made with
    another machine."""
    verdict: str
    """The reason as a sentence with its numbers."""
    chosen_peak_phase: str
    other_peak_phase: str
    """When in the step each has its peak: components of two moments are not parts of one sum."""
    memory: tuple[Difference, ...]
    time: tuple[Difference, ...]
    traffic: tuple[Difference, ...]
