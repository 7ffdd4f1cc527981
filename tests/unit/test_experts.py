"""Expert layers: what holds experts stacked, which layers DeepSpeed gathers whole, and how near the trace is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from costmodels.deepspeed.knobs import DEFAULT_LEAF_CLASSES, choose_knobs, default_knobs
from costmodels.deepspeed.leaf_setting import leaf_setting
from costmodels.deepspeed.leaves import leaves_of
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Parameter, Workload
from hw_profiles.load import load
from planner.choose.ds_config import ds_config
from planner.errors import InputError
from planner.job import Job
from planner.model_graph import ModelGraph, ModelSource
from planner.pipeline import estimate
from planner.read.read_ds_config import read_ds_config
from planner.trace import trace
from planner.trace.blocks.find_experts import find_experts
from planner.trace.fake.fake_model import fake_model
from planner.trace.record.record_step import record_step
from planner.verify.real_step import real_model, real_step
from planner.verify.walk import walk

ROOT = Path(__file__).parents[2]
ZOO = ROOT / "tests" / "zoo" / "mixtures.py"
TRAFFIC = ROOT / "tests" / "integration" / "traffic_models.py"
B = 2


def source(name: str) -> ModelSource:
    return ModelSource(spec=f"{TRAFFIC if name == 'mixture' else ZOO}:{name}", kind="file")


@cache
def traced(name: str) -> ModelGraph:
    length = 8 if name == "mixture" else None
    return trace(source(name), precision="fp32", device="cpu", sequence_length=length)


class _Balanced(TorchDispatchMode):
    """Routers choose all experts alike, as the trace takes them to: the k-th choice of all tokens goes round."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.topk.default and args[0].is_floating_point():
            indices, num = result[1], args[0].shape[args[2] if len(args) > 2 else -1]
            indices.copy_((torch.arange(indices.numel()) % num).reshape(indices.shape))
        return result


@contextmanager
def balanced() -> Iterator[None]:
    with _Balanced():  # type: ignore[no-untyped-call]
        yield


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("qwen3_moe", "olmoe", "deepseek_v3", "gpt_oss")]


@pytest.mark.parametrize("name", ["mixtral", "jetmoe", "switch_transformers", "mixture", *SLOW])
def test_the_step_is_exact_where_routing_is_uniform(name: str) -> None:
    graph = traced(name)
    model = real_model(source(name), B, "fp32", graph.sequence_length)
    with balanced():
        real = real_step(model, None, [])
    walked = walk(graph.workload, B, recompute=False)
    assert (walked.saved_bytes, walked.peak_bytes) == (real.saved_bytes, real.peak_bytes)
    assert (walked.forward_flop, walked.backward_flop) == (real.forward_flop, real.backward_flop)


def stacked(name: str) -> dict[str, tuple[int, ...]]:
    return {p.name: p.shape for p in traced(name).workload.parameters if p.expert_axis == 0}


@pytest.mark.parametrize(
    ("name", "num_experts", "own_names"),
    [
        ("mixtral", 4, {"gate_up_proj", "down_proj"}),
        pytest.param("deepseek_v3", 8, {"gate_up_proj", "down_proj"}, marks=pytest.mark.slow),
        ("gpt_oss", 4, {"gate_up_proj", "gate_up_proj_bias", "down_proj", "down_proj_bias"}),
        ("llama4", 4, {"gate_up_proj", "down_proj"}),
        ("jetmoe", 4, {"weight"}),
    ],
)
def test_weights_that_hold_experts_stacked_are_known_by_their_use(
    name: str, num_experts: int, own_names: set[str]
) -> None:
    found = stacked(name)
    assert {own.rpartition(".")[2] for own in found} == own_names
    assert all(shape[0] == num_experts for shape in found.values())
    routers = [p for p in traced(name).workload.parameters if "gate." in p.name or "router" in p.name]
    assert routers
    assert not any(p.expert_axis is not None for p in routers)


def test_what_a_few_layers_show_holds_for_all_of_their_class(tmp_path: Path) -> None:
    fields = {"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 64, "num_local_experts": 4}
    fields |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 64}
    models = []
    for depth in (2, 6):
        path = tmp_path / str(depth) / "config.json"
        path.parent.mkdir()
        path.write_text(json.dumps(fields | {"num_hidden_layers": depth}))
        models.append(fake_model(ModelSource(spec=str(path), kind="hf_config"), B, "bf16", 16))
    few, many = models
    assert len(find_experts(many.facts, record_step(few, "cpu")).axes) == 2 * 6


def test_uniform_routing_is_said_once_with_how_many_of_how_many() -> None:
    warnings = traced("mixtral").warnings
    assert len([warning for warning in warnings if "uniform" in warning]) == 1
    assert len([warning for warning in warnings if "greatest 2 of 4" in warning]) == 1


