"""A plan and a machine written by hand, with round numbers: what the report and the explanation are tested on."""

from hw_profiles.devices import Device, Host
from hw_profiles.schema import Curve, CurvePoint, HardwareProfile, Level
from planner.model_graph import ModelSource
from planner.plan import (
    Alternative,
    ExposedTime,
    MemoryComponents,
    Plan,
    PlannedHardware,
    PlannedJob,
    PlannedLevel,
    PlannedModel,
    PlannedStrategy,
    Predicted,
    PredictedMemory,
    PredictedTraffic,
    SolverReport,
)

GIB = 1024**3


def strategy(p, g, o, *, secondary=None, blocks=("embed", "blocks.0", "blocks.1", "head"), recompute="none"):
    return PlannedStrategy(
        blocks=blocks,
        param_degree=p,
        secondary_degree=p if secondary is None else secondary,
        grad_degree=g,
        optim_degree=o,
        recompute=recompute,
    )


def alternative(name, degrees, step_s, peak_gib, verdict, engine="deepspeed"):
    return Alternative(
        name=name,
        engine=engine,
        strategies=(strategy(*degrees),),
        micro_batch_size=4,
        step_s=step_s,
        peak_bytes=int(peak_gib * GIB),
        verdict=verdict,
    )


COMPONENTS = MemoryComponents(
    parameters=2 * GIB,
    gradients=2 * GIB,
    optimizer_states=GIB // 2,
    activations=20 * GIB,
    gathered_parameters=0,
    buffers=GIB,
    optimizer_step=0,
    reserved=GIB // 2,
)

PLAN = Plan(
    model=PlannedModel(
        name="Net",
        num_params=1_073_741_824,
        num_trainable_params=1_073_741_824,
        source=ModelSource(spec="/models/model.py:net", kind="file", arguments={"width": "1024"}),
    ),
    hardware=PlannedHardware(
        name="dgx-a100-80gb",
        device="A100-SXM4-80GB",
        device_kind="cuda",
        world_size=32,
        ranks_per_node=8,
        levels=(PlannedLevel(name="node", size=8), PlannedLevel(name="cluster", size=4)),
    ),
    job=PlannedJob(
        global_batch_size=256,
        micro_batch_size=4,
        num_micro_batches=2,
        sequence_length=512,
        precision="bf16",
        optimizer="adamw",
    ),
    engine="deepspeed",
    native_deepspeed=True,
    strategies=(strategy(1, 1, 32),),
    predicted=Predicted(
        step_s=0.200,
        compute_s=0.150,
        exposed_communication_s=0.050,
        tokens_per_s=256 * 512 / 0.200,
        mfu=0.412,
        memory=PredictedMemory(
            peak_bytes=26 * GIB,
            at_rest_bytes=6 * GIB,
            init_peak_bytes=8 * GIB,
            budget_bytes=78 * GIB,
            peak_phase="backward of blocks.1",
            components=COMPONENTS,
        ),
        traffic=(
            PredictedTraffic(
                operation="all_reduce",
                degree_from=1,
                degree_to=32,
                bytes=4 * GIB,
                count=6,
                seconds=0.040,
                exposed_s=0.030,
                known="modelled",
            ),
            PredictedTraffic(
                operation="all_gather",
                degree_from=1,
                degree_to=32,
                bytes=2 * GIB,
                count=3,
                seconds=0.020,
                exposed_s=0.020,
                known="modelled",
            ),
        ),
        exposed=ExposedTime(forward_s=0.0, backward_s=0.0, boundary_s=0.030, update_s=0.0195, control_s=0.0005),
    ),
    solver=SolverReport(status="OPTIMAL", objective_s=0.200, bound_s=0.200, gap=0.0, num_strategies=1000, wall_s=0.25),
    alternatives=(
        alternative("ZeRO-1", (1, 1, 32), 0.200, 26, "chosen"),
        alternative("DDP", (1, 1, 1), 0.205, 41, "2.5% slower (+5.0 ms), mainly parameters after the update"),
        alternative("ZeRO-2", (1, 32, 32), 0.240, 24.5, "20.0% slower (+40.0 ms), mainly exposed in backward"),
        alternative("ZeRO-3", (32, 32, 32), 0.300, 22, "50.0% slower (+100.0 ms), mainly exposed in forward"),
        alternative(
            "MiCS / HSDP of 8", (8, 8, 8), 0.198, 24, "by FSDP2's schedule 1.0% faster (-2.0 ms)", engine="fsdp"
        ),
        alternative("PaRO IIG", (8, 8, 32), 0.210, 23, "by FSDP2's schedule 5.0% slower", engine="fsdp"),
        alternative("huge", (1, 1, 1), 0.100, 90, "needs 90.0 GiB, has 78.0 GiB"),
    ),
    ds_config={"train_batch_size": 256},
)

PROFILE = HardwareProfile(
    name="two-nodes",
    description="Two nodes of two ranks, by hand.",
    device=Device(
        name="Some CPU",
        kind="cpu",
        memory_bytes=8 * GIB,
        reserved_bytes=GIB // 4,
        peak_flop_per_s={"bf16": 40e9, "fp32": 80e9},
        matmul_flop_per_s={"bf16": 30e9, "fp32": 60e9},
        memory_bytes_per_s=5e9,
        operator_launch_s=1e-5,
        overlap=0.0,
    ),
    host=Host(memory_bytes=32 * GIB, link_bytes_per_s=5e9),
    levels=(
        Level(name="node", size=2, unit_bytes_per_s=1.5e9, alpha_s=5e-5),
        Level(name="cluster", size=2, unit_bytes_per_s=2e8, alpha_s=2e-4),
    ),
    node_level=0,
    curves=(
        Curve(
            operation="all_gather",
            degree_from=2,
            degree_to=4,
            points=(CurvePoint(bytes=1024, seconds=2e-4), CurvePoint(bytes=16 * 1024**2, seconds=0.05)),
        ),
    ),
    sources={"device": "by hand", "host": "by hand", "levels": "by hand", "curves": "by hand"},
)
