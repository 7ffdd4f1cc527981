"""What Linux says of this host: memory that may be used, cores, processor, network interface."""

from __future__ import annotations

import fcntl
import os
import platform
import re
import socket
import struct
from pathlib import Path

_MEMORY_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where control groups of version 2 and 1 say how much a container may use."""
_GET_ADDRESS = 0x8915
"""SIOCGIFADDR of linux/sockios.h: the IPv4 address of an interface."""


def limit_bytes() -> int:
    """Returns the bytes of memory that processes here can use: the host's, or less where a container may use less."""
    found = re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    limits = [int(found.group(1)) * 1024] if found else []
    for place in _MEMORY_LIMITS:
        path = Path(place)
        text = path.read_text().strip() if path.is_file() else "max"
        if text.isdigit():
            limits.append(int(text))
    return min(limits)


def resident_bytes() -> int:
    """Returns the bytes that this process holds in memory now."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found.group(1)) * 1024 if found else 0


def num_cores() -> int:
    """Returns the cores that this process may run on."""
    return len(os.sched_getaffinity(0))


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
    names = [name for _, name in socket.if_nameindex() if _address(name) == address]
    return names[0] if names else "lo"


def _address(interface: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as endpoint:
        request = struct.pack("256s", interface.encode()[:15])
        try:
            answer = fcntl.ioctl(endpoint.fileno(), _GET_ADDRESS, request)
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])
