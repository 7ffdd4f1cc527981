"""Memory that surprised people, as they reported it.

Of the rest of the kind, other tests have:

| what | where |
|---|---|
| 72B on one node: refused with the arithmetic and the nodes that would do | test_pipeline: test_72b_on_one_node_is_refused_with_the_number_of_nodes_that_would_do |
| 70B on 24 cards: refused without offload, planned with it, with the host memory of a node | test_pipeline: test_70b_on_24_gpus_fits_with_offload_alone_and_says_the_host_memory |
| a tied weight is one parameter | test_trace: test_a_tied_weight_is_one_parameter_seen_at_both_calls |
"""  # noqa: E501

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from field_models import FIELD, GIB, MIB, behind_a_frozen_backbone, config_file, graph_of, trained_only

from hw_profiles.load import load
from planner import Job, Plan, estimate, plan
from planner.errors import TraceError
from planner.model_graph import ModelGraph, ModelSource
from planner.plan import PredictedMemory
from planner.trace import trace

BUCKETS = {"reduce_bucket_size": 500_000_000, "allgather_bucket_size": 500_000_000}


def test_a_model_that_is_built_whole_needs_all_its_weights_more(tmp_path: Path) -> None:
    published = FIELD["built_whole"]
    graph = graph_of("6.8B", "fp16")
    assert graph.workload.num_params == pytest.approx(float(published["num_params"]), rel=1e-3)
    answer = estimate(
        graph,
        load("dgx-a100-80gb", 1, int(published["ranks"])),
        Job(global_batch_size=4, precision="fp16"),
        ds_config=config_file(tmp_path, {"stage": 3}, fp16={"enabled": True}),
    )
    memory = answer.predicted.memory
    whole_bytes = 2 * graph.workload.num_params
    assert whole_bytes / MIB == pytest.approx(float(published["whole_MiB"]), rel=1e-3)
    assert memory.init_peak_bytes < memory.at_rest_bytes < memory.peak_bytes
    (warning,) = [text for text in answer.warnings if "deepspeed.zero.Init" in text]
    assert f"building needs {memory.init_peak_bytes / GIB:.2f} GiB per rank" in warning
    assert f"first needs {whole_bytes / GIB:.2f} GiB more" in warning


def seven_billion(folder: Path, stage: int, **more: object) -> Plan:
    config = config_file(folder, {"stage": stage, **BUCKETS}, fp16={"enabled": True}, **more)
    job = Job(global_batch_size=8, micro_batch_size=1, precision="fp16")
    return estimate(graph_of("7B", "fp16"), load("dgx2-v100-32gb", 1, 8), job, ds_config=config)


def test_7b_at_stage_2_does_not_fit_32_gb_by_what_its_optimizer_asks_for(tmp_path: Path) -> None:
    published = FIELD["stage_2_of_7b"]
    memory = seven_billion(tmp_path, 2).predicted.memory
    assert memory.peak_phase == "update"
    # What was allocated when more was asked for; it is within 1 %.
    assert memory.peak_bytes / GIB == pytest.approx(float(published["allocated_GiB"]), rel=0.01)
    (warning,) = [text for text in seven_billion(tmp_path, 2).warnings if "fused=True" in text]
    assert f"needs {float(published['asked_GiB']):.2f} GiB beside the update's" in warning
    assert "does not fit" in warning


def test_7b_at_stage_3_or_with_a_fused_optimizer_fits_32_gb(tmp_path: Path) -> None:
    named = {"optimizer": {"type": "AdamW"}}
    for answer in (seven_billion(tmp_path, 3), seven_billion(tmp_path, 2, **named)):
        assert answer.predicted.memory.peak_bytes <= answer.predicted.memory.budget_bytes
        assert not any("does not fit" in text for text in answer.warnings)


@cache
def behind_frozen_32b() -> ModelGraph:
    return behind_a_frozen_backbone(graph_of("backbone"), graph_of("expert"))


def frozen_32b_memory(folder: Path, stage: int, size: int) -> PredictedMemory:
    job = Job(global_batch_size=8 * size, micro_batch_size=size, recompute="none")
    config = config_file(folder, {"stage": stage, **BUCKETS}, bf16={"enabled": True})
    return estimate(behind_frozen_32b(), load("dgx-a100-80gb", 1), job, ds_config=config).predicted.memory


def test_a_model_behind_a_frozen_backbone_has_its_published_size() -> None:
    workload, published = behind_frozen_32b().workload, FIELD["frozen_34b"]
    assert workload.num_params == pytest.approx(float(published["num_params"]), rel=0.005)
    assert workload.num_trainable_params == pytest.approx(float(published["num_trainable_params"]), rel=0.005)


@pytest.mark.parametrize(
    ("stage", "size", "gibibytes"),
    [
        (stage, int(size), float(gibibytes))
        for stage in (2, 3)
        for size, gibibytes in FIELD["frozen_34b"][f"stage_{stage}_GiB"].items()
    ],
)
def test_peaks_behind_a_frozen_backbone_are_as_published(
    stage: int, size: int, gibibytes: float, tmp_path: Path
) -> None:
    memory = frozen_32b_memory(tmp_path, stage, max(1, size))
    seen = memory.peak_bytes if size else memory.at_rest_bytes
    assert seen / GIB == pytest.approx(gibibytes, rel=float(FIELD["frozen_34b"]["tolerance"]))


def bert_large(folder: Path, stage: int) -> Plan:
    path = config_file(folder, {"stage": stage, **BUCKETS, "overlap_comm": False}, fp16={"enabled": True})
    published = FIELD["bert_large"]
    job = Job(
        global_batch_size=int(published["global_batch"]),
        micro_batch_size=int(published["micro_batch"]),
        precision="fp16",
    )
    machine = load("dgx2-v100-32gb", 1, int(published["ranks"]))
    return estimate(graph_of("BERT-large", "fp16"), machine, job, ds_config=path)


