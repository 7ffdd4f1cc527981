"""Questions answered in several processes: the same answers, in order, and errors as one process would raise them.

Functions named `forked_...` are run by a pytest of their own, since nothing is forked beside threads, and the pytest
that runs all tests side by side has some.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
from transformer_graph import SMALL, transformer_graph

from hw_profiles.load import load
from planner import Job, sweep
from planner.errors import InputError
from planner.side_by_side import side_by_side

GRAPH = transformer_graph(SMALL)


def test_processes_answer_as_one_does() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    command += ["-o", "python_functions=forked_*", __file__]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout


def forked_answers_come_in_the_order_of_the_questions_from_other_processes() -> None:
    answers = side_by_side(lambda number: (number * number, os.getpid()), range(6), 2)
    assert [square for square, _ in answers] == [0, 1, 4, 9, 16, 25]
    assert os.getpid() not in {process for _, process in answers}


@pytest.mark.parametrize("num_processes", [1, 2])
def forked_an_error_is_raised_here(num_processes: int) -> None:
    def answer(number: int) -> int:
        if number == 1:
            raise InputError("number 1 cannot be")
        return number

    with pytest.raises(InputError, match="number 1 cannot be"):
        side_by_side(answer, range(3), num_processes)


def test_beside_another_thread_nothing_is_forked() -> None:
    ends = threading.Event()
    thread = threading.Thread(target=ends.wait)
    thread.start()
    try:
        assert set(side_by_side(lambda _: os.getpid(), range(3), 2)) == {os.getpid()}
    finally:
        ends.set()
        thread.join()


def forked_what_a_lost_process_was_asked_is_answered_here() -> None:
    own = os.getpid()

    def answer(number: int) -> int:
        if number == 2 and os.getpid() != own:
            os._exit(9)
        return number

    assert side_by_side(answer, range(3), 2) == [0, 1, 2]


def forked_a_sweep_gives_the_same_plans_in_two_processes() -> None:
    job = Job(global_batch_size=256)
    one, two = (sweep(GRAPH, load("dgx-a100-80gb", 4), job, (8, 16, 32), each) for each in (1, 2))

    def without_time(answers):  # type: ignore[no-untyped-def]
        return [each.model_copy(update={"solver": each.solver.model_copy(update={"wall_s": 0.0})}) for each in answers]

    assert without_time(one) == without_time(two)
