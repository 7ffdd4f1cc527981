"""What is wrong with a model's name or arguments, before anything of the user's model has run."""

from __future__ import annotations


class UsageError(Exception):
    """The model's name or arguments are wrong: nothing of the user's model has run yet."""
