"""What carries the messages, and over which interface: gloo's by the host, NCCL's by its own log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Transport:
    """The transport in words, and what is wrong with it."""

    text: str
    warnings: tuple[str, ...] = ()


def gloo_transport(interfaces: tuple[str, ...], num_hosts: int) -> Transport:
    """Returns gloo's transport.

    Args:
        interfaces: the interface that each rank listens on.
        num_hosts: hosts with ranks.
    """
    names = sorted(set(interfaces))
    text = f"gloo over TCP, interface {' or '.join(names)}"
    if num_hosts > 1 and "lo" in names:
        ranks = [str(rank) for rank, name in enumerate(interfaces) if name == "lo"]
        return Transport(
            text,
            (
                f"gloo listens on the loopback interface on ranks {', '.join(ranks[:8])}, though ranks are on "
                f"{num_hosts} hosts: set GLOO_SOCKET_IFNAME to the network's interface",
            ),
        )
    return Transport(text)


def nccl_transport(library: str, log: str, has_infiniband: bool) -> Transport:
    """Returns NCCL's transport, by the log that NCCL_DEBUG=INFO writes; inside one node it names no network.

    Source: NCCL 2.27, src/plugin/net.cc ("Using network %s") and src/transport/net_ib.cc, net_socket.cc
    ("NET/IB : Using [0]mlx5_0:1/IB ... ; OOB eth0:10.0.0.1<0>", "NET/Socket : Using [0]eth0:10.0.0.1<0>").

    Args:
        library: NCCL, or RCCL, with its version.
        log: its text.
        has_infiniband: whether the host has InfiniBand or RoCE devices.
    """
    networks = sorted(set(re.findall(r"Using network (.+?)\s*$", log, re.MULTILINE)))
    text = library
    for network in networks:
        # A plugin's network (IBext) names its devices as NCCL's own does.
        family = "IB" if network.startswith("IB") else re.escape(network)
        found = re.search(rf"NET/{family} : Using (.+?)\s*(?:; OOB .*)?$", log, re.MULTILINE)
        text += f", network {network} {_devices(found.group(1))}" if found else f", network {network}"
    if "Socket" in networks and has_infiniband:
        warning = (
            "NCCL uses sockets though this host has InfiniBand devices (/sys/class/infiniband): they are many times "
            "slower; look for NCCL_IB_DISABLE, NCCL_NET and missing RDMA libraries"
        )
        return Transport(text, (warning,))
    return Transport(text)


def _devices(text: str) -> str:
    """Returns the devices in one pair of brackets, without their numbers and flags."""
    names = re.findall(r"\[\d+\]([^\s\[]+)", text)
    return f"[{', '.join(names)}]" if names else f"[{text.strip()}]"


def has_infiniband(folder: Path = Path("/sys/class/infiniband")) -> bool:
    """Tells whether the host has InfiniBand or RoCE devices."""
    return folder.is_dir() and any(folder.iterdir())
