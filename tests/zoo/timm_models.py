"""Networks over images, of timm. torchvision does not load beside a CPU build of torch: a stand-in has its names."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from torch import nn

from tests.zoo.entry import Entry, network
from tests.zoo.stand_in_torchvision import stand_in_torchvision

IS_INSTALLED = importlib.util.find_spec("timm") is not None
SIZE = 64


def _timm(name: str, notes: str = "", **fields: Any) -> Entry:
    def build() -> nn.Module:
        # transformers asks once whether there is a torchvision, and must not be told of the stand-in.
        import transformers.utils.import_utils  # noqa: F401

        with stand_in_torchvision():
            import timm

        module: nn.Module = timm.create_model(name, pretrained=False, num_classes=10, **fields)
        return module

    return network(
        build, lambda size: {"x": torch.randn(size, 3, SIZE, SIZE)}, family="timm", notes=notes, has_loss=False
    )


_SMALL = {"img_size": SIZE, "embed_dim": 64, "depth": 3, "num_heads": 4}

timm_vit = _timm("vit_tiny_patch16_224", **_SMALL)
timm_deit3 = _timm("deit3_small_patch16_224", **_SMALL)
timm_swin = _timm(
    "swin_tiny_patch4_window7_224", img_size=SIZE, embed_dim=24, depths=(2, 2), num_heads=(2, 4), window_size=4
)
timm_mixer = _timm("mixer_s32_224", img_size=SIZE)
timm_resnet = _timm("resnet18", block_args={})
timm_efficientnet = _timm("efficientnet_b0")
timm_convnext = _timm("convnext_atto", depths=(1, 1, 2, 1), dims=(16, 16, 32, 32))
timm_regnet = _timm("regnety_002", "squeeze and excitation")
timm_mobilenet = _timm("mobilenetv3_small_050")
timm_nfnet = _timm("nf_resnet26", "standardized weights, no batch normalization")
timm_maxvit = _timm("maxvit_rmlp_pico_rw_256", img_size=SIZE, depths=(1, 1, 1, 1), embed_dim=(32, 32, 64, 64))
timm_densenet = _timm("densenet121", growth_rate=8, block_config=(2, 2, 2, 2))
