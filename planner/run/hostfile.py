"""Reads a hostfile as they are found in real life, and writes the one form that every launcher reads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from planner.errors import InputError

_LINE = re.compile(
    r"(?P<name>[^\s:=]+)(?:\s*:\s*(?P<colon>\d+)|\s+slots\s*=\s*(?P<slots>\d+))?(?:\s+max_slots\s*=\s*\d+)?"
)


@dataclass(frozen=True, slots=True)
class Host:
    """One machine."""

    name: str
    slots: int
    """Ranks that run on it."""


def read_hostfile(path: Path, ranks_per_node: int, *, equal: bool = True) -> tuple[Host, ...]:
    """Returns the hosts of a file with lines `host slots=n`, `host:n` or `host`, in its order.

    Comments after `#`, empty lines, CRLF line ends, a byte order mark and a missing final newline are all understood.

    Args:
        path: Of the hostfile.
        ranks_per_node: Slots of a host whose line has no number.
        equal: Whether every host needs as many slots: shard groups smaller than the world then end where nodes do.

    Raises:
        InputError: The file cannot be read, a line is not understood, a host is there twice, or slots are unequal.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the hostfile {path}: {error}") from error
    hosts: dict[str, Host] = {}
    for number, line in enumerate(lines, start=1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        host = _host(text, ranks_per_node)
        if host is None:
            raise InputError(f"{path}, line {number}: {text!r} is not understood; write `host slots=n`")
        if host.name in hosts:
            raise InputError(f"{path}, line {number}: the host {host.name} is there already; give each host one line")
        hosts[host.name] = host
    if not hosts:
        raise InputError(f"the hostfile {path} names no host; write a line `host slots=n` for each")
    if equal:
        _check_equal(path, tuple(hosts.values()))
    return tuple(hosts.values())


def hostfile_text(hosts: tuple[Host, ...]) -> str:
    """Returns the file with one line `host slots=n` for each host."""
    return "".join(f"{host.name} slots={host.slots}\n" for host in hosts)


def _host(text: str, ranks_per_node: int) -> Host | None:
    match = _LINE.fullmatch(text)
    if match is None:
        return None
    slots = int(match["colon"] or match["slots"] or ranks_per_node)
    return Host(match["name"], slots) if slots > 0 else None


def _check_equal(path: Path, hosts: tuple[Host, ...]) -> None:
    other = next((host for host in hosts if host.slots != hosts[0].slots), None)
    if other is not None:
        raise InputError(
            f"the hosts of {path} have unequal slots: {hosts[0].name} has {hosts[0].slots}, {other.name} has "
            f"{other.slots}; shard groups need the same number on each, such as {min(h.slots for h in hosts)}"
        )
