"""What DeepSpeed 0.19.8 asks of offload and of quantized collectives: one rule each, with where it is from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from costmodels.deepspeed.gather import Gather, gathers
from costmodels.deepspeed.hooks import hooks
from costmodels.deepspeed.knobs import choose_knobs
from costmodels.deepspeed.quantized_gather import quantized_of_gather
from costmodels.engine import Assignment
from costmodels.quantized import quantized_reduce
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Parameter, Workload


@dataclass(frozen=True)
class Case:
    """What a rule looks at: degrees and options that all blocks share, at a ZeRO stage."""

    workload: Workload
    assignment: Assignment
    shape: StepShape
    stage: int

    @property
    def strategy(self) -> Strategy:
        """What all classes share."""
        return self.assignment[0]

    @property
    def offloads(self) -> bool:
        """Whether anything lies on the host."""
        return self.strategy.offload != "none"

    @property
    def is_hpz(self) -> bool:
        """Whether there is a secondary partition."""
        return 1 < self.strategy.secondary_degree < self.shape.world_size

    @property
    def quantizes(self) -> bool:
        """Whether weights or gradients are sent quantized."""
        return self.strategy.quantized_weights or self.strategy.quantized_gradients

    @property
    def num_nodes(self) -> int:
        """Nodes, as far as the ranks of one are known: else one."""
        return self.shape.world_size // (self.shape.ranks_per_node or self.shape.world_size)

    @cached_property
    def not_gathered(self) -> Gather | None:
        """A gather that qwZ cannot quantize."""
        knobs = choose_knobs(self.workload, self.assignment, self.shape)
        order = hooks(self.workload, self.assignment, knobs)
        step = gathers(self.workload, order, knobs, min(2, self.shape.num_micro_batches))
        every = (gather for micro_batch in step for gather in micro_batch.gathers)
        world_size = self.shape.world_size
        return next((e for e in every if quantized_of_gather(e, self.workload, world_size, knobs) is None), None)

    @cached_property
    def not_reduced(self) -> Parameter | None:
        """A gradient whose scales qgZ cannot deal out evenly."""
        world, inside = self.shape.world_size, self.shape.ranks_per_node or self.shape.world_size
        for parameter in self.workload.parameters:
            hops = quantized_reduce(parameter.shape, inside, world) if parameter.trainable else None
            if hops is not None and max(*parameter.shape[:2], world) % world:
                return parameter
        return None

    @property
    def is_quantizing_any(self) -> bool:
        """Whether there is a gradient that qgZ quantizes."""
        world, inside = self.shape.world_size, self.shape.ranks_per_node or self.shape.world_size
        return any(
            quantized_reduce(parameter.shape, inside, world) is not None
            for parameter in self.workload.parameters
            if parameter.trainable
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that DeepSpeed cannot do, or that would do nothing."""

    is_broken: Callable[[Case], bool]
    reason: str | Callable[[Case], str]
    source: str

    def text(self, case: Case) -> str:
        """Returns the reason in the case's own numbers."""
        return self.reason if isinstance(self.reason, str) else self.reason(case)


def broken(case: Case) -> Iterator[str]:
    """Yields the reasons of the rules that a case breaks, in the order of `RULES`."""
    return (rule.text(case) for rule in RULES if rule.is_broken(case))


def _names(gather: Gather, workload: Workload) -> str:
    first, *others = (workload.parameters[each].name for each in gather.parameters)
    return f"{first} and {len(others)} more, gathered together," if others else first


def _not_gathered(case: Case) -> str:
    assert case.not_gathered is not None
    degree = case.strategy.secondary_degree if case.not_gathered.secondary else case.shape.world_size
    return (
        f"qwZ quantizes shards in blocks of a multiple of 8 elements and at most 16,000: "
        f"{_names(case.not_gathered, case.workload)} cannot be cut so over {degree} ranks"
    )


