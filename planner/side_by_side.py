"""Answers several questions at once, each in one of a few processes on this machine."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")


def side_by_side(
    answer: Callable[[Question], Answer], questions: Sequence[Question], num_processes: int
) -> list[Answer]:
    """Returns the answer to each question, in their order.

    The processes are forked, so that what they are asked is not copied. So all is answered in this process where
    another thread runs, whose locks a fork would leave held, where the system has no fork, or where a process is lost.

    Args:
        answer: Answers one question; what it raises is raised here, of the first question that raised.
        questions: What is asked, the quickest first: the last is begun first.
        num_processes: At most so many at once; 1: all is answered in this process.
    """
    num_processes = min(num_processes, len(questions))
    can_fork = "fork" in multiprocessing.get_all_start_methods() and threading.active_count() == 1
    if num_processes < 2 or not can_fork:
        return [answer(question) for question in questions]
    context = multiprocessing.get_context("fork")
    try:
        with ProcessPoolExecutor(num_processes, context, _keep, (answer, questions)) as pool:
            futures = [pool.submit(_answered, number) for number in reversed(range(len(questions)))]
            return [future.result() for future in reversed(futures)]
    except BrokenProcessPool:
        return [answer(question) for question in questions]


_KEPT: list[Any] = []
"""In a forked process, what it was given when it began; empty in the one that forks."""


def _keep(answer: Callable[[Any], Any], questions: Sequence[Any]) -> None:
    _KEPT[:] = [answer, questions]


def _answered(number: int) -> Any:
    answer, questions = _KEPT
    return answer(questions[number])
