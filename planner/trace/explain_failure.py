"""Turns what went wrong while a model was built or run into errors that say where, why and what to try."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from planner.errors import InputError, ShardplanError, TraceError
from planner.model_graph import ModelSource
from planner.trace.amounts import MismatchError
from planner.trace.record_step import StepError
from planner.trace.shadow import ForeignDeviceError
from planner.trace.time_limit import OutOfTimeError
from runtime.model_errors import UsageError


@contextmanager
def explained(source: ModelSource, time_limit_s: float) -> Iterator[None]:
    """Inside, whatever is raised leaves as an `InputError` or a `TraceError`."""
    try:
        yield
    except ShardplanError:
        raise
    except UsageError as error:
        raise InputError(str(error)) from error
    except OutOfTimeError as error:
        raise TraceError(
            f"{source.spec}: no end after {time_limit_s:.0f} s{_place(error)}. "
            "Look for a loop whose end depends on values: weights and activations have none while a model is traced."
        ) from error
    except MismatchError as error:
        raise TraceError(
            f"{source.spec}: the model runs other operators for a micro-batch of another size, so its cost cannot be "
            "predicted. Make what it runs independent of the batch size and of random numbers (LayerDrop off)."
        ) from error
    except StepError as error:
        where = f"module {error.module!r}" if error.module else "the model itself"
        cause = error.__cause__ or error
        raise TraceError(
            f"{source.spec}: {error.phase} failed in {where}{_place(cause)}: {_reason(cause)}. {_advice(cause)}"
        ) from error
    except SystemExit as error:
        raise TraceError(
            f"{source.spec}: the model's code ended the program{_place(error)}: SystemExit({error.code!r}). "
            "Let it raise an error, or put what only a script does under `if __name__ == '__main__':`"
        ) from error
    except Exception as error:
        raise TraceError(
            f"{source.spec}: building the model failed{_place(error)}: {_reason(error)}. {_advice(error)}"
        ) from error


def _reason(error: BaseException) -> str:
    if isinstance(error, ForeignDeviceError):
        return f"it asks for the device '{error}'"
    first, *others = str(error).strip().splitlines() or [""]
    # A line that ends in a colon announces the reason and does not say it.
    text = " ".join([first, *(line.strip() for line in others[:1] if first.endswith(":"))]).rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _place(error: BaseException) -> str:
    """The innermost line that is neither torch's nor ours."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = frame.filename
        if not any(part in file for part in ("/torch/", "/planner/trace/", "/runtime/load_model.py", "<")):
            return f" ({file}:{frame.lineno})"
    return ""


def _advice(error: BaseException) -> str:
    if isinstance(error, ForeignDeviceError) or "cuda" in str(error).lower():
        return "Models are traced on the CPU: leave the device to the launcher, and inside forward take it from inputs"
    if isinstance(error, DataDependentOutputException | DynamicOutputShapeException):
        return "What runs depends on values that a trace has not: compute it from shapes or from integer inputs"
    if isinstance(error, TypeError) and "argument" in str(error):
        return "The keys of the batch must be the arguments of the model's forward"
    if isinstance(error, TypeError):
        return "The callable returns (nn.Module, batch), and model(**batch) one number with a gradient"
    if isinstance(error, RuntimeError) and "dtype" in str(error):
        return (
            "Weights and floating-point inputs have the type of --precision; create tensors in the type of their inputs"
        )
    if isinstance(error, IndexError):
        return "Check the vocabulary, the number of positions and --sequence-length against the batch"
    return "Try it without the planner: model, batch = CALLABLE(micro_batch_size=2); model(**batch).backward()"
