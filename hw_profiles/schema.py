"""The hardware profile: what is known of a machine, and where each number is from. SI units."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Literal, Self, get_args

from pydantic import (
    Discriminator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Tag,
    model_validator,
)

from costmodels.degrees import fill
from hw_profiles.devices import Device, Frozen, Host, Precision, UnknownDevice, whether_known
from hw_profiles.errors import ProfileError

Operation = Literal["all_gather", "reduce_scatter", "all_reduce", "reduce", "broadcast", "all_to_all"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
Algorithm = Literal["port", "ring", "tree", "hierarchical", "ho_ring", "direct", "ring_all_reduce", "ring_then_gather"]
"""How an operation is run, by the names of `costmodels.algorithms`, which has their formulas."""


class Level(Frozen):
    """One layer of the hierarchy: `size` units of the level below (ranks for the innermost), joined by links."""

    name: str
    size: PositiveInt
    unit_bytes_per_s: PositiveFloat
    """Bytes per second that can enter one unit (one rank at the innermost level, one node at the level above nodes),
    one direction, over all its links of this level."""
    alpha_s: NonNegativeFloat
    """Seconds per start-up of a message over this level."""
    efficiency: dict[Operation, PositiveFloat] = Field(default_factory=dict)
    """Part of `unit_bytes_per_s` that an operation reaches on large messages; 1 where not given. More than 1 where a
    switch reduces in the network (NVLink SHARP)."""
    startup: dict[Operation, PositiveFloat] = Field(default_factory=dict)
    """What a start-up of an operation takes, in units of `alpha_s`; 1 where not given."""
    is_mesh: bool = False
    """True where each unit has a link of its own to each of the others, and no switch: a group that spans u of the
    level's units then has (u-1) / (size-1) of the bandwidth."""


class CurvePoint(Frozen):
    """Seconds of one collective of `bytes` (the full message, before sharding)."""

    bytes: PositiveInt
    seconds: PositiveFloat
    """The mean of the middle half, where more than one was timed."""
    repetitions: PositiveInt | None = None
    spread: NonNegativeFloat | None = None
    """Interquartile range of the repetitions over their median."""


