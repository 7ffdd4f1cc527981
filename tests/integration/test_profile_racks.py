"""Levels above nodes are found by what nodes send each other: network namespaces as nodes, two bridges as racks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from hw_profiles.load import load

PORT_MBIT, BETWEEN_RACKS_MBIT = 400, 80
MEGABIT_BYTES_PER_S = 125_000


def run(*command: str, check: bool = True) -> None:
    subprocess.run(command, check=check, capture_output=True)


def shape(device: str, mbit: int, *prefix: str) -> None:
    limits = ("rate", f"{mbit}mbit", "burst", "131072", "latency", "400ms")
    run(*prefix, "tc", "qdisc", "add", "dev", device, "root", "tbf", *limits)


@contextmanager
def racks() -> Iterator[list[str]]:
    """Four nodes, two to a rack; yields the names of their namespaces, whose addresses are 10.78.0.1 and up."""
    tag = f"rk{os.getpid()}"
    bridges, nodes = [f"{tag}a", f"{tag}b"], [f"{tag}n{index}" for index in range(4)]
    with ExitStack() as stack:
        for bridge in bridges:
            run("ip", "link", "add", bridge, "type", "bridge")
            stack.callback(run, "ip", "link", "del", bridge, check=False)
            run("ip", "link", "set", bridge, "up")
        run("ip", "link", "add", f"{tag}u", "type", "veth", "peer", "name", f"{tag}v")
        stack.callback(run, "ip", "link", "del", f"{tag}u", check=False)
        for end, bridge in zip((f"{tag}u", f"{tag}v"), bridges, strict=True):
            run("ip", "link", "set", end, "master", bridge, "up")
            shape(end, BETWEEN_RACKS_MBIT)
        for index, node in enumerate(nodes):
            run("ip", "netns", "add", node)
            stack.callback(run, "ip", "netns", "del", node, check=False)
            run("ip", "link", "add", f"{node}v", "type", "veth", "peer", "name", "eth0", "netns", node)
            stack.callback(run, "ip", "link", "del", f"{node}v", check=False)
            run("ip", "link", "set", f"{node}v", "master", bridges[index // 2], "up")
            run("ip", "-n", node, "addr", "add", f"10.78.0.{index + 1}/24", "dev", "eth0")
            for interface in ("lo", "eth0"):
                run("ip", "-n", node, "link", "set", interface, "up")
            shape("eth0", PORT_MBIT, "ip", "netns", "exec", node)
            shape(f"{node}v", PORT_MBIT)
        yield nodes


@pytest.mark.slow
@pytest.mark.skipif(
    bool(os.geteuid()) or not shutil.which("ip") or not shutil.which("tc"),
    reason="network namespaces need root, ip and tc",
)
def test_racks_are_found_between_nodes_with_the_speed_of_their_links(tmp_path: Path) -> None:
    script = tmp_path / "measure.py"
    out = tmp_path / "found.json"
    script.write_text(
        "from hw_profiles.measure.profile_machine import profile_machine\n"
        "from hw_profiles.save import save\n"
        "found = profile_machine(quick=True)\n"
        f"if found: save(found, {str(out)!r})\n"
    )
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=4", "--nproc-per-node=1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
    with racks() as nodes:
        address = ["--master-addr=10.78.0.1", "--master-port=29500"]
        agents = [
            subprocess.Popen(
                ["ip", "netns", "exec", node, *torchrun, f"--node-rank={index}", *address, str(script)],
                env=environment,
                stderr=subprocess.DEVNULL,
            )
            for index, node in enumerate(nodes)
        ]
        try:
            assert [agent.wait(timeout=300) for agent in agents] == [0, 0, 0, 0]
        finally:
            for agent in agents:
                agent.terminate()
                agent.wait(30)
    profile = load(out)
    assert [(level.name, level.size) for level in profile.levels] == [("node", 1), ("rack", 2), ("cluster", 2)]
    assert (profile.num_nodes, profile.ranks_per_node) == (4, 1)
    assert "between nodes by measured pairs" in profile.sources["levels.1.size"]
    _, rack, cluster = profile.levels
    assert rack.unit_bytes_per_s == pytest.approx(PORT_MBIT * MEGABIT_BYTES_PER_S, rel=0.1)
    assert cluster.unit_bytes_per_s == pytest.approx(BETWEEN_RACKS_MBIT * MEGABIT_BYTES_PER_S, rel=0.1)
    assert profile.transport == "gloo over TCP, interface eth0"
