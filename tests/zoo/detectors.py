"""Detection, segmentation by queries, and depth, of transformers."""

from __future__ import annotations

import torch

from tests.zoo.entry import IMAGE_SIZE, pixels, tokens, transformer
from tests.zoo.images import VIT

BACKBONE = {
    "model_type": "resnet",
    "embedding_size": 16,
    "hidden_sizes": [16, 32, 32, 32],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
}
QUERIES = {
    "use_timm_backbone": False,
    "use_pretrained_backbone": False,
    "backbone": None,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "num_queries": 10,
    "num_labels": 5,
}
LAST = {**BACKBONE, "out_features": ["stage4"]}
STAGES = {**BACKBONE, "out_features": ["stage2", "stage3", "stage4"]}

detr = transformer(
    "DetrForObjectDetection",
    {**QUERIES, "backbone_config": LAST},
    pixels,
    family="detection",
    notes="the loss by matching is left out: it reads values",
    has_loss=False,
)
conditional_detr = transformer(
    "ConditionalDetrForObjectDetection",
    {**QUERIES, "backbone_config": LAST},
    pixels,
    family="detection",
    has_loss=False,
)
table_transformer = transformer(
    "TableTransformerForObjectDetection",
    {**QUERIES, "backbone_config": LAST, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0},
    pixels,
    family="detection",
    has_loss=False,
)
deformable_detr = transformer(
    "DeformableDetrForObjectDetection",
    {**QUERIES, "backbone_config": STAGES},
    pixels,
    family="detection",
    notes="samples features where it predicts",
    has_loss=False,
)
rt_detr = transformer(
    "RTDetrForObjectDetection",
    {
        "backbone_config": {
            "model_type": "rt_detr_resnet",
            "embedding_size": 16,
            "hidden_sizes": [16, 32, 32, 32],
            "depths": [1, 1, 1, 1],
            "layer_type": "basic",
            "out_features": ["stage2", "stage3", "stage4"],
        },
        "encoder_in_channels": [32, 32, 32],
        "encoder_hidden_dim": 32,
        "encoder_ffn_dim": 64,
        "encoder_attention_heads": 2,
        "d_model": 32,
        "decoder_in_channels": [32, 32, 32],
        "decoder_ffn_dim": 64,
        "decoder_layers": 2,
        "decoder_attention_heads": 2,
        "num_queries": 10,
        "num_denoising": 0,
        "num_labels": 5,
    },
    pixels,
    family="detection",
    notes="keeps the best of its proposals",
    has_loss=False,
)
yolos = transformer(
    "YolosForObjectDetection",
    {**VIT, "image_size": [IMAGE_SIZE, IMAGE_SIZE], "num_detection_tokens": 10},
    pixels,
    family="detection",
    has_loss=False,
)
owlvit_detection = transformer(
    "OwlViTForObjectDetection",
    {
        "text_config": {**VIT, "vocab_size": 512, "max_position_embeddings": 16},
        "vision_config": VIT,
        "projection_dim": 64,
    },
    lambda size: {"input_ids": tokens(size * 2, 16), **pixels(size)},
    family="detection",
    has_loss=False,
)
depth_anything = transformer(
    "DepthAnythingForDepthEstimation",
    {
        "backbone_config": {
            **VIT,
            "model_type": "dinov2",
            "num_hidden_layers": 4,
            "out_features": ["stage1", "stage2", "stage3", "stage4"],
            "reshape_hidden_states": False,
        },
        "patch_size": 16,
        "reassemble_hidden_size": 64,
        "neck_hidden_sizes": [16, 16, 32, 32],
        "fusion_hidden_size": 32,
    },
    pixels,
    family="detection",
    has_loss=False,
)
superpoint = transformer(
    "SuperPointForKeypointDetection",
    {"encoder_hidden_sizes": [16, 16, 32, 32], "decoder_hidden_size": 32, "descriptor_decoder_dim": 32},
    lambda size: {"pixel_values": torch.randn(size, 3, IMAGE_SIZE, IMAGE_SIZE)},
    family="detection",
    notes="the number of points depends on the image",
    has_loss=False,
)