class Curve(Frozen):
    """Measured seconds of an operation over one kind of group, all groups of that kind running at once."""

    operation: Operation
    degree_from: PositiveInt
    degree_to: PositiveInt
    points: tuple[CurvePoint, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _is_sorted(self) -> Self:
        for before, after in pairwise(self.points):
            if before.bytes >= after.bytes:
                raise ValueError(f"points must be sorted by bytes, each once: {after.bytes} after {before.bytes}")
        return self


class Link(Frozen):
    """A wire of one node, one direction. A vertex is a rank by its number (`0`), or a switch by its name."""

    source: str
    target: str
    bytes_per_s: PositiveFloat


class Pair(Frozen):
    """What one rank was measured to send to another while all other ranks are silent."""

    source: NonNegativeInt
    target: NonNegativeInt
    bytes_per_s: PositiveFloat
    """On a large message."""
    latency_s: PositiveFloat
    """Seconds of the smallest message."""


class MessageFactor(Frozen):
    """What runs found messages of one size to take, over what the rest of the profile says."""

    operation: Operation
    degree_from: PositiveInt
    degree_to: PositiveInt
    bytes: PositiveInt
    """The full message, before sharding."""
    factor: PositiveFloat


class ComputeFactor(Frozen):
    """What runs found the compute of a model to take, over what the device's figures say."""

    model: str
    num_params: PositiveInt
    precision: Precision
    factor: PositiveFloat


class Calibration(Frozen):
    """What runs corrected. It holds for the messages and the models of these runs, and touches nothing else."""

    messages: tuple[MessageFactor, ...] = ()
    compute: tuple[ComputeFactor, ...] = ()

    @model_validator(mode="after")
    def _has_each_once(self) -> Self:
        kinds = [(each.operation, each.degree_from, each.degree_to, each.bytes) for each in self.messages]
        models = [(each.model, each.num_params, each.precision) for each in self.compute]
        for name, keys in (("messages", kinds), ("compute", models)):
            if len(set(keys)) < len(keys):
                raise ValueError(f"calibration.{name} has two factors for one of {sorted(map(str, keys))}")
        return self

    def compute_factor(self, model: str, num_params: int, precision: Precision) -> float:
        """Returns the factor of a model's compute; 1 where no run of it was folded in."""
        key = (model, num_params, precision)
        found = (each.factor for each in self.compute if (each.model, each.num_params, each.precision) == key)
        return next(found, 1.0)


class HardwareProfile(Frozen):
    """A machine. `levels` inner first; the product of their sizes is the number of ranks."""

    schema_version: Literal[1] = 1
    name: str
    description: str
    device: Annotated[
        Annotated[Device, Tag("known")] | Annotated[UnknownDevice, Tag("unknown")], Discriminator(whether_known)
    ]
    host: Host | None = None
    """None where nothing is known of it: topology dumps and benchmarks of collectives do not tell."""
    levels: tuple[Level, ...] = Field(min_length=1)
    """The last level's size is the default number of its units; `--nodes` replaces it."""
    node_level: NonNegativeInt
    """Index of the outermost level inside a node: ranks per node is the product of sizes up to and with it."""
    logical: bool = False
    """True where ranks and nodes are processes of one machine that share its cores: their numbers are free, and each
    rank's speed falls with their number."""
    transport: str = ""
    """What carries the messages, and over which interface; "" where the profile is of no one network."""
    algorithms: dict[Operation, tuple[Algorithm, ...]] = Field(default_factory=dict)
    """How each operation is run where it was not measured, the fastest of those given; `port`, the least that must
    enter a unit, if not given."""
    calls_s: dict[Operation, NonNegativeFloat] = Field(default_factory=dict)
    """Seconds that a call of an operation takes besides its start-ups, however few its ranks; 0 where not given."""
    startups_hidden: float | None = Field(default=None, ge=0, le=1)
    """Part of the lesser of a collective's start-ups and transfer that hides behind the greater: 0 where each step
    of it waits for both, towards 1 where other messages fill the gaps."""
    curves: tuple[Curve, ...] = ()
    pairs: tuple[Pair, ...] = ()
    links: tuple[Link, ...] = ()
    """The wires inside one node, where they are known."""
    calibration: Calibration | None = None
    """What runs corrected; None: nothing."""
    warnings: tuple[str, ...] = ()
    """What was odd in what the profile was made from: for people."""
    sources: dict[str, str]
    """Where each number is from: a dotted path (`device.memory_bytes`, `levels.0`) to a text. A path covers all below
    it; every number of the profile must be covered, but for `schema_version` and `node_level`."""

    @property
    def known_device(self) -> Device:
        """The device with its figures.

        Raises:
            ProfileError: none are known.
        """
        if isinstance(self.device, Device):
            return self.device
        raise ProfileError(
            f"{self.name}: nothing is known of its device ({self.device.name}), neither memory nor speed; make the "
            "profile again with `--like NAME`, a shipped profile of that device, or measure with `shardplan profile`",
            key="device",
            value=self.device.name,
            expected="a device with its figures",
        )

    @property
    def known_host(self) -> Host:
        """The host with its figures.

        Raises:
            ProfileError: none are known.
        """
        if self.host is not None:
            return self.host
        raise ProfileError(
            f"{self.name}: nothing is known of its nodes' hosts, neither memory nor links; make the profile again with "
            "`--like NAME`, a shipped profile of such a node, or measure with `shardplan profile`",
            key="host",
            expected="a host with its figures",
        )

    @property
    def world_size(self) -> int:
        """Ranks of the whole machine."""
        return math.prod(level.size for level in self.levels)

    @property
    def ranks_per_node(self) -> int:
        """Ranks of one node."""
        return math.prod(level.size for level in self.levels[: self.node_level + 1])

    @property
    def num_nodes(self) -> int:
        """Nodes of the whole machine."""
        return self.world_size // self.ranks_per_node

    @model_validator(mode="after")
    def _has_its_node_level(self) -> Self:
        if self.node_level >= len(self.levels):
            raise ValueError(f"node_level {self.node_level} must be an index of levels, 0 to {len(self.levels) - 1}")
        return self

    @model_validator(mode="after")
    def _has_legal_curves(self) -> Self:
        sizes = [level.size for level in self.levels]
        kinds: set[tuple[str, int, int]] = set()
        for index, curve in enumerate(self.curves):
            kind = (curve.operation, curve.degree_from, curve.degree_to)
            if curve.degree_from >= curve.degree_to or curve.degree_to % curve.degree_from:
                raise ValueError(f"curves.{index}: degree_from {kind[1]} must divide degree_to {kind[2]} and be less")
            for degree in kind[1:]:
                if fill(sizes, degree) is None:
                    raise ValueError(f"curves.{index}: degree {degree} is no prefix fill of the levels' sizes {sizes}")
            if kind in kinds:
                raise ValueError(f"curves.{index}: {kind} has a curve already")
            kinds.add(kind)
        return self

    @model_validator(mode="after")
    def _has_a_source_for_every_number(self) -> Self:
        for path in _number_paths(self.model_dump(exclude={"schema_version", "node_level", "sources"}), ""):
            parts = path.split(".")
            if not any(".".join(parts[:end]) in self.sources for end in range(1, len(parts) + 1)):
                raise ValueError(f"sources has no entry for {path} (nor for a path above it)")
        return self


def _number_paths(value: object, path: str) -> Iterator[str]:
    """Yields the dotted path of every number inside dumped `value`."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _number_paths(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from _number_paths(inner, f"{path}.{index}")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path
