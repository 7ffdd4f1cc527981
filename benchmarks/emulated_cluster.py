"""A cluster on one machine: network namespaces as nodes, joined by shaped links. Needs root, `ip` and `tc`.

A node is a network namespace. Its ranks reach each other over its loopback interface, and other nodes over one port:
both are shaped by token buckets, the port in each direction. Nodes can be divided over racks, whose bridges are joined
by one more shaped link. So levels of links of two or three speeds carry real messages between real processes:

    python benchmarks/emulated_cluster.py --nodes 2 --ranks-per-node 2 -- -m my_module    # torchrun's arguments
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

CONNECTIONS = ("net.ipv4.tcp_congestion_control=reno", "net.ipv4.tcp_slow_start_after_idle=0")
"""A cluster's own links lose nothing and are not probed: no connection paces itself by what it last saw, as BBR's do,
nor starts slowly again after each wait. With either, a message's seconds hang on those before it."""
MEGABIT_BYTES_PER_S = 125_000
_PACKET_BYTES = 8_192
"""The largest packet, of a level's own size or put together from smaller ones; by default 64 KiB."""
_BURST_BYTES = 2 * _PACKET_BYTES
"""A token bucket lets this much pass at once, as no real link does: more than a packet, less than what is timed."""


@dataclass(frozen=True, slots=True)
class EmulatedCluster:
    """Nodes that are up. Rates in 10^6 bits per second, as they were set."""

    names: tuple[str, ...]
    addresses: tuple[str, ...]
    ranks_per_node: int
    inside_mbit: int
    between_mbit: int
    num_racks: int = 1
    racks_mbit: int = 0

    @property
    def inside_bytes_per_s(self) -> float:
        """What a node's loopback carries, over both directions together."""
        return self.inside_mbit * MEGABIT_BYTES_PER_S

    @property
    def between_bytes_per_s(self) -> float:
        """What a node's port carries, in each direction."""
        return self.between_mbit * MEGABIT_BYTES_PER_S

    @property
    def racks_bytes_per_s(self) -> float:
        """What the link between racks carries, in each direction."""
        return self.racks_mbit * MEGABIT_BYTES_PER_S

    def start(self, arguments: Sequence[str], port: int = 29500) -> list[subprocess.Popen[str]]:
        """Starts torchrun with `arguments` on every node and returns the agents, the first node's first."""
        command = [
            *(sys.executable, "-m", "torch.distributed.run", f"--nnodes={len(self.names)}"),
            *(f"--nproc-per-node={self.ranks_per_node}", f"--master-addr={self.addresses[0]}", f"--master-port={port}"),
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
        return [
            subprocess.Popen(
                ["ip", "netns", "exec", name, *command, f"--node-rank={index}", *arguments],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for index, name in enumerate(self.names)
        ]

    def run(self, arguments: Sequence[str], timeout_s: float = 600.0) -> str:
        """Runs torchrun with `arguments` on every node and returns what the first node's ranks printed.

        Raises:
            RuntimeError: a node's ranks failed; with their last lines.
            TimeoutError: they did not end in time, and were ended.
        """
        agents = self.start(arguments)
        deadline_s = time.monotonic() + timeout_s
        printed: list[tuple[str, str]] = []
        try:
            printed.extend(agent.communicate(timeout=max(deadline_s - time.monotonic(), 0.1)) for agent in agents)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"{' '.join(arguments)} did not end within {timeout_s:g} s") from error
        finally:
            for agent in agents:
                # A process that has ended keeps no ranks: torchrun ends its own when it is told to.
                agent.terminate()
                agent.wait(30)
        for name, agent, (_, errors) in zip(self.names, agents, printed, strict=True):
            if agent.returncode:
                raise RuntimeError(f"{name} ended with {agent.returncode}:\n{errors[:6000]}")
        return printed[0][0]


def why_not() -> str | None:
    """Returns why no cluster can be emulated here, or None when it can."""
    if os.geteuid():
        return "network namespaces need root"
    missing = [name for name in ("ip", "tc", "sysctl") if not shutil.which(name)]
    if missing:
        return f"no {' and no '.join(missing)} here (Debian: iproute2, procps)"
    probe = f"spprobe{os.getpid()}"
    done = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return f"no network namespaces here: {done.stderr.strip()}" if done.returncode else None


@contextmanager
def emulated_cluster(
    num_nodes: int,
    ranks_per_node: int,
    inside_mbit: int = 200,
    between_mbit: int = 50,
    num_racks: int = 1,
    racks_mbit: int = 12,
) -> Iterator[EmulatedCluster]:
    """Yields a cluster and takes it down again.

    Args:
        num_nodes: network namespaces.
        ranks_per_node: ranks that torchrun starts in each.
        inside_mbit: rate of each node's loopback.
        between_mbit: rate of each node's port, in each direction.
        num_racks: bridges that the nodes are divided over, in order; at most 2, joined by one link.
        racks_mbit: rate of that link, in each direction.

    Raises:
        RuntimeError: it cannot be set up here.
    """
    problem = why_not()
    if problem:
        raise RuntimeError(problem)
    tag = f"sp{os.getpid()}"
    bridges = tuple(f"{tag}b{index}" for index in range(num_racks))
    names = tuple(f"{tag}n{index}" for index in range(num_nodes))
    addresses = tuple(f"10.79.0.{index + 1}" for index in range(num_nodes))
    with ExitStack() as stack:
        for bridge in bridges:
            stack.callback(_quietly, "ip", "link", "del", bridge)
            _run("ip", "link", "add", bridge, "type", "bridge")
            _run("ip", "link", "set", bridge, "up")
        if num_racks == 2:
            ends = (f"{tag}u0", f"{tag}u1")
            stack.callback(_quietly, "ip", "link", "del", ends[0])
            _join(ends, bridges, racks_mbit)
        for index, (name, address) in enumerate(zip(names, addresses, strict=True)):
            # A namespace takes its end of the pair down only when the last of its processes has gone.
            stack.callback(_quietly, "ip", "netns", "del", name)
            stack.callback(_quietly, "ip", "link", "del", f"{name}v")
            _add_node(name, address, bridges[index * num_racks // num_nodes], inside_mbit, between_mbit)
        yield EmulatedCluster(
            names, addresses, ranks_per_node, inside_mbit, between_mbit, num_racks, racks_mbit if num_racks == 2 else 0
        )


def _join(ends: tuple[str, str], bridges: tuple[str, ...], rate_mbit: int) -> None:
    _run("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
    for end, bridge in zip(ends, bridges, strict=True):
        _run("ip", "link", "set", end, "master", bridge, "up")
        _shape((), end, rate_mbit)


def _add_node(name: str, address: str, bridge: str, inside_mbit: int, between_mbit: int) -> None:
    outer = f"{name}v"
    _run("ip", "netns", "add", name)
    _run("ip", "netns", "exec", name, "sysctl", "-qw", *CONNECTIONS)
    _run("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", name)
    _run("ip", "link", "set", outer, "master", bridge, "up")
    _run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
    _run("ip", "-n", name, "link", "set", "lo", "mtu", str(_PACKET_BYTES))
    for interface in ("lo", "eth0"):
        _run("ip", "-n", name, "link", "set", interface, "gso_max_size", str(_PACKET_BYTES), "up")
    _shape(("ip", "netns", "exec", name), "lo", inside_mbit)
    _shape(("ip", "netns", "exec", name), "eth0", between_mbit)
    _shape((), outer, between_mbit)


def _shape(prefix: tuple[str, ...], interface: str, rate_mbit: int) -> None:
    bucket = ("rate", f"{rate_mbit}mbit", "burst", str(_BURST_BYTES), "latency", "400ms")
    _run(*prefix, "tc", "qdisc", "add", "dev", interface, "root", "tbf", *bucket)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")


def _quietly(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=False)


def main() -> None:
    """Runs torchrun's arguments on a cluster that is set up for them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--ranks-per-node", type=int, default=2)
    parser.add_argument("--inside-mbit", type=int, default=200)
    parser.add_argument("--between-mbit", type=int, default=50)
    parser.add_argument("arguments", nargs="+", help="what torchrun runs, after --")
    given = parser.parse_args()
    with emulated_cluster(given.nodes, given.ranks_per_node, given.inside_mbit, given.between_mbit) as cluster:
        print(cluster.run(given.arguments), end="")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
