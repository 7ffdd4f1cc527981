"""What `accuracy_and_regret.py` runs: clusters of links of several speeds, models, and numbers of micro-batches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_EXAMPLES = Path(__file__).parents[1] / "examples"
_MODELS = Path(__file__).parent / "small_models.py"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes of some ranks, joined by links of given speeds in 10^6 bits per second."""

    num_nodes: int
    ranks_per_node: int
    inside_mbit: int
    between_mbit: int
    num_racks: int = 1
    racks_mbit: int = 0

    @property
    def name(self) -> str:
        """Unique, and fit for a file's name."""
        racks = f"-{self.num_racks}racks-{self.racks_mbit}" if self.num_racks > 1 else ""
        return f"{self.num_nodes}x{self.ranks_per_node}-{self.inside_mbit}-{self.between_mbit}{racks}"

    @property
    def is_slow(self) -> bool:
        """Whether nodes are joined by links of a tenth of what is inside them, or less."""
        return self.between_mbit * 10 <= self.inside_mbit


@dataclass(frozen=True, slots=True)
class Model:
    """A MODEL of the command with its arguments."""

    name: str
    spec: str
    arguments: tuple[str, ...] = ()
    sequence_length: int | None = None
    micro_batch_size: int = 1
    precision: str = "fp32"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A model on a cluster."""

    cluster: Cluster
    model: Model
    num_micro_batches: int

    @property
    def name(self) -> str:
        """Unique, and fit for a file's name."""
        return f"{self.cluster.name}-{self.model.name}-M{self.num_micro_batches}"


GPT = Model("gpt-10m", f"{_EXAMPLES}/gpt.py:gpt", ("width=256", "depth=8", "heads=4", "vocab=8192"), 64)
GPT_LARGE = Model("gpt-60m", f"{_EXAMPLES}/gpt.py:gpt", ("width=512", "depth=8", "vocab=32768"), 32)
MIXTURE = Model("moe-12m", f"{_MODELS}:mixture", (), 64)
CNN = Model("cnn-11m", f"{_MODELS}:cnn", (), None, 4)

SLOW_2X2 = Cluster(2, 2, 3000, 300)
MIDDLE_2X2 = Cluster(2, 2, 3000, 600)
FAST_2X2 = Cluster(2, 2, 3000, 1000)
SLOW_2X4 = Cluster(2, 4, 3000, 300)
FAST_2X4 = Cluster(2, 4, 3000, 1000)
SLOW_4X2 = Cluster(4, 2, 3000, 300)
FAST_4X2 = Cluster(4, 2, 3000, 1000)
RACKS = Cluster(4, 2, 3000, 1000, 2, 300)

SCENARIOS = (
    *(
        Scenario(cluster, model, number)
        for number in (1, 4)
        for cluster in (SLOW_2X2, FAST_2X2, MIDDLE_2X2)
        for model in (GPT, MIXTURE, CNN)
    ),
    *(Scenario(cluster, GPT_LARGE, 1) for cluster in (SLOW_2X2, FAST_2X2)),
    *(
        Scenario(cluster, model, number)
        for number in (1, 4)
        for cluster in (SLOW_2X4, SLOW_4X2, RACKS, FAST_2X4, FAST_4X2)
        for model in (GPT, MIXTURE, CNN)
    ),
)
"""In the order in which they are worth measuring."""
