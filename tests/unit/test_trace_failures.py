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
    folder: Path, *, body: str = "return self.fc(x).mean()", make: str = "pass", model: str = "Net()", batch: str = ""
) -> ShardplanError:
    file = folder / "model.py"
    batch = batch or "'x': torch.zeros(micro_batch_size, 4)"
    file.write_text(HEAD.format(body=body, make=make, model=model, batch=batch))
    with pytest.raises(ShardplanError) as caught:
        trace(ModelSource(spec=f"{file}:make", kind="file"), precision="fp32", device="cpu", time_limit_s=2.0)
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
        ({"batch": "'x': torch.zeros(2, 5)"}, ("forward failed in module 'fc'",)),
        ({"model": "nn.Identity()", "batch": "'input': torch.zeros(())"}, ("no parameters",)),
        ({"body": "return sum(x for x in iter(int, 1))"}, ("no end after 2 s", "model.py:11")),
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


def test_a_missing_argument_is_a_mistake_of_usage() -> None:
    source = ModelSource(spec="examples.gpt:gpt", kind="module", arguments={"depht": "3"})
    with pytest.raises(InputError, match="takes no argument 'depht'"):
        trace(source, precision="fp32", device="cpu")
