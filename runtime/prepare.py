"""Prepares a run: the model inside its engine, and the samples that it trains on."""

from __future__ import annotations

import gc
import inspect
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from runtime.data import DatasetSamples, Samples, samples_like
from runtime.load_model import build, kept_inputs, load_callable
from runtime.ranks import LaunchError, Ranks
from runtime.recompute import recompute
from runtime.settings import Options, Settings
from runtime.weights import Build, parameters_without_memory, seed_randomness, sharded_model, whole_model


def prepare_samples(settings: Settings, options: Options, ranks: Ranks) -> Samples:
    """Returns the run's samples: the user's dataset, or random ones that the first rank describes to the others.

    Raises:
        LaunchError: The dataset needs arguments, or has no length or no samples.
    """
    if options.data is not None:
        make_dataset = load_callable(options.data, "file" if ".py:" in options.data else "module")
        try:
            inspect.signature(make_dataset).bind()
        except TypeError as error:
            raise LaunchError(f"{options.data} is called without arguments, but: {error}") from error
        dataset = make_dataset()
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__") or len(dataset) == 0:
            raise LaunchError(f"{options.data} must return a dataset with a length and an item for each index below it")
        return DatasetSamples(dataset)
    described: list[Any] = [generated_samples(settings, options.seed) if ranks.is_first else None]
    dist.broadcast_object_list(described, src=0)
    samples: Samples = described[0]
    return samples


def generated_samples(settings: Settings, seed: int) -> Samples:
    """Returns random samples that look like the example batch.

    The example is one of the whole global batch, so that its range of integers is the same for every micro-batch; it
    comes with a model whose weights nobody needs, and that gets none.
    """
    torch.manual_seed(seed)
    with parameters_without_memory():
        _, example = _build(settings, settings.global_batch_size)()
    kept = kept_inputs(settings.spec, settings.kind, settings.arguments)
    return samples_like(example, settings.global_batch_size, seed, kept)


def prepare_reference(settings: Settings, options: Options, ranks: Ranks) -> nn.Module | None:
    """Returns the whole model in the first rank's host memory where its weights are dealt out; None elsewhere."""
    if not (settings.deals_weights and ranks.is_first):
        return None
    return whole_model(_build(settings, settings.micro_batch_size), options.seed)


def prepare_engine(settings: Settings, options: Options, ranks: Ranks, reference: list[nn.Module | None]) -> Any:
    """Returns the engine around the model, with the initial weights of the seed; both engines are called alike.

    Args:
        settings: What the emitted files say.
        options: Of the command line.
        ranks: This process.
        reference: One item, what `prepare_reference` made; taken out, so that its memory is free afterwards.
    """
    maker = _build(settings, settings.micro_batch_size)
    if settings.engine == "fsdp":
        engine = _fsdp(settings, maker, options.seed, ranks.device, reference)
    else:
        engine = _deepspeed(settings, maker, options.seed, reference)
    seed_randomness(options.seed, ranks.rank)
    return engine


def _fsdp(settings: Settings, maker: Build, seed: int, device: torch.device, reference: list[nn.Module | None]) -> Any:
    # It imports what a run of DeepSpeed has no need of, for a second or more.
    from runtime.sharded_engine import sharded_engine

    assert settings.sharding is not None
    assert settings.training is not None
    return sharded_engine(settings.sharding, settings.training, device, maker, seed, reference)


def _deepspeed(settings: Settings, maker: Build, seed: int, reference: list[nn.Module | None]) -> Any:
    import deepspeed

    if settings.deals_weights:
        model = sharded_model(maker, seed, settings.ds_config, reference.pop())
        gc.collect()
    else:
        model = whole_model(maker, seed)
    recompute(model, settings.recompute_modules)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=trained, config=dict(settings.ds_config))
    return engine


def _build(settings: Settings, num_samples: int) -> Build:
    def make() -> tuple[nn.Module, dict[str, Any]]:
        return build(settings.spec, settings.kind, settings.arguments, num_samples, settings.sequence_length)

    return make
