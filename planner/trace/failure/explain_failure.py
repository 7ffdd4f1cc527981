"""Turns what went wrong while a model was built or run into errors that say where, why and what to try."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from planner.errors import InputError, ShardplanError, TraceError
from planner.model_graph import ModelSource
from planner.trace.failure.advice import advice
from planner.trace.failure.failure_text import place, reason
from planner.trace.failure.time_limit import OutOfTimeError
from planner.trace.measure.amounts import MismatchError
from planner.trace.record.record_step import StepError
from runtime.model_errors import UsageError


@contextmanager
def explained(source: ModelSource, time_limit_s: float) -> Iterator[None]:
    """Inside, whatever is raised leaves as an `InputError` or a `TraceError`; an interrupt stays what it is."""
    try:
        yield
    except ShardplanError:
        raise
    except UsageError as error:
        raise InputError(str(error)) from error
    except OutOfTimeError as error:
        raise TraceError(
            f"{source.spec}: no end after {time_limit_s:.0f} s{place(error)}. Look for a loop whose end depends on "
            "values: weights and activations have none while a model is traced. --time-limit S gives a large model "
            "longer; --trace static bounds the cost from the layers alone"
        ) from error
    except MismatchError as error:
        raise TraceError(
            f"{source.spec}: the model runs other operators for a micro-batch of another size, so its cost cannot be "
            "predicted. Make what it runs independent of the batch size and of random numbers (LayerDrop off); or "
            "--trace static bounds the cost from the layers alone"
        ) from error
    except StepError as error:
        where = f"module {error.module!r}" if error.module else "the model itself"
        cause = error.__cause__ or error
        raise TraceError(
            f"{source.spec}: {error.phase} failed in {where}{place(cause)}: {reason(cause)}. {advice(cause)}"
        ) from error
    except SystemExit as error:
        raise TraceError(
            f"{source.spec}: the model's code ended the program{place(error)}: SystemExit({error.code!r}). "
            "Let it raise an error, or put what only a script does under `if __name__ == '__main__':`"
        ) from error
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # a model may raise what is no Exception
        raise TraceError(
            f"{source.spec}: building the model failed{place(error)}: {reason(error)}. {advice(error)}"
        ) from error
