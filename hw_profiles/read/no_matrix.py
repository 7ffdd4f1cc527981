"""Says what a file is that holds no matrix of `nvidia-smi topo -m`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hw_profiles.read.terminal_text import Line

AGAIN = "run `nvidia-smi topo -m > FILE` again and give the whole file"
PEERS = re.compile(r"\s(?:OK|NS|CNS|GNS|TNS|DR)(?=\s|$)")
"""Cells of `nvidia-smi topo -p2p`, which people print beside the matrix."""


def no_matrix(lines: Sequence[Line], name: str) -> str:
    """Returns what the file called `name` is in place of a matrix, as far as that can be told, and what to do."""
    text = "\n".join(line.text for line in lines)
    if _is_of_peers(lines):
        return f"{name} is the table of `nvidia-smi topo -p2p`, which names no links; {AGAIN}"
    if text.lstrip().startswith(("{", "[")):
        return (
            f"{name} is JSON; give the table that `nvidia-smi topo -m` or `rocm-smi --showtopo` prints without --json"
        )
    if "NVIDIA-SMI" in text and "Driver Version" in text:
        return f"{name} is the overview of `nvidia-smi`, without topology; {AGAIN}"
    if re.search(r"No devices were found|command not found|Failed to initialize NVML|couldn't communicate", text):
        return f"{name} holds the message of a failed command and no topology; {AGAIN}"
    return (
        f"{name} is no topology dump: no line is a GPU's row of `nvidia-smi topo -m`, no table is one of "
        "`rocm-smi --showtopo` or `amd-smi topology`; give the whole output of one of them"
    )


def _is_of_peers(lines: Sequence[Line]) -> bool:
    """Tells whether cells say if peers reach each other, as those of `nvidia-smi topo -p2p` do."""
    return any(re.match(r"\s*GPU\d+\s", line.text) and PEERS.search(line.text) for line in lines)
