import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from planner.errors import InputError, ShardplanError, TraceError
from planner.model_graph import ModelSource
from planner.trace import trace

HEAD = """
import torch
from torch import nn
{top}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        {init}

    def forward(self, x):
        {body}

def make(micro_batch_size):
    {make}
    return {model}, {batch}
"""
FUNCTION = """
class Double(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        {of_x}

    @staticmethod
    def backward(context, gradient):
        return gradient * 2
"""
X = "'x': torch.zeros(micro_batch_size, 4)"


def _write(folder: Path, **parts: str) -> ModelSource:
    whole = {"top": "", "init": "pass", "body": "return self.fc(x).mean()", "make": "pass", "model": "Net()"}
    file = folder / "model.py"
    file.write_text(HEAD.format(**{**whole, "batch": f"{{{X}}}", **parts}))
    return ModelSource(spec=f"{file}:make", kind="file")


def _failure(folder: Path, limit_s: float = 60.0, **parts: str) -> ShardplanError:
    with pytest.raises(ShardplanError) as caught:
        trace(_write(folder, **parts), precision="fp32", device="cpu", time_limit_s=limit_s)
    return caught.value


UNTRACEABLE: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "building raises": (
        {"make": "raise ValueError('no weights here')"},
        ("building the model failed", "no weights here", "model.py:16"),
    ),
    "a message of several lines": (
        {"body": "raise ValueError('It says:\\n  the reason\\n  and more')"},
        ("ValueError: It says: the reason. Try it without",),
    ),
    "no loss": ({"body": "return {'logits': self.fc(x)}"}, ("must return a loss",)),
    "a loss that is no scalar": ({"body": "return self.fc(x)"}, ("must be one number", "(2, 4)")),
    "a detached loss": ({"body": "return self.fc(x).mean().detach()"}, ("needs no gradient", "no_grad", "detach")),
    "a frozen model": ({"init": "self.fc.requires_grad_(False)"}, ("needs no gradient", "frozen parameters")),
    "gradients switched off": (
        {"body": "with torch.no_grad(): y = self.fc(x).mean()\n        return y"},
        ("needs no gradient", "no_grad"),
    ),
    "gradients switched off for all": ({"top": "torch.set_grad_enabled(False)"}, ("needs no gradient",)),
    "another key": ({"batch": "{'y': torch.zeros(2, 4)}"}, ("unexpected keyword argument 'y'", "keys of the batch")),
    "a batch that is a tensor": ({"batch": "torch.zeros(2, 4)"}, ("its batch as a dict", "not a tensor")),
    "a batch that is a list": ({"batch": "[torch.zeros(2, 4)]"}, ("its batch as a dict", "not builtins.list")),
    "no model": ({"model": "3"}, ("must return (nn.Module, batch), not a tuple of (int, dict)",)),
    "a batch of one size": ({"batch": "{'x': torch.zeros(2, 4)}"}, ("for 2 samples and for 3", "micro_batch_size")),
    "shapes that do not fit": ({"batch": "{'x': torch.zeros(2, 5)}"}, ("forward failed in module 'fc'", "go together")),
    "an index out of range": (
        {"body": "return self.fc(nn.functional.embedding(torch.tensor([9]), x)).mean()"},
        ("table of 2 rows", "vocabulary"),
    ),
    "no parameters": (
        {"model": "nn.Identity()", "batch": "{'input': torch.zeros(())}"},
        ("no parameters, so there is nothing to train",),
    ),
    "a device in forward": (
        {"body": "return self.fc(x.to('cuda')).mean()"},
        ("cuda", "model.py:13", "to the launcher"),
    ),
    "a model on a device": ({"make": "net = Net().cuda()", "model": "net"}, ("building", "to the launcher")),
    "the current device": ({"make": "torch.cuda.current_device()"}, ("model.py:16", "to the launcher")),
    "a device while the file is loaded": ({"top": "T = torch.zeros(3, device='cuda')"}, ("model.py:4", "launcher")),
    "a batch on a device": ({"batch": "{'x': torch.zeros(2, 4, device='cuda')}"}, ("device 'cuda'", "launcher")),
    "an end while it is built": ({"make": "raise SystemExit"}, ("ended the program", "model.py:16", "__main__")),
    "what is no Exception": (
        {"top": "class Stop(BaseException): pass", "body": "raise Stop('here')"},
        ("Stop: here", "model.py:13"),
    ),
    "an end in forward": ({"body": "raise SystemExit(0)"}, ("ended the program", "model.py:13", "SystemExit(0)")),
    "a call of itself": ({"body": "return self.forward(x)"}, ("RecursionError", "calls itself without an end")),
    "a child of itself": ({"init": "self._modules['me'] = self"}, ("RecursionError", "itself among its children")),
    "backward in forward": (
        {"body": "loss = self.fc(x).mean()\n        loss.backward()\n        return loss"},
        ("forward calls backward()", "model.py:14", "the engine computes gradients"),
    ),
    "an optimizer in forward": (
        {
            "init": "self.optimizer = torch.optim.AdamW(self.parameters())",
            "body": "loss = self.fc(x).mean()\n        self.optimizer.step()\n        return loss",
        },
        ("forward calls AdamW.step()", "the engine computes gradients"),
    ),
    "the address of memory": (
        {"top": FUNCTION.format(of_x="x.data_ptr()\n        return x * 2"), "body": "return Double.apply(x).mean()"},
        ("data pointer", "model.py:8", "torch.library.custom_op", "--trace static"),
    ),
    "a missing file": ({"make": "open('weights.bin', 'rb')"}, ("weights.bin", "model.py:16", "needs no weights")),
    "weights from afar": (
        {"make": "raise OSError(\"We couldn't connect to 'https://huggingface.co' to load the files\")"},
        ("couldn't connect", "from its config"),
    ),
    "a package that is imported late": (
        {"make": "import no_such_package"},
        ("model.py:16", "pip install no_such_package"),
    ),
    "data that is too large": (
        {"make": "import numpy; numpy.zeros(10**15)"},
        ("MemoryError", "leave weights and data out"),
    ),
    "a model of the whole file": (
        {"make": "global NET\n    NET = globals().get('NET') or Net()", "model": "NET"},
        ("the same module twice", "build the model in the callable"),
    ),
    "DataParallel": ({"model": "nn.DataParallel(Net())"}, ("wrapped in DataParallel", "the launcher shards it")),
    "DistributedDataParallel": (
        {"model": "nn.parallel.DistributedDataParallel(Net())"},
        ("process group", "not wrapped for distributed training"),
    ),
    "TorchScript": ({"model": "torch.jit.script(Net())"}, ("TorchScript", "nn.Module that it was made from")),
    "sparse gradients": (
        {"init": "self.table = nn.Embedding(10, 4, sparse=True)"},
        ("module 'table' has sparse gradients", "sparse=False"),
    ),
    "complex parameters": (
        {"init": "self.c = nn.Parameter(torch.zeros(4, dtype=torch.complex64))"},
        ("parameter 'c' is complex64", "two real ones"),
    ),
    "parameters without a shape": ({"init": "self.late = nn.LazyLinear(4)"}, ("lazy modules", "shape of every")),
    "parameters without values": (
        {"make": "\n    with torch.device('meta'): net = Net()", "model": "net"},
        ("parameter 'fc.weight' is on the meta device", "take no memory"),
    ),
}


