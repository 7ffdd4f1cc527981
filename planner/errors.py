"""The tree of errors that reach a user, each with the contract's exit code.

    ShardplanError
    ├── InputError            2  usage or unreadable input
    │   ├── BatchError           the global batch does not divide over the ranks
    │   ├── HostError            the nodes' hosts have no room for the offload that was asked for
    │   └── UnsolvedError        no choice was found, or none proved, in the time or work allowed
    ├── DoesNotFit            3  no strategy fits
    ├── TraceError            4  the model cannot be traced
    └── RunError              5  the run failed

Every text says what is wrong, by how much, and what to try. Numbers are attributes too.
"""

from __future__ import annotations

from planner.plan import Infeasible


class ShardplanError(Exception):
    """What all errors for users have in common: a text for people and an exit code."""

    exit_code = 1


class InputError(ShardplanError):
    """Usage or unreadable input: a missing file, a batch that does not divide, degrees that do not nest."""

    exit_code = 2


class BatchError(InputError):
    """The global batch is none that so many ranks can share; on other numbers of ranks the job may be."""


class HostError(InputError):
    """The offload that was asked for needs more host memory than the nodes have; on more nodes it may not."""


class UnsolvedError(InputError):
    """The solver's limit came first: whether anything fits, or is best, is not known."""


class DoesNotFit(ShardplanError):  # noqa: N818 - reads as the sentence that it is
    """No strategy fits the memory budget; `infeasible` has the numbers."""

    exit_code = 3

    def __init__(self, message: str, infeasible: Infeasible) -> None:
        super().__init__(message)
        self.infeasible = infeasible


class TraceError(ShardplanError):
    """The model cannot be built or traced: which module, why, what to try."""

    exit_code = 4


class RunError(ShardplanError):
    """The run failed: which rank, and its last lines."""

    exit_code = 5

    def __init__(self, message: str, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank
