"""What `accelerate estimate-memory` says, by the two functions that it calls."""

from __future__ import annotations

import time

from peers_model import empty_model
from peers_question import Answer, Question

TITLE = "accelerate estimate-memory"
SOURCE = "huggingface.co/docs/accelerate/usage_guides/model_size_estimator"
SEARCHES = "nothing: weights, gradients and Adam for one device, batch 1, no activations"
ASKED = ("gpt2", "llama-7b", "llama-70b")


def answers(question: Question) -> tuple[Answer, ...]:
    """Returns its "Training using Adam" for float16, whole on one device; the command itself reads the Hub."""
    from accelerate.commands.estimate import estimate_training_usage
    from accelerate.utils import calculate_maximum_sizes

    model = empty_model(question)
    started_s = time.perf_counter()
    total_bytes, _ = calculate_maximum_sizes(model)
    usage = estimate_training_usage(total_bytes, "float16")
    seconds = time.perf_counter() - started_s
    # Source: accelerate 1.15.0, commands/estimate.py, estimate_command: the greatest of the four is shown.
    return (Answer("no sharding", int(max(usage.values())), None, seconds, None, "unsharded, as documented"),)
