"""Reads a machine from what people have: a topology dump, benchmark outputs, a JSON of links."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from hw_profiles.errors import ProfileError
from hw_profiles.read.collective_run import CollectiveRun
from hw_profiles.read.machine_curves import curves_of
from hw_profiles.read.machine_device import ChosenDevice, choose_device
from hw_profiles.read.machine_levels import algorithms_of, read_levels
from hw_profiles.read.machine_links import NodeLinks, node_links
from hw_profiles.read.machine_shape import Shape, find_shape
from hw_profiles.read.read_collectives import read_collectives
from hw_profiles.read.read_topology import read_topology
from hw_profiles.read.terminal_text import read_text
from hw_profiles.read.topology import Topology
from hw_profiles.schema import OPERATIONS, HardwareProfile, Link, Operation


def read_machine(
    topology: Path | None,
    collectives: tuple[Path, ...],
    links: Path | None,
    *,
    levels: tuple[int, ...] | None = None,
    num_nodes: int | None = None,
    like: str | None = None,
) -> HardwareProfile:
    """Returns the profile of what the files say, each number with its source.

    Args:
        topology: a dump of one node's topology.
        collectives: outputs of nccl-tests or rccl-tests, of one node and of more; `OPERATION=FILE` where the output
            does not say of which operation it is.
        links: a JSON of the links inside one node; comes before those of `topology`.
        levels: sizes inner first, in place of those found.
        num_nodes: in place of the most nodes of any run.
        like: a profile whose device, host and network serve where the files do not say.

    Raises:
        ProfileError: a file that cannot be read, or files that contradict each other.
    """
    runs, notes = _runs(collectives)
    # Read once: it may be a pipe. The device, which the vendor is needed for, tells how fast the links are.
    text = read_text(topology) if topology is not None else ""
    file_name = topology.name if topology is not None else ""
    dump = read_topology(text, name=file_name) if topology is not None else None
    chosen = choose_device(runs, like, dump.vendor if dump else None)
    if topology is not None and chosen.device.name:
        dump = read_topology(text, chosen.device.name, file_name)
    node = node_links(dump, topology, links)
    graph_name = node.file if node is not None else ""
    shape = find_shape(node, runs, levels, num_nodes, chosen.like)
    measured = curves_of(runs, shape)
    if runs and not measured.curves and node is None:
        raise ProfileError("no file can be used:\n  " + "\n  ".join(measured.warnings), key="collectives")
    found = read_levels(shape, node, measured, chosen.like)
    wires = _wires(node, shape)
    return HardwareProfile(
        name=_name(chosen, shape, graph_name, runs),
        description=_description(chosen, shape, graph_name, measured.files),
        device=chosen.device,
        host=chosen.like.host if chosen.like else None,
        levels=found.levels,
        node_level=len(shape.inner) - 1,
        transport=_transport(runs),
        algorithms=dict(algorithms_of(measured.curves, chosen.like)),
        calls_s=found.calls_s,
        startups_hidden=found.startups_hidden,
        curves=measured.curves,
        links=wires,
        warnings=tuple(
            dict.fromkeys(
                [
                    *(dump.warnings if dump else ()),
                    *shape.notes,
                    *notes,
                    *(note for run in runs for note in run.notes),
                    *measured.warnings,
                    *_sockets(runs),
                    *chosen.warnings,
                    *found.warnings,
                ]
            )
        ),
        sources={
            **chosen.sources,
            **found.sources,
            **({"links": node.source} if node is not None and wires else {}),
            **_cards(dump, topology),
            **{f"curves.{index}": text for index, text in enumerate(measured.sources)},
        },
    )


def _runs(collectives: Sequence[Path]) -> tuple[tuple[CollectiveRun, ...], tuple[str, ...]]:
    """Returns the runs of all files. A file of another kind of operation is left out, if any other can be used."""
    runs: list[CollectiveRun] = []
    notes: list[str] = []
    refused: ProfileError | None = None
    for path in collectives:
        file, operation = _with_operation(path)
        try:
            found, more = read_collectives(file, operation)
        except ProfileError as error:
            if error.key != "program":
                raise
            refused = refused or error
            notes.append(str(error).split(". ")[0])
            continue
        runs += found
        notes += more
    if refused is not None and not runs:
        raise refused
    return tuple(runs), tuple(notes)


def _with_operation(path: Path) -> tuple[Path, Operation | None]:
    """Splits `all_gather=FILE`."""
    name, equals, rest = str(path).partition("=")
    operation = next((each for each in OPERATIONS if each == name), None)
    return (Path(rest), operation) if equals and operation is not None else (path, None)


def _cards(dump: Topology | None, topology: Path | None) -> dict[str, str]:
    """Says which network cards are near GPUs, and which are for storage or management."""
    if dump is None or topology is None or not dump.nics:
        return {}
    near = ", ".join(nic.name for nic in dump.nics if nic.use == "compute")
    others = ", ".join(nic.name for nic in dump.nics if nic.use == "other")
    farther = f"; farther from all of them, for storage or management: {others}" if others else ""
    return {"transport": f"{topology.name}: network cards near GPUs: {near}{farther}"}


def _wires(node: NodeLinks | None, shape: Shape) -> tuple[Link, ...]:
    """Returns the links with each rank by its number in the profile."""
    if node is None:
        return ()
    number = {node.graph.ranks[place]: str(rank) for rank, place in enumerate(shape.order)}
    return tuple(
        Link(
            source=number.get(link.source, link.source),
            target=number.get(link.target, link.target),
            bytes_per_s=link.bytes_per_s,
        )
        for link in node.graph.links
    )


def _name(chosen: ChosenDevice, shape: Shape, graph_name: str, runs: Sequence[CollectiveRun]) -> str:
    """Returns the device's name and the numbers of nodes and ranks; the file's where no device is named."""
    is_named = chosen.like is not None or any(run.device_names for run in runs)
    told = chosen.device.name if is_named else Path(graph_name or (runs[0].file if runs else "machine")).stem
    plain = re.sub(r"[^a-z0-9]+", "-", told.lower()).strip("-") or "machine"
    nodes = shape.outer[0] if len(shape.outer) == 1 else 1
    for size in shape.outer[1:]:
        nodes *= size
    return f"{plain}-{nodes}x{shape.ranks_per_node}"


def _description(chosen: ChosenDevice, shape: Shape, graph_name: str, files: Sequence[str]) -> str:
    sizes = " x ".join(str(size) for size in reversed(shape.sizes))
    named = [*([graph_name] if graph_name else []), *files]
    read = ", ".join(named) if len(named) <= 3 else f"{named[0]} and {len(named) - 1} more files"
    return f"{sizes} ranks of {chosen.device.name}, read from {read}"


def _transport(runs: Sequence[CollectiveRun]) -> str:
    """Returns the transport of the largest run that names one."""
    named = [run for run in runs if run.transport]
    return max(named, key=lambda run: run.num_nodes).transport if named else ""


def _sockets(runs: Sequence[CollectiveRun]) -> tuple[str, ...]:
    """Warns of a network that plain sockets carried."""
    return tuple(
        f"{run.file}: NCCL ran over sockets ({run.transport}), not over InfiniBand or RoCE; if such cards are there, "
        "it did not find them (NCCL_IB_DISABLE, drivers, containers)"
        for run in runs
        if run.over_sockets and run.num_nodes > 1
    )
