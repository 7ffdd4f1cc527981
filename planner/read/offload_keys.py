"""What of a DeepSpeed configuration goes to host memory."""

from __future__ import annotations

from typing import Any

from costmodels.strategy import Offload
from planner.errors import InputError
from planner.read.ds_config_values import flag

NAMES = ("offload_optimizer", "offload_param", "cpu_offload", "cpu_offload_param")
"""The last two are older names of the first, and still read.
Source: `DeepSpeedZeroConfig`, deepspeed/runtime/zero/config.py, 0.19.8."""

_WHOLE: dict[str, Any] = {"ratio": 1, "super_offload": False}
"""Settings of a part that stays on the device, or of other hosts, and their values without it."""


def offload_of(given: dict[str, Any], stage: int, where: str) -> Offload:
    """Returns what lies in host memory.

    Args:
        given: The section `zero_optimization`, without prefixes.
        stage: Its stage.
        where: What the names of keys begin with.

    Raises:
        InputError: NVMe, a part of the states, or parameters without what goes with them.
    """
    optimizer = _is_on_host(given, "offload_optimizer", "cpu_offload", where)
    parameters = _is_on_host(given, "offload_param", "cpu_offload_param", where)
    if parameters and stage < 3:
        raise InputError(f"{where}offload_param: at stage {stage} it does nothing; delete it, or write stage 3")
    if parameters and not optimizer:
        raise InputError(
            f"{where}offload_param: parameters on the host with states on the device are not followed by the cost "
            "model; write offload_optimizer too"
        )
    if optimizer and given.get("compute_grad_norm") is False:
        raise InputError(f"{where}compute_grad_norm: DeepSpeed refuses false with offload; write true")
    if not optimizer:
        return "none"
    return "all" if parameters else "optimizer"


def _is_on_host(given: dict[str, Any], name: str, older: str, where: str) -> bool:
    section, old = given.get(name), given.get(older)
    if section in (None, {}):
        return old is not None and flag(old, where + older)
    if not isinstance(section, dict):
        raise InputError(f"{where}{name}: {section!r} is no section; write {{'device': 'cpu'}}")
    device = section.get("device", "none")
    if device not in ("none", "cpu"):
        raise InputError(f"{where}{name}.device: {device!r} is not followed by the cost model; write 'cpu' or 'none'")
    for key, whole in _WHOLE.items():
        if section.get(key, whole) != whole:
            raise InputError(f"{where}{name}.{key}: {section[key]!r} is not followed by the cost model; delete the key")
    return bool(device == "cpu")