def test_layers_that_call_experts_by_their_tokens_are_leaves_and_others_are_not() -> None:
    assert traced("mixture").workload.leaf_modules == ("layers.0.moe", "layers.1.moe")
    assert len(traced("switch_transformers").workload.leaf_modules) == 2
    for name in ("mixtral", "jetmoe", "llama4"):
        assert traced(name).workload.leaf_modules == ()
    informer = ModelSource(spec=f"{ROOT / 'tests' / 'zoo' / 'series.py'}:informer", kind="file")
    assert trace(informer, precision="fp32", device="cpu").workload.leaf_modules == ()  # reads by a choice, calls all
    assert any(warning.startswith("Experts: experts are called") for warning in traced("mixture").warnings)


@pytest.mark.parametrize("way", ["make_fx", "static"])
def test_a_fallback_knows_the_same_leaves_by_their_name(way: Literal["make_fx", "static"]) -> None:
    found = trace(source("mixture"), precision="fp32", device="cpu", sequence_length=8, way=way).workload
    assert found.leaf_modules == traced("mixture").workload.leaf_modules


SHAPE = StepShape(4, 2, 1, "fp32", "adamw", "cpu")


def configured(workload: Workload, stage: int) -> dict[str, Any]:
    degrees = {1: (1, 1, 1, 4), 3: (4, 4, 4, 4)}[stage]
    section: dict[str, Any] = ds_config(workload, (Strategy(*degrees),) * workload.num_classes, SHAPE)[
        "zero_optimization"
    ]
    return section


def test_stage_3_is_told_of_the_leaves_that_it_does_not_know() -> None:
    workload = traced("mixture").workload
    assert configured(workload, 3)["leaf_module"] == {"classes": [*DEFAULT_LEAF_CLASSES, "Experts"]}
    assert "leaf_module" not in configured(workload, 1)
    assert "leaf_module" not in configured(traced("mixtral").workload, 3)


def test_a_class_that_is_not_always_meant_is_told_by_its_modules() -> None:
    composites = (("one.Experts", ("a", "b")), ("other.Experts", ("c",)), ("mine.Router", ("d",)))
    workload = Workload((), (), (), composites=composites, leaf_modules=("a", "c", "d"))
    assert leaf_setting(workload, ()) == (("Router",), ("a", "c"))


def test_what_the_planner_writes_is_what_it_reads(tmp_path: Path) -> None:
    workload = traced("mixture").workload
    assignment = (Strategy(4, 4, 4, 4),) * workload.num_classes
    knobs = choose_knobs(workload, assignment, SHAPE)
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(ds_config(workload, assignment, SHAPE, knobs)))
    found = read_ds_config(path).knobs
    assert (found.leaf_classes, found.leaf_names, found.leaf_name_suffixes) == (knobs.leaf_classes, (), ())
    assert found.leaf_classes != DEFAULT_LEAF_CLASSES


def read(folder: Path, setting: Any) -> Any:
    path = folder / "ds.json"
    path.write_text(json.dumps({"zero_optimization": {"stage": 3, "leaf_module": setting}}))
    return read_ds_config(path).knobs


def test_the_setting_is_read_as_deepspeed_reads_it(tmp_path: Path) -> None:
    config = pytest.importorskip("deepspeed.runtime.zero.config").DeepSpeedZeroConfig
    for setting in (
        {"classes": ["Experts"]},
        {"classes": "Experts", "name_suffixes": "moe"},
        {"names": ["layers.0", "layers.0"]},
        {"classes": []},
        {},
    ):
        theirs = config(stage=3, leaf_module=setting).leaf_module
        own = read(tmp_path, setting)
        assert list(own.leaf_classes) == theirs.classes
        assert (list(own.leaf_names), list(own.leaf_name_suffixes)) == (theirs.names, theirs.name_suffixes)


@pytest.mark.parametrize(
    ("setting", "says"),
    [(["Experts"], "no section"), ({"class": ["Experts"]}, "no such key"), ({"names": 3}, "no list")],
)
def test_a_setting_that_deepspeed_refuses_is_refused(setting: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says):
        read(tmp_path, setting)


def test_a_config_without_the_leaves_that_a_model_needs_is_refused_with_what_to_write(tmp_path: Path) -> None:
    config = {"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1}
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(config))
    job = Job(global_batch_size=8, sequence_length=8, precision="fp32")
    profile = load("local-cpu", 1, 4)
    with pytest.raises(InputError, match=r"layers\.0\.moe") as refused:
        estimate(traced("mixture"), profile, job, ds_config=path)
    written = str(refused.value).partition('write "leaf_module": ')[2].partition(" into ")[0]
    config["zero_optimization"]["leaf_module"] = json.loads(written)
    path.write_text(json.dumps(config))
    assert estimate(traced("mixture"), profile, job, ds_config=path).predicted.step_s > 0


def test_a_leaf_within_a_leaf_is_none() -> None:
    parameters = (Parameter("a.x.w", (2,)), Parameter("a.y.w", (2,)), Parameter("b.w", (2,)))
    workload = Workload(parameters, (), (), composites=(("m.Outer", ("a",)), ("m.Inner", ("a.x", "b"))))
    knobs = default_knobs(3)
    assert leaves_of(workload, knobs) == {}
    settings = {"leaf_classes": ("m.Outer", "Inner")}
    changed = type(knobs)(**{name: getattr(knobs, name) for name in knobs.__dataclass_fields__} | settings)
    assert leaves_of(workload, changed) == {"a": (0, 1), "b": (2,)}
