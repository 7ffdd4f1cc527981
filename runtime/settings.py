"""What the emitted files and the command line ask of a launch."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from runtime.fsdp.check_plan import check_plan
from runtime.fsdp.strategies import ShardingPlan, read_plan
from runtime.fsdp.training_config import TrainingConfig, read_training_config
from runtime.ranks import Engine, LaunchError

Kind = Literal["file", "module", "hf_config"]


@dataclass(frozen=True, slots=True)
class Options:
    """The command line of `launch.py`."""

    steps: int
    seed: int
    data: str | None
    """`FILE.py:CALLABLE` or `package.module:CALLABLE` that returns a map-style dataset; None: random samples."""
    model: str | None
    report: Path | None
    record: bool
    calibrate: bool
    """Also time compute and messages by themselves."""
    watch: Path | None
    """Folder for `progress.jsonl` and `failure-RANK.json`, read by `shardplan run`."""
    checkpoint: Path | None = None
    """Folder of the run's checkpoints; None: nothing is saved."""
    checkpoint_every: int | None = None
    """Steps between two checkpoints; None: only the last step is saved."""
    resume: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """What `plan.json` and `ds_config.json` say."""

    spec: str
    kind: Kind
    arguments: dict[str, str]
    recompute_modules: tuple[str, ...]
    device_kind: Literal["cuda", "cpu"]
    world_size: int
    ranks_per_node: int
    micro_batch_size: int
    num_micro_batches: int
    sequence_length: int | None
    precision: Literal["bf16", "fp16", "fp32"]
    ds_config: dict[str, Any]
    engine: Engine = "deepspeed"
    sharding: ShardingPlan | None = None
    """What the fsdp engine shards."""
    training: TrainingConfig | None = None
    """How the fsdp engine makes a step."""

    @property
    def global_batch_size(self) -> int:
        """Samples per optimizer step."""
        return self.micro_batch_size * self.num_micro_batches * self.world_size

    @property
    def deals_weights(self) -> bool:
        """Whether ranks make the model without memory, and get what they hold of the first one's weights."""
        return self.engine == "fsdp" or int(self.ds_config.get("zero_optimization", {}).get("stage", 0)) == 3

    @property
    def needed_ranks_per_node(self) -> int | None:
        """Ranks that every node has to have, where groups smaller than the world end at nodes; else None."""
        return self.ranks_per_node if self._has_groups_within else None

    @property
    def _has_groups_within(self) -> bool:
        if self.sharding is not None:
            return any(1 < degree < self.world_size for each in self.sharding.strategies for degree in each.degrees)
        return int(self.ds_config.get("zero_optimization", {}).get("zero_hpz_partition_size", 1)) > 1


def parse_options(arguments: Sequence[str] | None) -> Options:
    """Returns the options of the command line; ends the process with 2 where they are wrong."""
    parser = argparse.ArgumentParser(description="Trains the planned model; start it by torchrun, deepspeed or srun.")
    parser.add_argument("--steps", type=_positive, default=10, metavar="K", help="optimizer steps (default 10)")
    parser.add_argument("--seed", type=int, default=0, help="of initial weights and samples (default 0)")
    parser.add_argument("--data", metavar="FILE.py:CALLABLE", help="returns a map-style dataset of argument dicts")
    parser.add_argument("--model", metavar="MODEL", help="where the model is on this machine, if not where it was")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write losses, seconds and measurements as JSON")
    parser.add_argument("--record", action="store_true", help="measure memory and traffic too (runs a step more)")
    parser.add_argument("--calibrate", action="store_true", help="with --record: time compute and messages apart too")
    parser.add_argument("--watch", type=Path, metavar="FOLDER", help="write progress and failures for a watcher")
    parser.add_argument("--checkpoint", type=Path, metavar="FOLDER", help="save the last step there")
    parser.add_argument("--checkpoint-every", type=_positive, metavar="K", help="and each K steps before it")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint there, up to --steps")
    parser.add_argument("--local_rank", help=argparse.SUPPRESS)  # DeepSpeed's launcher gives it
    given = parser.parse_args(arguments)
    if given.checkpoint is None and (given.checkpoint_every is not None or given.resume):
        parser.error("--checkpoint-every and --resume need --checkpoint FOLDER")
    if given.calibrate and not given.record:
        parser.error("--calibrate needs --record")
    if given.checkpoint is not None and given.record:
        parser.error("--record measures some steps more than --steps: leave out --checkpoint")
    return Options(
        given.steps,
        given.seed,
        given.data,
        given.model,
        given.report,
        given.record,
        given.calibrate,
        given.watch,
        given.checkpoint,
        given.checkpoint_every,
        given.resume,
    )


def read_settings(folder: Path, model: str | None) -> Settings:
    """Returns the settings in the emitted files, with the model at `model` where that is given.

    Raises:
        LaunchError: A file is missing or damaged, or asks for what its engine cannot do.
    """
    plan = _read(folder / "plan.json")
    config = _read(folder / "ds_config.json")
    try:
        engine = plan["engine"]
        source, job, hardware = plan["model"]["source"], plan["job"], plan["hardware"]
        spec, kind = source["spec"], source["kind"]
        if model is not None:
            spec, kind = model, _kind(model)
        elif kind == "hf_config":
            spec = str(folder / "config.json")
        training, sharding = _of_fsdp(plan, config) if engine == "fsdp" else (None, None)
        return Settings(
            spec=spec,
            kind=kind,
            arguments=dict(source["arguments"]),
            recompute_modules=tuple(plan["model"]["recompute_modules"]),
            device_kind=hardware["device_kind"],
            world_size=hardware["world_size"],
            ranks_per_node=hardware["ranks_per_node"],
            # What the engine will do is in its own file, which a user may have edited.
            micro_batch_size=int(config["train_micro_batch_size_per_gpu"]),
            num_micro_batches=int(config["gradient_accumulation_steps"]),
            sequence_length=job["sequence_length"],
            precision=_precision(config),
            ds_config=config,
            engine=engine,
            sharding=sharding,
            training=training,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise LaunchError(f"{folder} is damaged ({error!r}); plan again with --out") from error


def _of_fsdp(plan: dict[str, Any], config: dict[str, Any]) -> tuple[TrainingConfig, ShardingPlan]:
    planned = read_plan(plan)
    training = read_training_config(config, planned.world_size)
    sharding = replace(
        planned,
        num_micro_batches=training.num_micro_batches,
        precision=training.precision,
        prefetch=training.prefetch,
        error_feedback=training.error_feedback,
    )
    check_plan(sharding)
    return training, sharding


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LaunchError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise LaunchError(f"{path} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise LaunchError(f"{path} is not a JSON object")
    return document


def _kind(spec: str) -> Kind:
    place = spec.rpartition(":")[0]
    if place.endswith(".py"):
        return "file"
    return "module" if place else "hf_config"


def _precision(config: dict[str, Any]) -> Literal["bf16", "fp16", "fp32"]:
    if config.get("bf16", {}).get("enabled"):
        return "bf16"
    return "fp16" if config.get("fp16", {}).get("enabled") else "fp32"


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return number
