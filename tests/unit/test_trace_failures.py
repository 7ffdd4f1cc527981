from pathlib import Path

import pytest

from planner.errors import InputError, ShardplanError, TraceError
from planner.model_graph import ModelSource
from planner.trace import trace

HEAD = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        {body}

def make(micro_batch_size):
    {make}
    return {model}, {{{batch}}}
"""


def _failure(
    folder: Path,
    *,
    body: str = "return self.fc(x).mean()",
    make: str = "pass",
    model: str = "Net()",
    batch: str = "",
    limit_s: float = 60.0,
) -> ShardplanError:
    file = folder / "model.py"
    batch = batch or "'x': torch.zeros(micro_batch_size, 4)"
    file.write_text(HEAD.format(body=body, make=make, model=model, batch=batch))
    with pytest.raises(ShardplanError) as caught:
        trace(ModelSource(spec=f"{file}:make", kind="file"), precision="fp32", device="cpu", time_limit_s=limit_s)
    return caught.value


@pytest.mark.parametrize(
    ("change", "texts"),
    [
        (
            {"make": "raise ValueError('no weights here')"},
            ("building the model failed", "no weights here", "model.py:1"),
        ),
        ({"body": "return {'logits': self.fc(x)}"}, ("must return a loss",)),
        ({"body": "return self.fc(x)"}, ("must be one number", "(2, 4)")),
        ({"body": "return self.fc(x).mean().detach()"}, ("needs no gradient",)),
        ({"body": "return self.fc(x.to('cuda')).mean()"}, ("cuda", "leave the device to the launcher")),
        ({"make": "torch.zeros(3, device='cuda')"}, ("building the model failed", "the device 'cuda'")),
        ({"batch": "'y': torch.zeros(2, 4)"}, ("unexpected keyword argument 'y'", "keys of the batch")),
        ({"batch": "'x': torch.zeros(2, 4)"}, ("for 2 samples and for 3", "micro_batch_size samples")),
        ({"make": "raise SystemExit"}, ("ended the program", "model.py:1")),
        ({"body": "raise SystemExit(0)"}, ("ended the program", "model.py:11", "SystemExit(0)")),
        ({"batch": "'x': torch.zeros(2, 5)"}, ("forward failed in module 'fc'",)),
        ({"model": "nn.Identity()", "batch": "'input': torch.zeros(())"}, ("no parameters",)),
        ({"body": "return self.fc(nn.functional.embedding(torch.tensor([9]), x)).mean()"}, ("table of 2 rows",)),
    ],
    ids=lambda value: str(value)[:40],
)
def test_the_failure_is_named_with_its_place_and_a_way_out(
    tmp_path: Path, change: dict[str, str], texts: tuple[str, ...]
) -> None:
    failure = _failure(tmp_path, **change)
    assert isinstance(failure, TraceError)
    assert failure.exit_code == 4
    for text in texts:
        assert text in str(failure)


def test_a_model_without_an_end_is_given_up(tmp_path: Path) -> None:
    failure = _failure(tmp_path, body="return sum(x for x in iter(int, 1))", limit_s=4.0)
    assert isinstance(failure, TraceError)
    assert "no end after 4 s" in str(failure)


def test_an_unknown_argument_is_a_mistake_of_usage() -> None:
    source = ModelSource(spec="examples.gpt:gpt", kind="module", arguments={"depht": "3"})
    with pytest.raises(InputError, match="takes no argument 'depht'"):
        trace(source, precision="fp32", device="cpu")


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ("micro_batch_size, width", "needs width: give --model-arg width=VALUE"),
        ("micro_batch_size, sequence_length", "needs sequence_length: give --sequence-length S"),
        ("", "takes no micro_batch_size"),
    ],
)
def test_an_argument_that_is_not_given_is_asked_for(tmp_path: Path, parameters: str, text: str) -> None:
    file = tmp_path / "model.py"
    file.write_text(f"def make({parameters}):\n    raise AssertionError\n")
    with pytest.raises(InputError, match=text):
        trace(ModelSource(spec=f"{file}:make", kind="file"), precision="fp32", device="cpu")


@pytest.mark.parametrize("name", ["micro_batch_size", "sequence_length"])
def test_a_model_argument_does_not_replace_what_the_job_says(name: str) -> None:
    source = ModelSource(spec="examples.gpt:gpt", kind="module", arguments={name: "3"})
    with pytest.raises(InputError, match="give it by --" + name.replace("_", "-")):
        trace(source, precision="fp32", device="cpu")
