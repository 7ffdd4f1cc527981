"""A trace is verified by a real step: what agrees holds, what does not is told."""

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from costmodels.workload import Parameter
from planner.errors import InputError, RunError
from planner.model_graph import ModelGraph, ModelSource
from planner.report.verification import verification_page
from planner.trace import trace
from planner.verify import verify
from planner.verify.verification import Comparison, Verification
from tests.zoo.misses import MISSES
from tests.zoo.registry import entries, held_out, spec

ROOT = Path(__file__).parents[2]
QUICK = (
    "llama",
    "mixtral",
    "bert_padded",
    "resnet",
    "dit",
    "lora_llama",
    "recommender",
    "lstm",
    "selecting_by_ids",
    "tied",
    "checkpointed",
    "own_derivative",
)


def _source(name: str) -> ModelSource:
    return ModelSource(spec=spec(name), kind="file")


def _graph(name: str) -> ModelGraph:
    return trace(_source(name), precision="fp32", device="cpu")


@pytest.mark.parametrize("name", QUICK)
def test_the_trace_of_a_model_is_what_its_real_step_does(name: str) -> None:
    graph = _graph(name)
    for recompute in (False, True):
        found = verify(_source(name), precision="fp32", recompute=recompute, graph=graph)
        for figure in found.comparisons:
            if figure.is_promised:
                assert figure.traced == figure.real, (figure.name, recompute)
        assert found.loss_holds
        assert found.holds


def test_amounts_hold_at_a_size_that_was_not_traced() -> None:
    found = verify(_source("llama"), precision="fp32", micro_batch_size=5)
    assert found.holds
    assert found.figure("peak_bytes").traced == found.figure("peak_bytes").real


def test_autocast_is_verified_within_its_tolerance() -> None:
    assert verify(_source("gpt2"), precision="fp32", autocast="bf16", recompute=True).holds


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in entries() if name not in QUICK])
def test_every_model_of_the_zoo_is_traced_as_it_runs_or_explained(name: str) -> None:
    graph = _graph(name)
    found = [verify(_source(name), precision="fp32", recompute=again, graph=graph) for again in (False, True)]
    assert all(each.holds for each in found) or name in MISSES


def test_the_graph_of_another_model_does_not_hold() -> None:
    found = verify(_source("residual"), precision="fp32", graph=_graph("re_entered"))
    assert not found.holds
    assert not found.figure("forward_flop").holds


def test_a_step_that_has_no_room_is_refused_before_it_runs() -> None:
    graph = _graph("residual")
    workload = replace(graph.workload, parameters=(Parameter("huge", (1 << 50,)),))
    with pytest.raises(InputError, match="GiB are free"):
        verify(_source("residual"), precision="fp32", graph=graph.model_copy(update={"workload": workload}))


def test_a_model_that_does_not_run_for_real_is_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "fails.py"
    file.write_text(
        "import torch\n"
        "class Fails(torch.nn.Linear):\n"
        "    def forward(self, x):\n"
        "        if type(x) is torch.Tensor:\n"
        "            raise ValueError('only fakes')\n"
        "        return super().forward(x).mean()\n"
        "def fails(micro_batch_size):\n"
        "    return Fails(4, 4), {'x': torch.randn(micro_batch_size, 4)}\n"
    )
    with pytest.raises(RunError, match="does not run on this CPU: ValueError: only fakes"):
        verify(ModelSource(spec=f"{file}:fails", kind="file"), precision="fp32")


def test_a_ratio_is_of_the_traced_to_the_real_figure() -> None:
    assert Comparison(name="peak_bytes", traced=999, real=1000, tolerance=1e-3).ratio == pytest.approx(0.999)
    assert Comparison(name="peak_bytes", traced=999, real=1000, tolerance=1e-3).holds
    assert not Comparison(name="peak_bytes", traced=998, real=1000, tolerance=1e-3).holds
    assert not Comparison(name="forward_flop", traced=1001, real=1000, tolerance=0.0).holds
    assert Comparison(name="recomputation_flop", traced=0, real=0, tolerance=0.0).ratio == 1


def _verification(replayed: float | None) -> Verification:
    return Verification(
        name="Model",
        precision="fp32",
        autocast=None,
        recompute=False,
        micro_batch_size=2,
        sequence_length=None,
        traced_by="fake",
        loss_eager=2.0,
        loss_replayed=replayed,
        loss_tolerance=1e-5,
        comparisons=(Comparison(name="peak_bytes", traced=1 << 20, real=1 << 20, tolerance=0.0),),
        trace_s=1.0,
        real_s=0.1,
    )


def test_a_graph_of_another_loss_does_not_hold() -> None:
    assert _verification(2.0).holds
    assert not _verification(2.1).holds
    assert not _verification(None).holds


def test_the_page_names_each_figure_and_says_what_is_off() -> None:
    console = Console(width=100, record=True)
    with console.capture() as capture:
        console.print(verification_page(_verification(2.1)))
    text = capture.get()
    assert "NOT as promised" in text
    assert "peak" in text and "1.00 MiB" in text and "exact" in text
    assert "loss of the graph" in text and "off" in text


def test_no_model_is_held_out_and_explained_away() -> None:
    assert not set(MISSES) - set(entries())
    assert held_out() <= set(entries())


def test_what_autocast_frees_at_once_is_freed_for_every_layer_though_few_were_traced() -> None:
    arguments = {"width": "32", "depth": "9", "heads": "2", "vocab": "64"}
    source = ModelSource(spec=f"{ROOT / 'examples' / 'gpt.py'}:gpt", kind="file", arguments=arguments)
    found = verify(source, precision="fp32", autocast="bf16", sequence_length=16, recompute=True)
    for name in ("saved_bytes", "peak_bytes"):
        assert found.figure(name).traced == found.figure(name).real, name


def test_bags_of_bf16_keep_no_places_for_backward() -> None:
    found = verify(_source("recommender"), precision="bf16")
    assert found.figure("saved_bytes").traced == found.figure("saved_bytes").real
