"""Which device a machine has: by the name that its benchmarks print, or by a profile that the user says it is like."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hw_profiles.devices import Device, UnknownDevice
from hw_profiles.errors import ProfileError
from hw_profiles.load import load, shipped_names
from hw_profiles.read.collective_run import CollectiveRun
from hw_profiles.read.topology import Vendor
from hw_profiles.schema import HardwareProfile


@dataclass(frozen=True, slots=True)
class ChosenDevice:
    """The device, and the profile that it and the host are taken from."""

    device: Device | UnknownDevice
    like: HardwareProfile | None
    """What the user says the machine is like; its host and network serve too."""
    sources: dict[str, str]
    """Of `device` and `host`."""
    warnings: tuple[str, ...]


def choose_device(runs: Sequence[CollectiveRun], like: str | None, vendor: Vendor | None) -> ChosenDevice:
    """Returns the device that `runs` name, from the shipped profile that has it, or from the profile `like`.

    Raises:
        ProfileError: the runs are of different devices, or there is no profile `like`.
    """
    names, warnings = _names(runs)
    _check_vendor([(run.file, name) for run in runs for name in run.device_names], vendor)
    if like is not None:
        model = load(like)
        _check_vendor([(f"--like {like}", model.device.name)], vendor)
        if model.device.kind == "cpu" and (vendor is not None or names):
            raise ProfileError(f"--like {like} is of CPUs, but what was read is of GPUs", key="device", value=like)
        if names and not any(same_device(name, model.device.name) for name in names):
            warnings = (
                *warnings,
                f"--like {like} has {model.device.name}, but the benchmarks ran on {' and '.join(names)}",
            )
        taken = {
            path: f"{model.name} (--like): {text}"
            for path, text in model.sources.items()
            if path.split(".")[0] in ("device", "host")
        }
        return ChosenDevice(model.device, model, taken, warnings)
    shipped = [(name, _shipped(name)) for name in names]
    known = [(name, model, model.known_device) for name, model in shipped if model is not None]
    if known and len(known) == len(shipped):
        name, model, device = min(
            known, key=lambda each: (each[2].memory_bytes, max(each[2].matmul_flop_per_s.values()))
        )
        as_named = "" if name == device.name else f", which spells it {device.name}"
        taken = {
            path: f"{model.name}, the shipped profile of the {name} that {runs[0].file} names{as_named}: {text}"
            for path, text in model.sources.items()
            if path.split(".")[0] == "device"
        }
        return ChosenDevice(device.model_copy(update={"name": name}), None, taken, warnings)
    if names:
        unknown = " and ".join(names)
        text = f"no shipped profile has the device {unknown}: --like NAME takes the figures of one that is near it"
        return ChosenDevice(UnknownDevice(name=unknown, kind="cuda"), None, {}, (*warnings, text))
    unknown = {"nvidia": "unknown NVIDIA GPU", "amd": "unknown AMD GPU", None: "unknown"}[vendor]
    text = "nothing read names the device: --like NAME takes the figures of a profile that has it"
    return ChosenDevice(UnknownDevice(name=unknown, kind="cuda"), None, {}, (text,))


def _check_vendor(named: Sequence[tuple[str, str]], vendor: Vendor | None) -> None:
    """Refuses devices of another vendor than the topology dump is of."""
    for origin, name in named:
        own: Vendor | None = "amd" if re.search(r"\bAMD\b|\bMI\d", name) else None
        if re.search(r"NVIDIA|Tesla|GeForce", name):
            own = "nvidia"
        if vendor is not None and own not in (None, vendor):
            raise ProfileError(
                f"the topology dump is of {vendor.upper()} GPUs, but {origin} has {name}; give files of one machine",
                key="device.name",
                value=name,
            )


def same_device(one: str, other: str) -> bool:
    """Tells whether two spellings name one device: vendors, brands, blanks and an unnumbered SXM make no difference."""
    first, second = _spelling(one), _spelling(other)
    return first == second or (
        bool(re.search(r"sxm(?!\d)", first + " " + second)) and _unnumbered(first) == _unnumbered(second)
    )


def _spelling(name: str) -> str:
    plain = re.sub(r"\b(?:nvidia|amd|tesla|geforce|instinct|graphics|vf|oam)\b", " ", name.lower())
    # A70 and 70 GB stay apart from the number before them by what is between: SXM4-80GB is sxm4 and 80gb.
    return "-".join(re.findall(r"[a-z0-9]+", plain))


def _unnumbered(spelling: str) -> str:
    return re.sub(r"sxm\d", "sxm", spelling)


def _names(runs: Sequence[CollectiveRun]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the devices' names of all runs, each once, and a warning where one run has several."""
    named = [run for run in runs if run.device_names]
    for run in named[1:]:
        if sorted(run.device_names) != sorted(named[0].device_names):
            raise ProfileError(
                f"{named[0].file} ran on {' and '.join(named[0].device_names)}, but {run.file} on "
                f"{' and '.join(run.device_names)}: a profile is of one machine; make one for each",
                key="device.name",
                value=run.device_names[0],
                expected=named[0].device_names[0],
            )
    if not named:
        return (), ()
    names = named[0].device_names
    if len(names) == 1:
        return names, ()
    return names, (
        f"{named[0].file}: ranks have different devices ({', '.join(names)}); the least of each figure counts",
    )


def _shipped(name: str) -> HardwareProfile | None:
    """Returns the first shipped profile with the device of that name."""
    models = (load(each) for each in shipped_names())
    return next((model for model in models if same_device(name, model.device.name)), None)