def _not_reduced(case: Case) -> str:
    parameter = case.not_reduced
    assert parameter is not None
    blocks = max(*parameter.shape[:2], case.shape.world_size)
    return (
        f"qgZ deals out the scales of {parameter.name}, {blocks} of them, over {case.shape.world_size} ranks, which do "
        "not divide them"
    )


_STAGE_1_AND_2 = "deepspeed/runtime/zero/stage_1_and_2.py, 0.19.8"
_STAGE_3 = "deepspeed/runtime/zero/stage3.py, 0.19.8"
_PARTITION = "deepspeed/runtime/zero/partition_parameters.py, 0.19.8"
_COALESCED = "`all_to_all_quant_reduce`, deepspeed/runtime/comm/coalesced_collectives.py, 0.19.8"

RULES: tuple[Rule, ...] = (
    Rule(
        lambda case: case.offloads and case.stage == 0,
        "DeepSpeed offloads optimizer states at stages 1 to 3: stage 0 has no optimizer that does",
        f"`DeepSpeedZeRoOffloadOptimizerConfig`, deepspeed/runtime/zero/offload_config.py; {_STAGE_1_AND_2}",
    ),
    Rule(
        lambda case: case.strategy.offload == "all" and case.stage < 3,
        "DeepSpeed offloads parameters at stage 3 alone: at lower stages the setting does nothing",
        "`DeepSpeedZeroOffloadParamConfig`, deepspeed/runtime/zero/offload_config.py, 0.19.8",
    ),
    Rule(
        lambda case: case.offloads and case.is_hpz,
        "hpZ does not go with offload: training with both got stuck",
        "reports of users; `_partition_param_sec` puts the secondary shards on `remote_device`, " + _PARTITION,
    ),
    Rule(
        lambda case: case.offloads and case.quantizes,
        "quantized collectives are not planned with offload: they read their shards on the device",
        "`CUDAQuantizer.quantize`, " + _PARTITION,
    ),
    Rule(
        lambda case: case.quantizes and case.shape.device == "cpu",
        "DeepSpeed's quantizer kernels run on GPUs only",
        "deepspeed/ops/csrc/quantization/pt_binding.cpp, 0.19.8",
    ),
    Rule(
        lambda case: case.quantizes and case.stage < 3,
        "DeepSpeed quantizes at stage 3 alone: at lower stages the settings do nothing",
        _STAGE_3,
    ),
    Rule(
        lambda case: case.quantizes and case.shape.precision == "fp32",
        "DeepSpeed's quantizer works on 16 bits: plan with --precision fp16 or bf16",
        "deepspeed/ops/csrc/quantization/pt_binding.cpp, 0.19.8: it reads __half",
    ),
    Rule(
        lambda case: case.strategy.quantized_gradients and case.shape.precision == "bf16",
        "qgZ reads gradients as fp16, and would take those of bf16 for other numbers: use --precision fp16",
        f"{_COALESCED}, and ds_swizzle_quant, deepspeed/ops/csrc/quantization/pt_binding.cpp: no conversion to half",
    ),
    Rule(
        lambda case: case.strategy.quantized_gradients and case.num_nodes < 2,
        "qgZ does nothing on one node: DeepSpeed then reduces as without it",
        f"`__avg_scatter_grads`, {_STAGE_3}",
    ),
    Rule(
        lambda case: case.strategy.quantized_gradients and case.not_reduced is not None,
        _not_reduced,
        f"{_COALESCED}: all_to_all_single of the scales needs equal parts",
    ),
    Rule(
        lambda case: case.strategy.quantized_gradients and not case.is_quantizing_any,
        "qgZ finds no gradient to quantize: of two dimensions or more, and divided by twice the ranks",
        _COALESCED,
    ),
    Rule(
        lambda case: case.strategy.quantized_weights and case.not_gathered is not None,
        _not_gathered,
        "`CUDAQuantizer.quantize`, " + _PARTITION,
    ),
)