@pytest.mark.parametrize("case", UNTRACEABLE)
def test_the_failure_is_named_with_its_place_and_a_way_out(tmp_path: Path, case: str) -> None:
    parts, texts = UNTRACEABLE[case]
    failure = _failure(tmp_path, **parts)
    assert isinstance(failure, TraceError)
    assert failure.exit_code == 4
    for text in texts:
        assert text in str(failure)
    assert "\n" not in str(failure)


@pytest.mark.parametrize(
    ("top", "texts"),
    [
        ("import no_such_package.part", ("No module named 'no_such_package'", "pip install no_such_package")),
        ("from torch import no_such_name", ("cannot import name 'no_such_name' from 'torch'",)),
        ("import broken_part", ("broken_part.py:2: ",)),
    ],
)
def test_a_file_that_cannot_be_imported_is_a_mistake_of_usage(tmp_path: Path, top: str, texts: tuple[str, ...]) -> None:
    (tmp_path / "broken_part.py").write_text("\ndef (:\n")
    failure = _failure(tmp_path, top=top)
    assert isinstance(failure, InputError)
    assert failure.exit_code == 2
    for text in texts:
        assert text in str(failure)


ENDLESS = "while self.fc(x).mean() > 0: pass"


def test_a_model_without_an_end_is_given_up_where_it_loops(tmp_path: Path) -> None:
    failure = _failure(tmp_path, body=ENDLESS, limit_s=3.0)
    assert isinstance(failure, TraceError)
    for text in ("no end after 3 s", "model.py:13", "--time-limit", "--trace static"):
        assert text in str(failure)


def test_a_model_without_an_end_is_given_up_in_any_thread(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        failure = pool.submit(_failure, tmp_path, 3.0, body=ENDLESS).result(timeout=60)
    assert "no end after 3 s" in str(failure)
    assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]


def test_what_a_file_sets_for_all_is_set_back(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    top = "torch.set_grad_enabled(False); torch.set_default_dtype(torch.float64); torch.manual_seed(3)"
    _failure(tmp_path, top=top)
    assert torch.is_grad_enabled()
    assert torch.get_default_dtype() == torch.float32
    assert torch.equal(torch.get_rng_state(), before)


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
