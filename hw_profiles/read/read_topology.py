"""Reads one node's topology from a dump: `nvidia-smi topo -m`, `rocm-smi --showtopo` or `amd-smi topology`."""

from __future__ import annotations

from pathlib import Path

from hw_profiles.read.nvidia_graph import nvidia_topology
from hw_profiles.read.nvidia_matrix import read_matrix
from hw_profiles.read.rocm_graph import rocm_topology
from hw_profiles.read.rocm_tables import has_tables, read_tables
from hw_profiles.read.terminal_text import lines_of, read_lines
from hw_profiles.read.topology import Topology


def read_topology(dump: str | Path, device_name: str = "", name: str = "the topology dump") -> Topology:
    """Returns the GPUs of the dump, what joins them, and what had to be assumed.

    Args:
        dump: the file with the dump, or, as a str, the dump's text itself.
        device_name: what the GPUs are, where that is known: a dump counts links and does not say how fast they are.
        name: of the text, for messages; a file has its own.

    Raises:
        ProfileError: it is no such dump, or a damaged one; says where.
    """
    lines = lines_of(dump) if isinstance(dump, str) else read_lines(dump)
    name = name if isinstance(dump, str) else dump.name
    if has_tables(lines):
        return rocm_topology(read_tables(lines, name), name, device_name)
    return nvidia_topology(read_matrix(lines, name), name, device_name)
