"""Galvatron's search engine on the profile of Llama-2-7B and of 8 GPUs that its repository ships."""

from __future__ import annotations

import contextlib
import importlib.machinery
import io
import re
import sys
import tempfile
import time
import types
from importlib.util import find_spec
from pathlib import Path

from peers_question import Answer, Question

TITLE = "Galvatron"
SOURCE = "hetu-galvatron.readthedocs.io, github.com/PKU-DAIR/Hetu-Galvatron at cea12ff"
SEARCHES = (
    "per layer: data parallelism, ZeRO-2 or ZeRO-3, tensor and sequence parallelism, recomputation; "
    "pipeline, chunks; by dynamic programming"
)
ASKED = ("llama-7b",)

ABSENT = {
    "flash_attn": {"__version__": "0"},
    "flash_attn.flash_attn_interface": {"_flash_attn_forward": None, "_flash_attn_backward": None},
    "flash_attn.layers": {},
    "flash_attn.layers.rotary": {"apply_rotary_emb": None},
    "flash_attn.ops": {},
    "flash_attn.ops.layer_norm": {"DropoutAddLayerNorm": object},
    "flash_attn.ops.rms_norm": {"RMSNorm": object},
}
"""What its runtime imports along, which needs CUDA to build; the search uses none of it, and gets empty names."""
UNWANTED = ("tp", "sp")
MEMORY_GIB = 77
"""Whole GiB, as its option wants them: those of the profile, what it reserves taken off."""


def answers(question: Question) -> tuple[Answer, ...]:
    """Returns its plan for data parallelism alone, and for its whole space; each of them by its profile."""
    if find_spec("galvatron") is None:
        raise ModuleNotFoundError("No module named 'galvatron'")
    for name, attributes in ABSENT.items():
        sys.modules[name] = _empty(name, attributes)
    alone = _asked(question, is_data_parallel=True)
    whole = _asked(question, is_data_parallel=False)
    return (alone, whole)


def _empty(name: str, attributes: dict[str, object]) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    module.__path__ = []
    module.__dict__.update(attributes)
    return module


def _asked(question: Question, is_data_parallel: bool) -> Answer:
    import galvatron
    from galvatron.core.arguments import load_with_hydra
    from galvatron.core.search_engine.search_engine import GalvatronSearchEngine
    from galvatron.utils.hf_config_adapter import model_layer_configs, model_name, resolve_model_config

    models = Path(galvatron.__path__[0]) / "models"
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as printed:
        options = _options(question, models, Path(folder), is_data_parallel)
        given = load_with_hydra(str(models / "gpt/scripts/search_dist.yaml"), overrides=options, mode="search")
        resolve_model_config(given)
        engine = GalvatronSearchEngine(given)
        engine.set_search_engine_info(
            path=str(models / "gpt"), model_layer_configs=model_layer_configs(given), model_name=model_name(given)
        )
        started_s = time.perf_counter()
        engine.initialize_search_engine(show_all_strategy_list=False)
        engine.parallelism_optimization()
        seconds = time.perf_counter() - started_s
    space = "data parallelism alone" if is_data_parallel else "its whole space"
    return _read(printed.getvalue(), space, seconds)


def _options(question: Question, models: Path, folder: Path, is_data_parallel: bool) -> list[str]:
    engine, space = "search_engine", "search_engine.search_space_info"
    batch = f"{engine}.batch_size_info"
    options = [
        f"SEQ_LENGTH={question.sequence_length}",
        f"MEMORY_CONSTRAINT={MEMORY_GIB}",
        f"{engine}.profiling_info.time_profile_mode=batch",
        f"{engine}.model_info.model_config_path={models / 'model_configs/llama2-7b.yaml'}",
        f"{engine}.options_info.log_dir={folder}",
        f"+{engine}.options_info.output_config_path={folder}",
        f"{batch}.min_bsz={question.global_batch_size}",
        f"{batch}.max_bsz={question.global_batch_size}",
    ]
    if is_data_parallel:
        options += [f"{space}.disable_{each}=1" for each in UNWANTED]
        options += [f"{space}.max_{each}_deg=1" for each in ("tp", "pp", "sp")]
    return options


def _read(printed: str, space: str, seconds: float) -> Answer:
    if "Minized timecost" not in printed:
        return Answer("nothing fits", None, None, seconds, None, space)
    final = printed[printed.index("Final results") :]
    chunks = re.search(r"Optimal chunk = (\d+)", final)
    step_s = re.search(r"timecost = ([\d.]+)", final)
    memory_mib = re.search(r"Memory cost = \[([\d, ]+)\]", final)
    layers = re.search(r"^\d+-\d+.*$", final, re.MULTILINE)
    assert chunks and step_s and memory_mib and layers, final
    kinds = [each.strip().replace("*", "") for each in layers[0].split(",")]
    counted = ", ".join(f"{kinds.count(kind)} layers {kind}" for kind in sorted(set(kinds)))
    memory_bytes = max(int(each) for each in memory_mib[1].split(",")) * 2**20
    chosen = f"{counted} (pipeline-tensor-data, f: ZeRO-3, c: recomputed; else ZeRO-2), {chunks[1]} chunks"
    return Answer(
        chosen, memory_bytes, float(step_s[1]), seconds, None, f"{space}, by the times measured on its own GPUs"
    )
