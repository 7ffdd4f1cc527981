"""Networks over images, of transformers."""

from __future__ import annotations

from typing import Any

import torch

from tests.zoo.entry import IMAGE_SIZE, Batch, Entry, labelled, pixels, tokens, transformer

VIT = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": IMAGE_SIZE,
    "patch_size": 16,
}
SWIN = {
    "image_size": IMAGE_SIZE,
    "patch_size": 4,
    "embed_dim": 24,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 4,
}
CONVOLUTIONS = {"hidden_sizes": [16, 32], "depths": [2, 2], "num_stages": 2}


def _classifier(class_name: str, fields: dict[str, Any], notes: str = "") -> Entry:
    return transformer(class_name, fields, labelled, family="image", notes=notes)


def _features(class_name: str, fields: dict[str, Any], notes: str = "") -> Entry:
    return transformer(class_name, fields, pixels, family="image", notes=notes, has_loss=False)


def _segmented(micro_batch_size: int) -> Batch:
    labels = torch.ones(micro_batch_size, IMAGE_SIZE, IMAGE_SIZE, dtype=torch.long)
    return {**pixels(micro_batch_size), "labels": labels}


vit = _classifier("ViTForImageClassification", VIT)
deit = _classifier("DeiTForImageClassification", VIT)
beit = _classifier("BeitForImageClassification", VIT)
data2vec_vision = _classifier("Data2VecVisionForImageClassification", VIT)
dinov2 = _features("Dinov2Model", VIT)
dinov2_registers = _features("Dinov2WithRegistersModel", VIT)
dinov3_vit = _features("DINOv3ViTModel", VIT)
siglip_vision = _features("SiglipVisionModel", VIT)
vit_mae = transformer(
    "ViTMAEForPreTraining",
    {
        **VIT,
        "decoder_hidden_size": 32,
        "decoder_num_hidden_layers": 2,
        "decoder_num_attention_heads": 2,
        "decoder_intermediate_size": 64,
    },
    pixels,
    family="image",
    notes="keeps a random quarter of the patches",
)
vit_msn = _classifier("ViTMSNForImageClassification", VIT)
ijepa = _classifier("IJepaForImageClassification", VIT)
swin = _classifier("SwinForImageClassification", SWIN, "shifted windows")
swinv2 = _classifier("Swinv2ForImageClassification", SWIN)
swin2sr = _features("Swin2SRModel", {**SWIN, "patch_size": 1, "window_size": 8, "embed_dim": 16, "upscale": 2})
convnext = _classifier("ConvNextForImageClassification", CONVOLUTIONS, "depthwise convolutions")
convnextv2 = _classifier("ConvNextV2ForImageClassification", CONVOLUTIONS)
resnet = _classifier(
    "ResNetForImageClassification",
    {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [2, 2], "layer_type": "basic"},
    "batch normalization",
)
regnet = _classifier(
    "RegNetForImageClassification",
    {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [2, 2], "groups_width": 8, "layer_type": "y"},
)
efficientnet = _classifier(
    "EfficientNetForImageClassification",
    {
        "image_size": IMAGE_SIZE,
        "width_coefficient": 0.25,
        "depth_coefficient": 0.2,
        "hidden_dim": 320,
        "drop_connect_rate": 0.0,
    },
)
mobilenet_v1 = _classifier("MobileNetV1ForImageClassification", {"depth_multiplier": 0.25, "image_size": IMAGE_SIZE})
mobilenet_v2 = _classifier("MobileNetV2ForImageClassification", {"depth_multiplier": 0.25, "image_size": IMAGE_SIZE})
mobilevit = _classifier(
    "MobileViTForImageClassification",
    {"image_size": IMAGE_SIZE, "hidden_sizes": [24, 32, 40], "neck_hidden_sizes": [8, 16, 24, 32, 40, 48, 64]},
)
segformer = transformer(
    "SegformerForSemanticSegmentation",
    {
        "hidden_sizes": [16, 16, 32, 32],
        "depths": [2, 1, 1, 1],
        "num_attention_heads": [1, 1, 2, 2],
        "decoder_hidden_size": 32,
    },
    _segmented,
    family="image",
)
pvt = _classifier(
    "PvtForImageClassification",
    {
        "image_size": IMAGE_SIZE,
        "hidden_sizes": [16, 16, 32, 32],
        "depths": [2, 1, 1, 1],
        "num_attention_heads": [1, 1, 2, 2],
    },
)
pvt_v2 = _classifier(
    "PvtV2ForImageClassification",
    {
        "image_size": {"height": IMAGE_SIZE, "width": IMAGE_SIZE},
        "hidden_sizes": [16, 16, 32, 32],
        "depths": [2, 1, 1, 1],
        "num_attention_heads": [1, 1, 2, 2],
    },
)
cvt = _classifier("CvtForImageClassification", {"embed_dim": [16, 32, 32], "num_heads": [1, 2, 2], "depth": [1, 2, 3]})
levit = _classifier(
    "LevitForImageClassification",
    {"image_size": IMAGE_SIZE, "hidden_sizes": [32, 48, 64], "num_attention_heads": [2, 3, 4], "depths": [2, 2, 2]},
)
poolformer = _classifier("PoolFormerForImageClassification", {"hidden_sizes": [16, 16, 32, 32], "depths": [2, 1, 1, 1]})
focalnet = _classifier(
    "FocalNetForImageClassification",
    {"image_size": IMAGE_SIZE, "embed_dim": 16, "depths": [2, 2], "focal_levels": [2, 2], "focal_windows": [3, 3]},
)
bit = _classifier("BitForImageClassification", {"embedding_size": 32, "hidden_sizes": [128, 256], "depths": [2, 2]})
dpt = transformer(
    "DPTForSemanticSegmentation",
    {
        **VIT,
        "num_hidden_layers": 4,
        "backbone_out_indices": [0, 1, 2, 3],
        "neck_hidden_sizes": [16, 16, 32, 32],
        "fusion_hidden_size": 32,
    },
    _segmented,
    family="image",
)
imagegpt = transformer(
    "ImageGPTForCausalImageModeling",
    {"vocab_size": 65, "n_positions": 64, "n_embd": 64, "n_layer": 3, "n_head": 4},
    lambda size: {"input_ids": tokens(size, 64, end=64), "labels": tokens(size, 64, end=64)},
    family="image",
)
videomae = transformer(
    "VideoMAEForVideoClassification",
    {**VIT, "num_frames": 4, "tubelet_size": 2},
    lambda size: {
        "pixel_values": torch.randn(size, 4, 3, IMAGE_SIZE, IMAGE_SIZE),
        "labels": torch.ones(size, dtype=torch.long),
    },
    family="image",
    notes="video",
)
