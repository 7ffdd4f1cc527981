"""What to try when the model's own code fails: the advice fits the cause, and the first that fits is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from planner.trace.fake.forward_only import SelfTrainingError
from planner.trace.fake.shadow import ForeignDeviceError
from planner.trace.operators.stand_in import UnknownNameError

_Fits = Callable[[BaseException, str], bool]

_BY_HAND = "Try it without the planner: model, batch = CALLABLE(micro_batch_size=2); model(**batch).backward()"
_STATIC = "--trace static bounds the cost from the layers alone"


def advice(error: BaseException) -> str:
    """Returns one sentence or two for a person who wants to go on."""
    text = str(error).lower()
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"Install it in this environment: pip install {error.name.partition('.')[0]}"
    return next((advised for fits, advised in _ADVICE if fits(error, text)), _BY_HAND)


def _kind(*kinds: Any) -> _Fits:
    return lambda error, _: isinstance(error, kinds)


def _says(*parts: str) -> _Fits:
    return lambda _, text: any(part in text for part in parts)


def _both(*conditions: _Fits) -> _Fits:
    return lambda error, text: all(fits(error, text) for fits in conditions)


_ADVICE: tuple[tuple[_Fits, str], ...] = (
    (
        _kind(SelfTrainingError),
        "forward returns the loss: the engine computes gradients and runs the optimizer",
    ),
    (
        _kind(RecursionError),
        "A module calls itself without an end, or holds itself among its children",
    ),
    (
        _kind(UnknownNameError),
        f"docs/custom_kernels.md shows how a kernel is described; or {_STATIC}",
    ),
    (
        _both(_kind(ImportError), _says("flash_attn", "flash attention")),
        "Its kernels run on a GPU, and are known for a profile with one; for a CPU leave attn_implementation to its "
        "default",
    ),
    (
        _says("triton", "active driver"),
        "A trace launches no Triton kernel: import triton where the kernel runs, and put that behind a "
        "torch.library.custom_op with register_fake (docs/custom_kernels.md shows how)",
    ),
    (
        _kind(ImportError),
        "Install what is missing in this environment (pip install NAME)",
    ),
    (
        _says("couldn't connect", "huggingface.co", "offline mode", "localentrynotfound"),
        "A plan needs no weights: build the model from its config (AutoModel....from_config(config)), or from a folder "
        "that is there",
    ),
    (
        _kind(FileNotFoundError),
        "Paths are taken from the folder that the command is run in: write absolute ones, such as from "
        "Path(__file__).parent; a plan needs no weights and no data",
    ),
    (
        lambda error, text: isinstance(error, ForeignDeviceError) or "cuda" in text or "nvidia" in text,
        "Models are traced on the CPU: leave the device to the launcher, and inside forward take it from inputs",
    ),
    (
        _says("process group", "init_process_group"),
        "Return the model itself, not wrapped for distributed training: the launcher shards it",
    ),
    (
        _says("tensor subclasses", "data pointer", "data_ptr"),
        "Traced tensors have no memory to read: put what reads it behind a torch.library.custom_op with "
        f"register_fake (docs/custom_kernels.md shows how); or {_STATIC}",
    ),
    (
        _says("fake impl", "meta kernel", "meta tensors"),
        f"Tell the operator's shapes by torch.library.register_fake; or {_STATIC}",
    ),
    (
        _kind(DataDependentOutputException, DynamicOutputShapeException),
        "What runs depends on values that a trace has not: compute it from shapes or from integer inputs; or "
        f"{_STATIC}",
    ),
    (
        _says("backward through the graph a second time"),
        "Something ran backward before the loss was returned: leave it to the engine",
    ),
    (
        _says("needs no gradient"),
        "Look for no_grad, inference_mode, detach or .item() on the way to the loss, and for frozen parameters",
    ),
    (
        _both(_kind(TypeError), _says("keyword argument '", "positional argument")),
        "The keys of the batch must be the arguments of the model's forward",
    ),
    (
        _says("scalartype"),
        "numpy has no numbers of the type of --precision: convert by .float() before",
    ),
    (
        _kind(TypeError),
        "The callable returns (nn.Module, batch), and model(**batch) one number with a gradient",
    ),
    (
        _both(_kind(RuntimeError), _says("same dtype", "scalar type", "dtype")),
        "Weights and floating-point inputs have the type of --precision; create tensors in the type of their inputs",
    ),
    (
        _says("lazy", "uninitialized"),
        "Give lazy modules their sizes when they are made: a plan needs the shape of every parameter",
    ),
    (
        _kind(IndexError),
        "Check the vocabulary, the number of positions and --sequence-length against the batch",
    ),
    (
        _both(
            _kind(RuntimeError, ValueError),
            _says("reduction dim", "shape", "must match", "size mismatch", "doesn't match"),
        ),
        "Sizes do not go together: compare the batch, --sequence-length and the --model-args with what the model takes",
    ),
    (
        _kind(MemoryError),
        "Something real is made while the model is built: leave weights and data out, or plan for a shorter sequence",
    ),
)
