from pathlib import Path

import pytest

from planner.errors import InputError
from planner.model_graph import ModelSource
from planner.read.saved_graph import read_graph
from planner.read.source import read_source
from planner.trace import trace

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt.py"


def test_a_file_becomes_an_absolute_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLE.parent)
    assert read_source("gpt.py:gpt", ("depth=3",)) == ModelSource(
        spec=f"{EXAMPLE}:gpt", kind="file", arguments={"depth": "3"}
    )


def test_a_folder_stands_for_the_config_in_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    source = read_source(str(tmp_path))
    assert (source.kind, source.spec) == ("hf_config", str(tmp_path / "config.json"))


def test_a_module_of_the_working_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model_in_working_folder.py").write_text("def make():\n    pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert read_source("model_in_working_folder:make").kind == "module"


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("gpt", "FILE.py:CALLABLE"),
        ("nowhere.py:gpt", "there is no file nowhere.py"),
        (f"{EXAMPLE}:gtp", "has no 'gtp'; it has: Attention, Layer, GPT"),
        ("no_such_package.model:make", "cannot find the module no_such_package.model"),
        ("nowhere.json", "there is no file nowhere.json"),
    ],
)
def test_what_is_not_there_is_named(spec: str, text: str) -> None:
    with pytest.raises(InputError) as caught:
        read_source(spec)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is not JSON"),
        ("{}", "has no model_type"),
        ('{"_class_name": "UNet2DConditionModel"}', "one of diffusers: write a callable"),
        ('{"peft_type": "LORA"}', "one of peft: write a callable"),
    ],
)
def test_a_config_that_is_none_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError, match=reason):
        read_source(str(tmp_path))


@pytest.mark.parametrize("arguments", [("depth",), ("=3",), ("depth=3", "depth=4"), ("text..depth=3",)])
def test_an_argument_is_one_key_and_one_value(arguments: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="--model-arg"):
        read_source(f"{EXAMPLE}:gpt", arguments)


def test_a_file_with_broken_python_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def make(:\n")
    with pytest.raises(InputError, match="line 1"):
        read_source(f"{tmp_path / 'model.py'}:make")


def test_a_config_is_no_saved_graph(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    assert read_graph(str(tmp_path / "config.json")) is None


def test_a_graph_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_text('{"workload": {}, "schema_version": 99}')
    with pytest.raises(InputError, match=r"a trace of version 99, not \d+: trace the model again"):
        read_graph(str(tmp_path / "graph.json"))


@pytest.mark.parametrize(
    ("old", "new"),
    [('"block":0', '"block":99'), ('"sequence_length":16', '"sequence_length":-3'), ('"events":[[', '"events":[[[')],
)
def test_a_damaged_graph_is_refused(tmp_path: Path, old: str, new: str) -> None:
    source = ModelSource(spec=f"{EXAMPLE}:gpt", kind="file", arguments={"width": "16", "depth": "1", "heads": "1"})
    whole = trace(source, precision="fp32", device="cpu", sequence_length=16).model_dump_json()
    assert old in whole
    (tmp_path / "graph.json").write_text(whole)
    assert read_graph(str(tmp_path / "graph.json")) is not None
    (tmp_path / "graph.json").write_text(whole.replace(old, new, 1))
    with pytest.raises(InputError, match=r"damaged trace|cannot be read as JSON"):
        read_graph(str(tmp_path / "graph.json"))
