"""AMSP's choices beside ours: uniform (p, g, o) of the ideal schedule on its cluster, with nothing fitted.

The cluster: 8 A800 to a node, NVLink at 200 GB/s, 4 x 200 Gb/s between nodes; the device is the shipped A100-80GB,
which differs from an A800 by its NVLink alone. The batch is AMSP's: 1,024 sequences of 4,096 tokens, micro-batch 1, so
M = 1 on 128 nodes; recomputation for 30B alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from decisions import changed, traced
from decoder import published

from costmodels.degrees import legal_degrees, nests
from costmodels.fsdp import FSDP
from costmodels.strategy import Strategy
from planner.choose.compete import table_of
from planner.choose.setting import Setting, setting
from planner.job import Job
from planner.simulate.simulate import simulate

MODELS = ("llama-7b", "llama-13b", "llama-30b")
NODES = (8, 128)
GLOBAL_BATCH_SIZE = 1024
Degrees = tuple[int, int, int]


@dataclass(frozen=True)
class Choice:
    """One model on one number of nodes; seconds of a step and bytes at its peak, by degrees."""

    model: str
    num_ranks: int
    num_micro_batches: int
    costs: tuple[tuple[Degrees, float, int], ...]
    budget_bytes: int

    @property
    def theirs(self) -> tuple[Degrees, float, int]:
        """What AMSP chose."""
        row = published()["amsp_table4"][self.model]
        degrees = tuple(int(row[state][0] * row[state][1]) for state in ("p", "g", "os"))
        return self.at(degrees)

    @property
    def ours(self) -> tuple[Degrees, float, int]:
        """The fastest that fits."""
        return min((cost for cost in self.costs if cost[2] <= self.budget_bytes), key=lambda cost: cost[1])

    @property
    def slower(self) -> float:
        """How much slower than ours theirs is, as a part of ours."""
        return self.theirs[1] / self.ours[1] - 1

    @property
    def zero_3(self) -> tuple[Degrees, float, int]:
        """Everything sharded over all ranks."""
        return self.at((self.num_ranks,) * 3)

    @property
    def worst_slower(self) -> float:
        """How much slower than ours the slowest is that fits."""
        return max(cost[1] for cost in self.costs if cost[2] <= self.budget_bytes) / self.ours[1] - 1

    def at(self, degrees: tuple[int, ...]) -> tuple[Degrees, float, int]:
        """Returns the costs of these degrees."""
        return next(cost for cost in self.costs if cost[0] == degrees)


@cache
def choice(model: str, num_nodes: int, overlap: float = 1.0) -> Choice:
    """Returns the costs of all of AMSP's space: p | g | o, each inside a node or of whole nodes.

    Args:
        model: of `MODELS`.
        num_nodes: of eight ranks.
        overlap: 1: compute hides what it can; 0: it hides nothing, so that every byte counts.
    """
    asked = _asked(model, num_nodes, overlap)
    num_ranks = asked.machine.world_size
    legal = legal_degrees(asked.machine.level_sizes)
    space = [
        Strategy(p, p, g, o) for p in legal for g in legal for o in legal if nests(p, g, o, num_ranks) and g % p == 0
    ]
    table = table_of(asked, FSDP, space)
    costs = tuple(
        (option.strategy.degrees, option.step_ns(recomputed) / 1e9, option.peak_bytes(recomputed))
        for option in table.options
        for recomputed in option.recomputations()
    )
    return Choice(model, num_ranks, asked.shapes[0].num_micro_batches, costs, asked.budget_bytes)


def timeline_s(model: str, num_nodes: int, degrees: Degrees) -> float:
    """Returns the seconds of a step as it is played through, message by message, with all the overlap there is."""
    asked = _asked(model, num_nodes, 1.0)
    workload, shape = asked.workload, asked.shapes[0]
    p, g, o = degrees
    assignment = (Strategy(p, p, g, o, "full" if asked.job.recompute == "full" else "none"),) * workload.num_classes
    schedule = FSDP.schedule(workload, assignment, shape)
    return simulate(workload, schedule, assignment, shape, asked.machine).step_ns / 1e9


def _asked(model: str, num_nodes: int, overlap: float) -> Setting:
    profile = changed("hgx-a100-80gb-roce4", num_nodes, {0: 200e9, 1: 100e9}, overlap=overlap)
    recompute = "full" if model == "llama-30b" else "none"
    job = Job(global_batch_size=GLOBAL_BATCH_SIZE, micro_batch_size=1, recompute=recompute, engine="fsdp")
    return setting(traced(model), profile, job)
