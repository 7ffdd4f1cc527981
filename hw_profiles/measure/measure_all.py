"""Measures everything, a piece after the other, in the same order on every rank."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch
from pydantic import BaseModel

from hw_profiles.errors import ProfileError
from hw_profiles.measure.asked import Asked
from hw_profiles.measure.effort import planned_s
from hw_profiles.measure.find_structure import Dump, find_structure, is_one_host, nodes_of_machine, topology_dump, wires
from hw_profiles.measure.identity import Identity, crowded, fingerprint, how_measured, identity
from hw_profiles.measure.journal import Journal, open_journal
from hw_profiles.measure.measure_curves import measure_curves
from hw_profiles.measure.measure_device import measure_device
from hw_profiles.measure.measure_pairs import measure_pairs
from hw_profiles.measure.measurement import Measurement
from hw_profiles.measure.pieces import Pieces, Say
from hw_profiles.measure.ranks import Ranks
from hw_profiles.measure.structure import Structure, asked_structure
from hw_profiles.measure.time_memory import memory_of_rank
from hw_profiles.measure.time_pairs import pairs_to_time
from hw_profiles.measure.transport import Transport, gloo_transport, has_infiniband, nccl_transport
from hw_profiles.schema import OPERATIONS


def measure_all(asked: Asked, ranks: Ranks, say: Say) -> Measurement:
    """Returns what all ranks measured together, the same on every rank.

    Raises:
        ProfileError: what is asked for cannot be measured on these ranks, or the journal cannot be written.
    """
    identities = ranks.gathered(identity(ranks))
    hosts = [each.host for each in identities]
    num_nodes, ranks_per_node = nodes_of_machine(asked, hosts)
    if asked.levels:
        asked_structure(asked.levels, num_nodes, ranks_per_node)  # what is refused is refused before measuring
    pieces = Pieces(ranks, _journal(asked, ranks, identities, say), say)
    wanted_pairs = pairs_to_time(num_nodes, ranks_per_node)
    sizes = asked.levels or (ranks_per_node, num_nodes)
    pieces.total_weight = planned_s(sizes, len(wanted_pairs), asked.quick, OPERATIONS)
    # From here on all that is used comes from the pieces, so that the same journal gives the same measurement.
    known = pieces.take("ranks", "the ranks", 0.0, lambda: _plain(identities))
    identities = [Identity.model_validate(each) for each in known]
    how = pieces.take("how", "", 0.0, lambda: ranks.first(how_measured(asked)))
    device = measure_device(ranks, pieces, asked.quick)
    pairs = measure_pairs(ranks, pieces, wanted_pairs, asked.quick)
    dump = Dump.model_validate(pieces.take("topology", "the topology", 0.1, lambda: _topology(ranks)))
    structure = Structure.model_validate(
        pieces.take("levels", "the levels", 0.1, lambda: _dumped(find_structure(asked, ranks, hosts, dump, pairs)))
    )
    pieces.total_weight = planned_s(structure.sizes, len(wanted_pairs), asked.quick, OPERATIONS)
    curves = measure_curves(ranks, pieces, structure.sizes, asked.quick)
    memory = pieces.take("memory", "the memory", 0.1, lambda: memory_of_rank(ranks, identities))
    text, warnings = pieces.take("transport", "the transport", 0.1, lambda: _transport(ranks, identities))
    links, links_source, assumed = wires(dump, identities[0].device, structure.edges[structure.node_level])
    return Measurement(
        structure=structure,
        logical=ranks.device.type == "cpu" and is_one_host(hosts),
        kind="cuda" if ranks.device.type == "cuda" else "cpu",
        devices=tuple(each.device for each in identities),
        host_memory_bytes=min(each.host_memory_bytes for each in identities),
        num_cores=_cores_of_a_node(identities),
        curves=curves,
        pairs=pairs,
        links=links,
        links_source=links_source,
        transport=text,
        how=how,
        warnings=(
            *(crowded(identities) if ranks.device.type == "cpu" else ()),
            *warnings,
            *assumed,
            *structure.warnings,
        ),
        **device,
        **memory,
    )


def _journal(asked: Asked, ranks: Ranks, identities: list[Identity], say: Say) -> Journal | None:
    """Opens the journal on the first rank; all ranks end alike where it cannot be."""
    journal, trouble = None, ""
    if ranks.rank == 0 and asked.journal is not None:
        try:
            journal = open_journal(Path(asked.journal), fingerprint(asked, ranks, identities), fresh=asked.fresh)
        except ProfileError as error:
            trouble = str(error)
    trouble = ranks.first(trouble)
    if trouble:
        raise ProfileError(trouble, key="out")
    for note in journal.notes if journal else ():
        say(note, None)
    return journal


def _topology(ranks: Ranks) -> object:
    own = topology_dump() if ranks.rank == 0 and ranks.device.type == "cuda" else Dump()
    return _dumped(ranks.first(own))


def _transport(ranks: Ranks, identities: Sequence[Identity]) -> tuple[str, tuple[str, ...]]:
    """Returns the transport in words, and what is wrong with it."""
    if ranks.device.type == "cpu":
        hosts = {each.host.node for each in identities}
        found = gloo_transport(tuple(each.interface for each in identities), len(hosts))
    else:
        path = Path(os.environ.get("NCCL_DEBUG_FILE", ""))
        log = path.read_text(errors="replace") if path.is_file() else ""
        version = ".".join(str(part) for part in torch.cuda.nccl.version())  # type: ignore[no-untyped-call]
        name = "NCCL" if torch.version.hip is None else "RCCL"
        found = nccl_transport(f"{name} {version}", log, has_infiniband())
    first: Transport = ranks.first(found)
    return first.text, first.warnings


def _cores_of_a_node(identities: Sequence[Identity]) -> int:
    """Returns the cores that the ranks of a node may run on; of the node that has the fewest."""
    cores: dict[tuple[str, str, str], set[int]] = {}
    for each in identities:
        cores.setdefault(each.host.node, set()).update(each.cores)
    return min(len(own) for own in cores.values())


def _plain(values: Sequence[BaseModel]) -> list[object]:
    return [_dumped(value) for value in values]


def _dumped(value: BaseModel) -> object:
    return value.model_dump(mode="json")
