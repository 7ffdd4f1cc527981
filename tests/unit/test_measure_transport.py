"""The transport in words, from the host and from NCCL's log."""

from __future__ import annotations

from hw_profiles.measure.transport import gloo_transport, nccl_transport

IB = """\
gpu1:77:91 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>
gpu1:77:91 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_3:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
gpu1:77:91 [0] NCCL INFO Using network IB
"""
SOCKET = """\
gpu1:77:91 [0] NCCL INFO NET/IB : No device found.
gpu1:77:91 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0> [1]eth1:10.1.0.1<0>
gpu1:77:91 [0] NCCL INFO Using network Socket
"""


def test_nccl_says_its_network_and_devices() -> None:
    assert (
        nccl_transport("NCCL 2.27.5", IB, has_infiniband=True).text
        == "NCCL 2.27.5, network IB [mlx5_0:1/IB, mlx5_3:1/RoCE]"
    )
    plugin = IB.replace("network IB", "network IBext_v8")
    assert "network IBext_v8 [mlx5_0:1/IB" in nccl_transport("NCCL 2.27.5", plugin, has_infiniband=True).text


def test_sockets_beside_infiniband_devices_are_warned_of() -> None:
    found = nccl_transport("NCCL 2.27.5", SOCKET, has_infiniband=True)
    assert found.text == "NCCL 2.27.5, network Socket [eth0:10.0.0.1<0>, eth1:10.1.0.1<0>]"
    assert "NCCL uses sockets though" in found.warnings[0]
    assert nccl_transport("NCCL 2.27.5", SOCKET, has_infiniband=False).warnings == ()
    assert nccl_transport("NCCL 2.27.5", IB, has_infiniband=True).warnings == ()


def test_inside_one_node_nccl_names_no_network() -> None:
    assert nccl_transport("NCCL 2.27.5", "", has_infiniband=True).text == "NCCL 2.27.5"


def test_gloo_on_the_loopback_interface_across_hosts_is_warned_of() -> None:
    assert gloo_transport(("eth0", "eth0"), 2).warnings == ()
    assert gloo_transport(("lo", "lo"), 1).warnings == ()
    found = gloo_transport(("eth0", "lo"), 2)
    assert found.text == "gloo over TCP, interface eth0 or lo"
    assert "loopback interface on ranks 1" in found.warnings[0]
