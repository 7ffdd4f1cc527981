"""The roll call of ranks, each here a thread with connections of its own to one store."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]

from hw_profiles.measure.ending import Ending
from hw_profiles.measure.roll_call import RollCall, store_at

MakeRoll = Callable[[int, int], RollCall]


@pytest.fixture
def roll_of() -> Iterator[MakeRoll]:
    """Makes the roll call of a rank of so many, all over one store; their threads end before the store does."""
    with socket.socket() as endpoint:
        endpoint.bind(("127.0.0.1", 0))
        port = int(endpoint.getsockname()[1])
    store = TCPStore("127.0.0.1", port, None, True, wait_for_workers=False)
    made: list[RollCall] = []

    def connect() -> Store:
        return store_at("127.0.0.1", port, "test", keeps=False, timeout_s=10)

    def make(rank: int, world_size: int) -> RollCall:
        made.append(RollCall(connect, rank, world_size, keeps_store=False))
        return made[-1]

    yield make
    for roll in made:
        roll.close()
    del store


def test_a_rank_without_an_answer_is_named_by_all_others_and_one_of_them_tells(roll_of: MakeRoll) -> None:
    rolls = [roll_of(rank, 3) for rank in (0, 2)]
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


def test_a_ranks_own_error_is_known_at_once_since_the_others_answer_by_themselves(roll_of: MakeRoll) -> None:
    waiting, failing = roll_of(0, 2), roll_of(1, 2)
    begun = time.monotonic()
    ended, speaks = failing.call("ValueError: bad")
    assert time.monotonic() - begun < 3
    assert (ended.message, ended.ranks, speaks) == ("rank 1 failed: ValueError: bad", (1,), False)
    assert waiting.is_called
    assert waiting.call(lost="connection closed")[1]


def test_a_main_thread_that_waits_without_end_is_noticed(roll_of: MakeRoll) -> None:
    roll, noticed = roll_of(0, 1), threading.Event()
    roll.when_hung(0.6, lambda _reason: noticed.set())
    for _ in range(4):
        roll.step()
        assert not noticed.wait(0.3)
    assert noticed.wait(5)
