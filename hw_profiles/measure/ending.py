"""How a measurement ended that did not end well: one answer for all ranks, made of what each of them knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

USAGE, FAILED = 2, 5
"""Exit codes of the contract."""


class Answer(BaseModel):
    """What one rank says when the roll is called."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int = 0
    """How many steps the rank has begun; all ranks take the same steps."""
    doing: str = ""
    failure: str = ""
    """The rank's own error, of which the others know nothing."""
    is_usage: bool = False
    """Whether that error is the user's to mend."""
    lost: str = ""
    """What the rank saw of others' failure: a closed connection, a message that did not come."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The text for people and the exit code, and which ranks are at fault."""

    message: str
    exit_code: int
    ranks: tuple[int, ...]


def ending(answers: Mapping[int, Answer], world_size: int) -> Ending:
    """Returns how a measurement of `world_size` ranks ended, by the answers of those that answered."""
    usage = [rank for rank in sorted(answers) if answers[rank].is_usage]
    if usage:
        return Ending(answers[usage[0]].failure, USAGE, tuple(usage))
    missing = tuple(rank for rank in range(world_size) if rank not in answers)
    failed = tuple(rank for rank in sorted(answers) if answers[rank].failure)
    doing = next((answers[rank].doing for rank in sorted(answers) if answers[rank].doing), "")
    at = f" while measuring {doing}" if doing else ""
    parts = []
    if missing:
        verb = "does" if len(missing) == 1 else "do"
        parts.append(f"{ranks_text(missing)} {verb} not answer any more{at}: ended or stopped from outside, or hanging")
    parts += [f"rank {rank} failed{at}: {answers[rank].failure}" for rank in failed]
    if parts:
        return Ending("\n".join(parts), FAILED, (*missing, *failed))
    return _all_answer(answers, at)


def _all_answer(answers: Mapping[int, Answer], at: str) -> Ending:
    lost = next((answer.lost for answer in answers.values() if answer.lost), "")
    least, most = (pick(answer.step for answer in answers.values()) for pick in (min, max))
    behind = tuple(rank for rank in sorted(answers) if answers[rank].step == least)
    if least < most:
        return Ending(f"{ranks_text(behind)} hung{at}, and the others waited in vain: {lost}", FAILED, behind)
    return Ending(f"all ranks answer, but a message between them was lost{at}: {lost}", FAILED, ())


def ranks_text(ranks: tuple[int, ...]) -> str:
    """Returns `rank 3`, or `ranks 1, 2 and 5`; of many, the first few."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = [str(rank) for rank in ranks[:8]]
    rest = f"{len(ranks) - 8} more" if len(ranks) > 8 else shown.pop()
    return f"ranks {', '.join(shown)} and {rest}"
