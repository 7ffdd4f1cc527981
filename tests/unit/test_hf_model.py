"""Every task's batch gives its model a loss, on a real CPU, and the trace takes the same step."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from hf_configs import CONFIGS

from planner.model_graph import ModelSource
from planner.trace import trace
from runtime.data import samples_like
from runtime.hf_tasks import TASKS, classes_of
from runtime.load_model import build, cast_floats, kept_inputs, known_sequence_length, loss_of
from runtime.model_errors import UsageError

NUM_SAMPLES = 3
SMALL = {
    "SegformerForSemanticSegmentation": 64,
    "DetrForObjectDetection": 64,
    "ResNetForImageClassification": 32,
    "Qwen2VLForConditionalGeneration": 32,
    "Qwen2_5_VLForConditionalGeneration": 32,
}
"""Sides of images whose configs do not say one."""
TRACED_EACH_TIME = frozenset(
    {
        "DetrForObjectDetection",
        "Qwen2VLForConditionalGeneration",
        "VideoMAEForPreTraining",
        "Wav2Vec2ForCTC",
    }
)
"""Of the classes, those whose batches are furthest from tokens; the others are traced by the slow tests."""


def _spec(folder: Path, name: str, **more: object) -> str:
    model_type, fields = CONFIGS[name]
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": model_type, "architectures": [name], **fields, **more}))
    return str(path)


def _arguments(name: str) -> dict[str, str]:
    return {"image_size": str(SMALL[name])} if name in SMALL else {}


def _length(spec: str, name: str) -> int | None:
    return None if known_sequence_length(spec, "hf_config", _arguments(name), None) is None else 32


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_gives_its_class_a_batch_with_a_loss_and_data_like_it_too(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    spec, arguments = _spec(tmp_path, name), _arguments(name)
    model, batch = build(spec, "hf_config", arguments, NUM_SAMPLES, _length(spec, name))
    assert type(model).__name__ == name
    for value in batch.values():
        assert not isinstance(value, torch.Tensor | list) or len(value) == NUM_SAMPLES
    loss = loss_of(model.train()(**batch))
    assert torch.isfinite(loss)
    loss.backward()  # type: ignore[no-untyped-call]
    generated = samples_like(batch, NUM_SAMPLES, seed=1, kept=kept_inputs(spec, "hf_config", arguments))
    assert torch.isfinite(loss_of(model(**cast_floats(generated.batch(range(5, 7)), torch.float32))))


@pytest.mark.parametrize(
    "name", [name if name in TRACED_EACH_TIME else pytest.param(name, marks=pytest.mark.slow) for name in CONFIGS]
)
def test_a_config_of_every_task_is_traced_with_all_its_parameters(name: str, tmp_path: Path) -> None:
    spec, arguments = _spec(tmp_path, name), _arguments(name)
    length = _length(spec, name)
    source = ModelSource(spec=spec, kind="hf_config", arguments=arguments)
    graph = trace(source, precision="fp32", device="cpu", sequence_length=length)
    model, _ = build(spec, "hf_config", arguments, 1, length)
    assert graph.traced_by == "fake"
    shapes = [(parameter.name, parameter.shape) for parameter in graph.workload.parameters]
    assert shapes == [(each, tuple(parameter.shape)) for each, parameter in model.named_parameters()]
    assert sum(segment.flop.at(1) for segment in graph.workload.segments) > 0
    assert graph.sequence_length == length


@pytest.mark.parametrize(
    ("fields", "arguments", "text"),
    [
        ({"model_type": "vit", "architectures": ["ViTModel"]}, {}, "ViTModel computes no loss .*ViTForImageClassif"),
        ({"model_type": "vit"}, {"architecture": "BertForMaskedLM"}, "is no class for the model type 'vit': give"),
        ({"model_type": "vit"}, {"architecture": "ViTForEverything"}, "no model class 'ViTForEverything': give"),
        ({"model_type": "vit"}, {"depth": "3"}, "has no field 'depth'"),
        ({"model_type": "glpn"}, {}, "has no class with a loss for the model type 'glpn'"),
        ({"model_type": "gpt2"}, {"architecture": "GPT2ForSequenceClassification"}, "give --model-arg pad_token_id=0"),
        ({"model_type": "mllama"}, {}, "how many tokens stand for an image is not known .*'mllama'; write a callable"),
        ({"model_type": "llava"}, {"image_size": "4096"}, "an image takes .* tokens, so --sequence-length must be"),
        ({"model_type": "seamless_m4t_v2"}, {"architecture": "SeamlessM4Tv2ForSpeechToText"}, "features .*not known"),
    ],
)
def test_a_config_without_a_known_batch_says_what_to_give(
    fields: dict[str, object], arguments: dict[str, str], text: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(fields))
    with pytest.raises(UsageError, match=text):
        build(str(tmp_path), "hf_config", arguments, 2, None)


def test_what_has_no_tokens_takes_no_sequence_length(tmp_path: Path) -> None:
    spec = _spec(tmp_path, "ViTForImageClassification")
    with pytest.raises(UsageError, match="image-classification has no tokens; leave --sequence-length out"):
        build(spec, "hf_config", {}, 2, 16)
    assert known_sequence_length(spec, "hf_config", {}, None) is None


@pytest.mark.parametrize(
    ("model_type", "expected"),
    [("bert", "BertForMaskedLM"), ("bart", "BartForConditionalGeneration"), ("llama", "LlamaForCausalLM")],
)
def test_a_model_type_without_architectures_has_the_first_task_in_order(
    model_type: str, expected: str, tmp_path: Path
) -> None:
    fields = next(given for kind, given in CONFIGS.values() if kind == model_type)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type, **fields}))
    model, _ = build(str(tmp_path), "hf_config", {}, 2, 8)
    assert type(model).__name__ == expected


def test_labels_follow_the_type_of_the_problem(tmp_path: Path) -> None:
    for more, shape, is_float in (
        ({"num_labels": 5}, (2,), False),
        ({"num_labels": 1}, (2,), True),
        ({"num_labels": 3, "problem_type": "multi_label_classification"}, (2, 3), True),
        ({"num_labels": 3, "problem_type": "regression"}, (2, 3), True),
    ):
        model, batch = build(_spec(tmp_path, "BertForSequenceClassification", **more), "hf_config", {}, 2, 8)
        assert (tuple(batch["labels"].shape), batch["labels"].is_floating_point()) == (shape, is_float)
        assert torch.isfinite(loss_of(model(**batch)))


def test_the_tasks_are_documented_in_the_order_in_which_they_are_chosen() -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    listed = page.split("that its model type has a class for:")[1].split("A class without a loss")[0]
    assert re.findall(r"`([a-z0-9-]+)`", listed) == [task.name for task in TASKS]


def test_every_task_has_a_small_config() -> None:
    named = {
        task.name for model_type, _ in CONFIGS.values() for name, task in classes_of(model_type) if name in CONFIGS
    }
    assert named == {task.name for task in TASKS}
