"""What Linux says of this host: memory that may be used, cores, processor, network interface."""

from __future__ import annotations

import fcntl
import os
import platform
import re
import socket
import struct
from pathlib import Path

_GET_ADDRESS = 0x8915
"""SIOCGIFADDR of linux/sockios.h: the IPv4 address of an interface."""


def limit_bytes() -> int:
    """Returns the bytes of memory that processes here can use: the host's, or less where a container may use less."""
    return min([_meminfo("MemTotal"), *(limit for limit, _ in _control_groups())])


def available_bytes() -> int:
    """Returns the bytes of memory that processes here could have now, without what others hold."""
    return min([_meminfo("MemAvailable"), *(max(limit - used, 0) for limit, used in _control_groups())])


def _meminfo(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    return int(found.group(1)) * 1024 if found else 0


def _control_groups() -> list[tuple[int, int]]:
    """Returns the limit and the used bytes of this process's control groups that have a limit, inner first.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst (memory.max, memory.current; of the latter, inactive_file is
    given back when it is asked for), and cgroup-v1/memory.rst.
    """
    found = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, inside = line.split(":", 2)
        if number == "0":
            root, names = Path("/sys/fs/cgroup"), ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            root, names = Path("/sys/fs/cgroup/memory"), ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        own = root / inside.strip("/")
        for folder in (own, *own.parents):
            limit, used = (_number(folder / name) for name in names)
            if limit is not None and used is not None:
                found.append((limit, max(used - _given_back(folder / "memory.stat"), 0)))
            if folder == root:
                break
    return found


def _given_back(statistics: Path) -> int:
    found = re.search(r"^(?:total_)?inactive_file (\d+)", statistics.read_text(), re.MULTILINE)
    return int(found.group(1)) if found else 0


def _number(path: Path) -> int | None:
    text = path.read_text().strip() if path.is_file() else ""
    return int(text) if text.isdigit() else None


def resident_bytes() -> int:
    """Returns the bytes that this process holds in memory now."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found.group(1)) * 1024 if found else 0


def is_stopped(process: int) -> bool:
    """Tells whether a signal has stopped a process. Source: proc_pid_stat(5), state T."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:  # it has ended
        return False


def own_cores() -> tuple[int, ...]:
    """Returns the cores that this process may run on."""
    return tuple(sorted(os.sched_getaffinity(0)))


def boot_id() -> str:
    """Returns what tells this kernel's run from all others."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.is_file() else ""


def network_namespace() -> str:
    """Returns the network namespace of this process: containers of one kernel reach each other by network only."""
    path = Path("/proc/self/ns/net")
    return f"network namespace {path.stat().st_ino}" if path.exists() else ""


def cpu_name() -> str:
    """Returns the processor's model name."""
    found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    return found.group(1).strip() if found else platform.machine()


def interface_name() -> str:
    """Returns the network interface that gloo listens on: the one it is told, else the one of the host's name."""
    told = os.environ.get("GLOO_SOCKET_IFNAME")
    if told:
        return told
    try:
        address = socket.gethostbyname(platform.node())
    except OSError:
        # gloo falls back to the loopback interface when the host's name has no address.
        return "lo"
    return _interface_of(address) or "lo"


def interface_towards(host: str) -> str | None:
    """Returns the network interface over which this host reaches another; None where it cannot be told."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as endpoint:
            # Sends nothing: it only asks for the route, whatever the port.
            endpoint.connect((host, 9))
            return _interface_of(endpoint.getsockname()[0])
    except OSError:
        return None


def _interface_of(address: str) -> str | None:
    return next((name for _, name in socket.if_nameindex() if _address(name) == address), None)


def _address(interface: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as endpoint:
        request = struct.pack("256s", interface.encode()[:15])
        try:
            answer = fcntl.ioctl(endpoint.fileno(), _GET_ADDRESS, request)
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])
