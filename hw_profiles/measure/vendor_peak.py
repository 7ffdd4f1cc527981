"""What vendors say of devices that shipped profiles have: the denominator of MFU."""

from __future__ import annotations

from collections.abc import Sequence

from hw_profiles.devices import Precision
from hw_profiles.load import load, shipped_names


def vendor_peak(device_names: Sequence[str]) -> dict[Precision, float] | None:
    """Returns the datasheet's peak of the ranks' devices, the least of mixed ones; None where one is not known.

    Args:
        device_names: Each rank's device, as torch names it.
    """
    peaks = [_peak(name) for name in dict.fromkeys(device_names)]
    found = [peak for peak in peaks if peak is not None]
    if not found or len(found) < len(peaks):
        return None
    shared = [precision for precision in found[0] if all(precision in peak for peak in found)]
    return {precision: min(peak[precision] for peak in found) for precision in shared}


def _peak(device_name: str) -> dict[Precision, float] | None:
    for name in shipped_names():
        profile = load(name)
        if profile.device.kind == "cuda" and profile.device.name == device_name:
            return profile.known_device.peak_flop_per_s
    return None
