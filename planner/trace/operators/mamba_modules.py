"""The layers of mamba_ssm, for models that are made of them: their parameters, and the kernels that they call.

Source: mamba_ssm 2.3.2, mamba_ssm/modules/mamba_simple.py and mamba2.py, on their fast path.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from planner.trace.operators.entry import entries
from planner.trace.operators.mamba2_inner import mamba_split_conv1d_scan_combined
from planner.trace.operators.mamba_inner import mamba_inner_fn

_FREE = frozenset(
    {
        "A_init_range",
        "D_has_hdim",
        "activation",
        "conv_init",
        "d_ssm",
        "device",
        "dt_init",
        "dt_init_floor",
        "dt_limit",
        "dt_max",
        "dt_min",
        "dt_scale",
        "dtype",
        "norm_before_gate",
        "use_fast_path",
        "use_mem_eff_path",
    }
)
"""Settings that change neither parameters nor kernels, as far as they are at their defaults."""
_DEFAULTS = {"D_has_hdim": False, "d_ssm": None, "use_fast_path": True, "use_mem_eff_path": True}


class Mamba(nn.Module):
    """mamba_ssm.Mamba: (batch, length, d_model) to the same."""

    def __init__(
        self,
        d_model: int,
        d_state: int = 16,
        d_conv: int = 4,
        expand: int = 2,
        dt_rank: int | str = "auto",
        conv_bias: bool = True,
        bias: bool = False,
        layer_idx: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        _refuse(self, settings)
        rank = math.ceil(d_model / 16) if dt_rank == "auto" else int(dt_rank)
        inner = int(expand * d_model)
        self.layer_idx = layer_idx
        self.in_proj = nn.Linear(d_model, 2 * inner, bias=bias)
        self.conv1d = nn.Conv1d(inner, inner, d_conv, groups=inner, padding=d_conv - 1, bias=conv_bias)
        self.x_proj = nn.Linear(inner, rank + 2 * d_state, bias=False)
        self.dt_proj = nn.Linear(rank, inner, bias=True)
        self.A_log = nn.Parameter(torch.ones(inner, d_state))
        self.D = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, d_model, bias=bias)

    def forward(self, hidden_states: torch.Tensor, inference_params: Any = None) -> torch.Tensor:  # noqa: ARG002, D102
        batch, length, width = hidden_states.shape
        flat = hidden_states.permute(2, 0, 1).reshape(width, batch * length)
        xz = (self.in_proj.weight @ flat).view(-1, batch, length).transpose(0, 1)
        if self.in_proj.bias is not None:
            xz = xz + self.in_proj.bias.to(xz.dtype)[:, None]
        weights = (self.conv1d.weight, self.conv1d.bias, self.x_proj.weight, self.dt_proj.weight)
        outputs = (self.out_proj.weight, self.out_proj.bias)
        a = -torch.exp(self.A_log.float())
        return mamba_inner_fn(
            xz, *weights, *outputs, a, None, None, self.D.float(), delta_bias=self.dt_proj.bias.float()
        )


class _GatedNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))


class Mamba2(nn.Module):
    """mamba_ssm.Mamba2: (batch, length, d_model) to the same."""

    def __init__(
        self,
        d_model: int,
        d_state: int = 128,
        d_conv: int = 4,
        expand: int = 2,
        headdim: int = 64,
        ngroups: int = 1,
        bias: bool = False,
        conv_bias: bool = True,
        chunk_size: int = 256,
        rmsnorm: bool = True,
        layer_idx: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        _refuse(self, settings)
        inner = expand * d_model
        self.headdim, self.ngroups, self.chunk_size, self.layer_idx = headdim, ngroups, chunk_size, layer_idx
        num_heads, width = inner // headdim, inner + 2 * ngroups * d_state
        self.in_proj = nn.Linear(d_model, inner + width + num_heads, bias=bias)
        self.conv1d = nn.Conv1d(width, width, d_conv, groups=width, padding=d_conv - 1, bias=conv_bias)
        self.dt_bias = nn.Parameter(torch.ones(num_heads))
        self.A_log = nn.Parameter(torch.ones(num_heads))
        self.D = nn.Parameter(torch.ones(num_heads))
        self.norm = _GatedNorm(inner) if rmsnorm else None
        self.out_proj = nn.Linear(inner, d_model, bias=bias)

    def forward(self, u: torch.Tensor, inference_params: Any = None, **_: Any) -> torch.Tensor:  # noqa: ARG002, D102
        return mamba_split_conv1d_scan_combined(
            self.in_proj(u),
            self.conv1d.weight.squeeze(1),
            self.conv1d.bias,
            self.dt_bias,
            -torch.exp(self.A_log.float()),
            self.D,
            self.chunk_size,
            rmsnorm_weight=None if self.norm is None else self.norm.weight,
            outproj_weight=self.out_proj.weight,
            outproj_bias=self.out_proj.bias,
            headdim=self.headdim,
            ngroups=self.ngroups,
        )


def _refuse(module: nn.Module, settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        if name not in _FREE or (name in _DEFAULTS and value != _DEFAULTS[name]):
            raise NotImplementedError(f"{type(module).__name__} of mamba_ssm is planned for without {name}={value!r}")


ENTRIES = (
    *entries(("mamba_ssm", "mamba_ssm.modules.mamba_simple"), Mamba),
    *entries(("mamba_ssm", "mamba_ssm.modules.mamba2"), Mamba2),
)
