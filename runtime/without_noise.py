"""Keeps warnings off the terminal that the libraries beneath give to whoever uses them, and no user can act on."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_WARNINGS = (
    # Copying a module of fake tensors asks whether they have memory. Source: `Tensor.__deepcopy__`, torch 2.13.
    r"Accessing the data pointer of FakeTensor",
    # The trace hooks all modules, and asks torch to run compiled ones as they are. Source: `torch._dynamo`, torch 2.13.
    r"Using `torch\.compile\(module\)` when there are global hooks",
    # DeepSpeed 0.19.8 calls them under the names that they had until torch 2.13.
    r"`torch\.distributed\.(all_gather_into_tensor|reduce_scatter_tensor)` is deprecated",
)
_LOG_LINE = "`loss_type=None` was set in the config but it is unrecognized"
"""Of a model whose class name transformers cannot read a loss from; no config has set it, and its loss is right."""
_LOGGER = "transformers.modeling_utils"


@contextmanager
def without_noise() -> Iterator[None]:
    """Inside, exactly the known ones are not shown; all others are."""
    logger = logging.getLogger(_LOGGER)
    with warnings.catch_warnings():
        for message in _WARNINGS:
            warnings.filterwarnings("ignore", message)
        logger.addFilter(_is_news)
        try:
            yield
        finally:
            logger.removeFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_LOG_LINE)
