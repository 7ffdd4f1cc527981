"""AutoParallel: a placement of every tensor of a graph over a mesh, by integer linear programming."""

from __future__ import annotations

import time
from collections import Counter

import torch
from peers_question import Answer, Question

TITLE = "AutoParallel"
SOURCE = "github.com/meta-pytorch/autoparallel at a54c252, docs/how_autoparallel_chooses_a_strategy.md"
SEARCHES = (
    "a DTensor placement of each operator, so tensor parallelism as well; one mesh; no micro-batch, no recomputation"
)
ASKED = ("llama-7b",)

DEVICE = "NVIDIA A100-SXM4-80GB"


def answers(question: Question) -> tuple[Answer, ...]:
    """Returns how its parameters are placed over one dimension of ranks, the batch sharded over the same."""
    from autoparallel._testing.models import llama3
    from autoparallel.api import AutoParallel
    from autoparallel.cost_models.nccl_cost_model import a100_topo_config
    from torch.distributed.fsdp import MixedPrecisionPolicy
    from torch.distributed.tensor.placement_types import Shard
    from torch.nn.attention import SDPBackend
    from torch.testing._internal.distributed.fake_pg import FakeStore

    # Without a GPU, it is told the device's name, and attention is in products whose placements DTensor knows.
    torch.cpu.get_device_name = lambda *_: DEVICE  # type: ignore[attr-defined]
    llama3.ScaledDotProductAttention.backends = [SDPBackend.MATH]
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=question.num_ranks)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (question.num_ranks,), mesh_dim_names=("dp",))
    batch = (question.global_batch_size, question.sequence_length)
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    with torch.device("meta"):
        model = llama3.Transformer(_shape(llama3, question))
    started_s = time.perf_counter()
    topology = a100_topo_config(num_nodes=question.num_nodes, gpus_per_node=question.ranks_per_node)
    with AutoParallel(model, lambda: torch.randint(0, 32000, batch), mesh, precision, cost_model=topology) as asked:
        asked.add_input_constraints([(Shard(0),)])
        asked.add_parameter_memory_constraint(low=None, high=None)
        traced_s = time.perf_counter() - started_s
        placed = asked.optimize_placement(verbose=False)
        solve_s = time.perf_counter() - started_s - traced_s
    placements = Counter(_placement(spec) for node, spec in placed.items() if node.op == "placeholder")
    counted = ", ".join(f"{number} {kind}" for kind, number in sorted(placements.items()))
    note = f"trace and program built in {traced_s:.0f} s; the batch in one step"
    return (Answer(f"parameters and inputs: {counted}", None, None, solve_s, None, note),)


def _shape(llama3, question: Question):  # type: ignore[no-untyped-def]
    config = question.config
    return llama3.TransformerModelArgs(
        dim=config["hidden_size"],
        n_layers=config["num_hidden_layers"],
        n_heads=config["num_attention_heads"],
        n_kv_heads=config["num_key_value_heads"],
        vocab_size=config["vocab_size"],
        max_seq_len=question.sequence_length,
    )


def _placement(spec) -> str:  # type: ignore[no-untyped-def]
    placement = spec.output_specs.placements[0]
    return f"over dimension {placement.dim}" if placement.is_shard() else "replicated"