def test_stage_2_of_a_small_model_is_slower_and_its_buckets_cost_what_it_saves(tmp_path: Path) -> None:
    """It was 8 % *more* memory with a DeepSpeed of 2021; 0.19.8 has the bucket at stage 1 too, and 7 % less is left.

    Without its bucket, as stage 1 was then, stage 2 holds as much more as was published.
    """
    first, second = (bert_large(tmp_path, stage).predicted for stage in (1, 2))
    assert second.step_s > first.step_s
    assert first.memory.components.buffers == second.memory.components.buffers == 2 * 500_000_000
    assert second.memory.peak_bytes > 0.9 * first.memory.peak_bytes
    published = FIELD["bert_large"]
    bare_bytes = first.memory.peak_bytes - first.memory.components.buffers
    assert second.memory.peak_bytes / bare_bytes == pytest.approx(
        float(published["stage_2_MB"] / published["stage_1_MB"]), rel=0.02
    )


def test_a_small_model_gets_a_small_stage_and_small_buckets() -> None:
    published = FIELD["bert_large"]
    graph = graph_of("BERT-large", "fp16")
    machine = load("dgx2-v100-32gb", 1, int(published["ranks"]))
    answer = plan(graph, machine, Job(global_batch_size=int(published["global_batch"]), precision="fp16"))
    zero = answer.ds_config["zero_optimization"]
    assert zero["stage"] == 1
    assert zero["reduce_bucket_size"] <= graph.workload.num_params / 8


def test_sharding_what_is_hardly_trained_is_said_to_save_nothing() -> None:
    published = FIELD["frozen_30b"]
    graph = trained_only(graph_of("30B"), lambda name: name.endswith("attention.k.weight"))
    workload = graph.workload
    assert workload.num_params == pytest.approx(float(published["num_params"]), rel=0.02)
    assert workload.num_trainable_params == pytest.approx(float(published["num_trainable_params"]), rel=0.01)
    answer = plan(graph, load("dgx-a100-80gb", 1), Job(global_batch_size=8, recompute="full"))
    saved_bytes = 14 * workload.num_trainable_params
    assert any(f"saves at most {saved_bytes / GIB:.2f} GiB per rank" in text for text in answer.warnings)
    # The parameters fit whole, so they are not sharded; of the rest it matters little whether it is.
    assert {each.param_degree for each in answer.strategies} == {1}
    (whole,) = [other for other in answer.alternatives if other.name == "DDP"]
    assert whole.step_s == pytest.approx(answer.predicted.step_s, rel=0.002)
    assert whole.peak_bytes - answer.predicted.memory.peak_bytes <= saved_bytes


def test_a_model_that_is_trained_whole_is_told_nothing_of_the_kind() -> None:
    answer = plan(graph_of("BERT-large"), load("dgx-a100-80gb", 1), Job(global_batch_size=8))
    assert not any("saves at most" in text for text in answer.warnings)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tied", [True, False])
def test_gpt2_small_has_its_embedding_once_only_where_it_is_tied(tied: bool, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps(
            {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "tie_word_embeddings": tied, "n_layer": 12}
        )
    )
    source = ModelSource(spec=str(path), kind="hf_config")
    graph = trace(source, precision="bf16", device="cuda", sequence_length=32)
    assert graph.workload.num_params == FIELD["gpt2_small"]["num_params" if tied else "untied"]


PARTITIONED = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.second(self.first(x)).square().mean()

def make(micro_batch_size, shapes=True):
    net = Net()
    for parameter in net.parameters():
        if shapes:  # as deepspeed.zero.Init leaves them
            parameter.ds_shape, parameter.ds_numel = parameter.shape, parameter.numel()
        parameter.data = torch.empty(0, dtype=parameter.dtype)
    return net, {"x": torch.zeros(micro_batch_size, 8)}
"""


def partitioned(folder: Path, shapes: bool) -> ModelSource:
    (folder / "net.py").write_text(PARTITIONED)
    return ModelSource(spec=f"{folder / 'net.py'}:make", kind="file", arguments={"shapes": str(shapes).lower()})


@pytest.mark.filterwarnings("ignore")
def test_a_partitioned_model_counts_with_its_full_size(tmp_path: Path) -> None:
    graph = trace(partitioned(tmp_path, shapes=True), precision="bf16", device="cuda")
    assert graph.workload.num_params == 2 * 8 * 32 + 32 + 8
    assert graph.traced_by == "fake"


@pytest.mark.filterwarnings("ignore")
def test_a_model_without_an_element_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no parameter has an element"):
        trace(partitioned(tmp_path, shapes=False), precision="bf16", device="cuda")


EXPERTS = {
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "tie_word_embeddings": False,
}


@pytest.mark.filterwarnings("ignore")
def test_logits_are_named_as_the_largest_activation(tmp_path: Path) -> None:
    published = FIELD["moe_logits"]
    (tmp_path / "config.json").write_text(json.dumps(EXPERTS))
    source = ModelSource(spec=str(tmp_path / "config.json"), kind="hf_config")
    graph = trace(source, precision="bf16", device="cuda", sequence_length=int(published["sequence_length"]))
    largest = graph.largest_activation
    assert largest is not None
    assert largest.are_logits
    assert (largest.module, largest.dtype) == ("lm_head", "float32")
    assert largest.bytes_per_sample / GIB == pytest.approx(float(published["logits_GiB"]), rel=0.005)
    answer = estimate(graph, load("dgx-h200", 4), Job(global_batch_size=32), (32, 32, 32))
    assert any("the logits of lm_head in float32" in text for text in answer.warnings)
