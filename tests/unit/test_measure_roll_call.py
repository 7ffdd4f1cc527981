"""The roll call of ranks, each here a thread with connections of its own to one store."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]

from hw_profiles.measure.ending import Ending
from hw_profiles.measure.roll_call import RollCall, store_at


@pytest.fixture
def port() -> int:
    with socket.socket() as endpoint:
        endpoint.bind(("127.0.0.1", 0))
        return int(endpoint.getsockname()[1])


def keeper(port: int) -> TCPStore:
    return TCPStore("127.0.0.1", port, None, True, wait_for_workers=False)


def roll_of(port: int, rank: int, world_size: int) -> RollCall:
    def connect() -> Store:
        return store_at("127.0.0.1", port, "test", keeps=False, timeout_s=10)

    return RollCall(connect, rank, world_size, keeps_store=False)


def test_a_rank_without_an_answer_is_named_by_all_others_and_one_of_them_tells(port: int) -> None:
    store = keeper(port)
    rolls = [roll_of(port, rank, 3) for rank in (0, 2)]
    for roll in rolls:
        roll.step("all_gather between 1 and 4")
    outcomes: list[tuple[Ending, bool]] = []
    callers = [
        threading.Thread(target=lambda own=roll: outcomes.append(own.call(lost="connection closed"))) for roll in rolls
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(20)
    assert [ended.ranks for ended, _ in outcomes] == [(1,), (1,)]
    assert sorted(speaks for _, speaks in outcomes) == [False, True]
    assert "while measuring all_gather between 1 and 4" in outcomes[0][0].message
    del store


def test_a_ranks_own_error_is_known_at_once_since_the_others_answer_by_themselves(port: int) -> None:
    store = keeper(port)
    waiting, failing = roll_of(port, 0, 2), roll_of(port, 1, 2)
    begun = time.monotonic()
    ended, speaks = failing.call("ValueError: bad")
    assert time.monotonic() - begun < 3
    assert (ended.message, ended.ranks, speaks) == ("rank 1 failed: ValueError: bad", (1,), False)
    assert waiting.is_called
    assert waiting.call(lost="connection closed")[1]
    del store


def test_a_main_thread_that_waits_without_end_is_noticed(port: int) -> None:
    store = keeper(port)
    roll, noticed = roll_of(port, 0, 1), threading.Event()
    roll.when_hung(1.0, noticed.set)
    for _ in range(4):
        roll.step()
        assert not noticed.wait(0.5)
    assert noticed.wait(5)
    del store
