"""Bytes per second and direction of the links that topology dumps only name or count."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Speed:
    """One link, one direction."""

    bytes_per_s: float
    source: str
    assumed: str = ""
    """For people: what had to be assumed to choose this speed, and what it would be otherwise."""


@dataclass(frozen=True, slots=True)
class _DeviceLinks:
    """Links of the devices whose names match."""

    pattern: str
    link_bytes_per_s: float | None
    """NVLink or Infinity Fabric between GPUs; None without."""
    pcie_bytes_per_s: float
    source: str


_PCIE_3, _PCIE_4, _PCIE_5 = 15.75e9, 31.5e9, 63e9
"""16 lanes of 8, 16, 32 GT/s with 128 bits in 130. Source: PCI Express Base Specification 3.0, 4.0, 5.0."""

_DEVICES = (
    _DeviceLinks(r"P100", 20e9, _PCIE_3, "NVIDIA Tesla P100 whitepaper: NVLink 1, 20 GB/s per link and direction"),
    _DeviceLinks(r"V100", 25e9, _PCIE_3, "NVIDIA Tesla V100 whitepaper: NVLink 2, 25 GB/s per link and direction"),
    _DeviceLinks(r"A100|A800|A30", 25e9, _PCIE_4, "NVIDIA A100 whitepaper: NVLink 3, 25 GB/s per link and direction"),
    _DeviceLinks(
        r"H100|H200|H800|H20\b|GH200", 25e9, _PCIE_5, "NVIDIA H100 whitepaper: NVLink 4, 25 GB/s per link and direction"
    ),
    _DeviceLinks(
        r"\bG?B[123]00\b", 50e9, _PCIE_5, "NVIDIA Blackwell datasheet: NVLink 5, 50 GB/s per link and direction"
    ),
    _DeviceLinks(
        r"A40|A6000|A5500|A5000|3090",
        14.0625e9,
        _PCIE_4,
        "NVIDIA A40 datasheet: 112.5 GB/s in both directions over 4 NVLinks",
    ),
    _DeviceLinks(r"\bL4\b|L40|4090|4080|\bA10G?\b|A16|Ada", None, _PCIE_4, "NVIDIA datasheets: PCIe 4.0, no NVLink"),
    _DeviceLinks(
        r"RTX [68]000|2080|TITAN RTX",
        25e9,
        _PCIE_3,
        "NVIDIA Turing whitepaper: NVLink 2, 25 GB/s per link and direction",
    ),
    _DeviceLinks(r"\bT4\b|P40|P4\b", None, _PCIE_3, "NVIDIA datasheets: PCIe 3.0, no NVLink"),
    _DeviceLinks(r"5090|RTX PRO", None, _PCIE_5, "NVIDIA datasheets: PCIe 5.0, no NVLink"),
    _DeviceLinks(
        r"MI3[56]\d", 76.8e9, _PCIE_5, "AMD CDNA 4 whitepaper: 153.6 GB/s in both directions per Infinity Fabric link"
    ),
    _DeviceLinks(
        r"MI3\d\d", 64e9, _PCIE_5, "AMD CDNA 3 whitepaper: 128 GB/s in both directions per Infinity Fabric link"
    ),
    _DeviceLinks(
        r"MI2\d\d", 50e9, _PCIE_4, "AMD MI250 microarchitecture (ROCm documentation): 25 GT/s x 2 bytes per link"
    ),
    _DeviceLinks(
        r"MI100", 46e9, _PCIE_4, "AMD MI100 microarchitecture (ROCm documentation): 23 GT/s x 2 bytes per link"
    ),
)

SOCKETS = Speed(
    16e9,
    "NCCL 2.28 src/graph/topo.h: what a GPU's traffic reaches between sockets, AMD_BW 16 GB/s",
    "16 GB/s between sockets, which the dump does not say (NCCL counts with 6 to 40 for x86 processors)",
)
"""Between sockets or NUMA nodes, one direction, for all GPUs of a socket."""

GCD_LINKS = 4
"""Infinity Fabric links between the two dies of an MI250X. Source: Frontier User Guide: 200 GB/s."""

_LINKS_OF_GENERATION = {
    18: (25e9, "18 NVLinks per GPU: NVLink 4 (H100, H200), 25 GB/s per link and direction (NVIDIA H100 whitepaper)"),
    12: (25e9, "12 NVLinks per GPU: NVLink 3 (A100), 25 GB/s per link and direction (NVIDIA A100 whitepaper)"),
    8: (25e9, "8 NVLinks per GPU (A800, H800), 25 GB/s per link and direction (NVIDIA A100 whitepaper)"),
    6: (25e9, "6 NVLinks per GPU: NVLink 2 (V100), 25 GB/s per link and direction (NVIDIA Tesla V100 whitepaper)"),
}


MAX_NVLINKS = 18
"""NVLinks that one GPU has at most. Source: NVIDIA H100 whitepaper, Blackwell datasheet."""
_MOST_NVLINKS = ((r"P100", 4), (r"V100", 6), (r"A100|A800|A30", 12))
"""Of single devices. Source: NVIDIA Tesla P100, Tesla V100 and A100 whitepapers."""


def nvlinks_of(device_name: str = "") -> int:
    """Returns how many NVLinks one GPU has at most; of any GPU where its name is unknown."""
    return next((most for pattern, most in _MOST_NVLINKS if re.search(pattern, device_name)), MAX_NVLINKS)


def nvlink_speed(num_links: int, num_gpus: int, device_name: str = "") -> Speed:
    """Returns the speed of one NVLink of GPUs that have `num_links` of them to the other `num_gpus` - 1.

    The name of the device decides where it is known; else the number of links, which several generations share.
    """
    known = _of_device(device_name)
    if known is not None and known.link_bytes_per_s is not None:
        return Speed(known.link_bytes_per_s, known.source)
    if known is not None:
        by_count = nvlink_speed(num_links, num_gpus)
        doubt = f"that {device_name} has NVLinks, as the dump shows some; is it another device?"
        more = f" Further: {by_count.assumed}" if by_count.assumed else ""
        return Speed(by_count.bytes_per_s, by_count.source, doubt + more)
    if num_links == 4 and num_gpus == 8:
        return Speed(20e9, "4 NVLinks per GPU among 8: NVLink 1 (P100), 20 GB/s (NVIDIA Tesla P100 whitepaper)")
    if num_links == 4 and num_gpus == 2:
        return Speed(
            14.0625e9,
            "NVIDIA A40 datasheet: 112.5 GB/s in both directions over 4 NVLinks",
            "4 NVLinks of 14 GB/s between two cards (A40, RTX A6000, RTX 3090), as the dump names no device",
        )
    if num_links == 18:
        speed, source = _LINKS_OF_GENERATION[18]
        return Speed(speed, source, "18 NVLinks per GPU of 25 GB/s (H100, H200); a B200 has as many of 50 GB/s")
    if num_links in _LINKS_OF_GENERATION:
        return Speed(*_LINKS_OF_GENERATION[num_links])
    return Speed(
        25e9,
        "NVLink 2 to 4: 25 GB/s per link and direction (NVIDIA Tesla V100, A100 and H100 whitepapers)",
        f"25 GB/s per NVLink: {num_links} per GPU do not tell the generation (NVLink 1 has 20, NVLink 5 has 50)",
    )


def fabric_speed(num_gpus: int, is_meshed: bool, device_name: str = "") -> Speed:
    """Returns the speed of one Infinity Fabric link in a group of `num_gpus` that are all joined or not (MI250)."""
    known = _of_device(device_name)
    if known is not None and known.link_bytes_per_s is not None:
        return Speed(known.link_bytes_per_s, known.source)
    if not is_meshed:
        return Speed(50e9, "AMD MI250 microarchitecture (ROCm documentation): 25 GT/s x 2 bytes per link")
    if num_gpus == 8:
        return Speed(
            64e9,
            "AMD CDNA 3 whitepaper: 128 GB/s in both directions per Infinity Fabric link",
            "8 GPUs all joined by links of 64 GB/s (MI300X, MI325X); an MI355X has 76.8 GB/s",
        )
    return Speed(
        46e9,
        "AMD MI100 microarchitecture (ROCm documentation): 23 GT/s x 2 bytes per link",
        f"{num_gpus} GPUs all joined by links of 46 GB/s (MI100); an MI210 has 50 and an MI300A 128 GB/s per pair",
    )


def pcie_speed(device_name: str = "") -> Speed:
    """Returns the speed of 16 PCIe lanes, of the generation that the device has, if its name is known."""
    known = _of_device(device_name)
    if known is not None:
        return Speed(known.pcie_bytes_per_s, f"PCIe x16 of {device_name} (PCI Express Base Specification)")
    return Speed(
        _PCIE_4,
        "PCI Express Base Specification 4.0: 16 lanes of 16 GT/s, 31.5 GB/s per direction",
        "PCIe 4.0 x16, 31.5 GB/s per direction: the dump does not say the generation (3.0 has half, 5.0 twice of it)",
    )


def _of_device(device_name: str) -> _DeviceLinks | None:
    return next((entry for entry in _DEVICES if device_name and re.search(entry.pattern, device_name)), None)
