import json
import sys
from pathlib import Path

import pytest
import torch

from runtime.hf_config import read_config
from runtime.load_model import build, kept_inputs, known_sequence_length, loss_of
from runtime.model_arguments import typed_arguments
from runtime.model_errors import UsageError

EXAMPLE = f"{Path(__file__).parents[2] / 'examples' / 'gpt.py'}:gpt"
TINY = {"width": "32", "depth": "1", "heads": "2", "vocab": "64"}


def _config(folder: Path, **fields: object) -> str:
    (folder / "config.json").write_text(json.dumps(fields))
    return str(folder / "config.json")


def test_the_loss_of_the_example_falls_when_it_is_trained() -> None:
    torch.manual_seed(0)
    model, batch = build(EXAMPLE, "file", TINY, 4, 16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(10):
        loss = loss_of(model(**batch))
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert losses[-1] < 0.7 * losses[0]


def test_a_tied_head_shares_its_weight() -> None:
    model, _ = build(EXAMPLE, "file", {**TINY, "tied": "true"}, 1, 16)
    assert model.get_parameter("head.weight") is model.get_parameter("tokens.weight")


def test_the_folder_of_a_file_comes_last_on_the_path() -> None:
    build(EXAMPLE, "file", TINY, 1, 16)
    folder = str(Path(EXAMPLE).parent)
    assert folder in sys.path
    assert sys.path.index(folder) > 0


def test_text_takes_the_type_of_the_parameter_or_of_its_look() -> None:
    def factory(micro_batch_size: int, rate: float, name: str, free=None, **more):  # type: ignore[no-untyped-def]
        return None

    texts = {"rate": "1", "name": "12", "free": "true", "other": "1e-3", "word": "relu"}
    values = typed_arguments(factory, texts)
    assert values == {"rate": 1.0, "name": "12", "free": True, "other": 1e-3, "word": "relu"}
    assert type(values["rate"]) is float


@pytest.mark.parametrize(
    ("key", "text", "reason"), [("depht", "3", "takes no argument"), ("depth", "x", "must be int")]
)
def test_a_wrong_argument_is_refused(key: str, text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        build(EXAMPLE, "file", {key: text}, 1, None)


def test_what_is_not_a_pair_of_module_and_batch_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def make(micro_batch_size):\n    return 3\n")
    with pytest.raises(TypeError, match=r"must return \(nn.Module, batch\)"):
        build(f"{tmp_path / 'model.py'}:make", "file", {}, 1, None)


@pytest.mark.parametrize(
    ("loss", "reason"),
    [("text", "must return a loss"), (torch.ones(3), "must be one number"), (torch.ones(()), "needs no gradient")],
)
def test_what_is_no_loss_is_refused(loss: object, reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        loss_of(loss)


def test_a_config_gives_a_model_with_its_loss(tmp_path: Path) -> None:
    spec = _config(tmp_path, model_type="gpt2", n_embd=32, n_layer=1, n_head=2, n_positions=32, vocab_size=100)
    model, batch = build(spec, "hf_config", {"n_layer": "2"}, 2, 8)
    assert len(model.transformer.h) == 2  # type: ignore[arg-type,union-attr]
    assert batch["input_ids"].shape == (2, 8)
    assert loss_of(model(**batch)).item() > 0
    assert known_sequence_length(spec, "hf_config", {}, None) == 32


def test_a_config_is_refused_when_transformers_or_its_table_of_positions_has_no_room_for_it(tmp_path: Path) -> None:
    spec = _config(tmp_path, model_type="gpt2", n_embd=32, n_layer=1, n_head=2, n_positions=32, vocab_size=100)
    with pytest.raises(UsageError, match="32 positions"):
        build(spec, "hf_config", {}, 1, 33)
    with pytest.raises(UsageError, match="no model type 'gtp9'"):
        build(_config(tmp_path, model_type="gtp9"), "hf_config", {}, 1, 8)
    with pytest.raises(UsageError, match=r"refuses the config: .*hidden_size.*'wide'"):
        build(_config(tmp_path, model_type="llama", hidden_size="wide"), "hf_config", {}, 1, 8)


def test_a_field_in_a_part_of_a_config_is_set(tmp_path: Path) -> None:
    spec = _config(tmp_path, model_type="clip", text_config={"num_hidden_layers": 3})
    read = read_config(Path(spec), {"text_config.num_hidden_layers": "1", "vision_config.num_hidden_layers": "2"})
    assert read.config.text_config.num_hidden_layers == 1
    assert read.config.vision_config.num_hidden_layers == 2
    with pytest.raises(UsageError, match=r"has no field 'text_config\.depth'"):
        read_config(Path(spec), {"text_config.depth": "1"})


def test_a_quantized_config_is_refused(tmp_path: Path) -> None:
    spec = _config(tmp_path, model_type="llama", quantization_config={"quant_method": "bitsandbytes"})
    with pytest.raises(UsageError, match=r"quantization_config.*delete the field"):
        read_config(Path(spec), {})


def test_a_callable_names_what_generated_data_keeps(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def make(micro_batch_size):\n    pass\nmake.kept_inputs = ('offsets',)\n")
    assert kept_inputs(f"{tmp_path / 'model.py'}:make", "file", {}) == ("offsets",)
    assert kept_inputs(EXAMPLE, "file", {}) == ()
