"""Following a curve: which sizes are timed, how often, and when it is known. On simulated machines."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from hw_profiles.measure.effort import effort_per_curve, kinds_to_time, seconds_per_pair
from hw_profiles.measure.follow_curve import Effort, bends, follow_curve, spread

EFFORT = Effort(
    seconds_per_curve=10.0,
    least_repetitions=5,
    most_repetitions=100,
    known_within=0.02,
    settled_within=0.05,
    finer=True,
)
FIRST, LIMIT = 1 << 10, 1 << 40


class Machine:
    """Takes the seconds of a law for each message, with noise of its own seed, and remembers what was asked."""

    def __init__(self, law: Callable[[int], float], noise: float = 0.0) -> None:
        self._law, self._noise, self._random = law, noise, random.Random(0)
        self.asked: list[int] = []
        self.spent_s = 0.0

    def timed(self, sizes: Sequence[int]) -> tuple[list[float], float]:
        seconds = [self._law(size) * (1 + self._noise * self._random.random()) for size in sizes]
        self.asked += sizes
        self.spent_s += sum(seconds)
        return seconds, sum(seconds)


def linear(size_bytes: int) -> float:
    return 20e-6 + size_bytes / 1e9


def test_a_curve_ends_when_larger_messages_would_only_repeat_its_bandwidth() -> None:
    samples = follow_curve(Machine(linear).timed, FIRST, LIMIT, EFFORT)
    # 20 us are 20 kB at 1 GB/s: the step to 1 MiB changes the bandwidth by 5.6 %, those to 4 and 16 MiB by 1.4 and 0.4.
    assert list(samples) == [FIRST * 4**step for step in range(8)]


def test_a_curve_never_takes_more_memory_than_there_is() -> None:
    samples = follow_curve(Machine(linear).timed, FIRST, 100_000, EFFORT)
    assert max(samples) == 1 << 16


@pytest.mark.parametrize("bytes_per_s", [1e6, 1e7, 1e9])
def test_a_curve_keeps_to_its_time_however_slow_the_links(bytes_per_s: float) -> None:
    # The bandwidth never settles here.
    machine = Machine(lambda size: 1e-3 + size**0.9 / bytes_per_s, noise=0.5)
    samples = follow_curve(machine.timed, FIRST, LIMIT, EFFORT)
    assert machine.spent_s < 1.3 * EFFORT.seconds_per_curve
    assert len(samples) >= 4


def test_small_sizes_are_measured_even_where_no_time_is_left() -> None:
    machine = Machine(lambda size: 1.0)
    samples = follow_curve(machine.timed, FIRST, LIMIT, replace(EFFORT, seconds_per_curve=0.1))
    assert list(samples) == [1 << 10, 1 << 12, 1 << 14, 1 << 16]
    assert {len(seconds) for seconds in samples.values()} == {5}


def test_a_steady_curve_is_repeated_as_often_as_it_must_and_a_noisy_one_until_it_is_known() -> None:
    steady = follow_curve(Machine(linear).timed, FIRST, LIMIT, EFFORT)
    noisy = follow_curve(Machine(linear, noise=0.5).timed, FIRST, LIMIT, EFFORT)
    assert {len(seconds) for seconds in steady.values()} == {2 * EFFORT.least_repetitions}
    assert all(len(seconds) > 20 for seconds in noisy.values())
    for seconds in noisy.values():
        is_known = spread(seconds) * 0.929 / len(seconds) ** 0.5 <= EFFORT.known_within
        assert is_known or len(seconds) >= EFFORT.most_repetitions


def test_a_pace_that_lasts_as_long_as_a_size_is_repeated_is_not_taken_for_steadiness() -> None:
    paces, last = random.Random(1), [0, 1.0]

    def law(size_bytes: int) -> float:
        if size_bytes != last[0]:
            last[:] = [size_bytes, paces.choice((1.0, 1.5))]
        return linear(size_bytes) * last[1]

    samples = follow_curve(Machine(law).timed, FIRST, LIMIT, EFFORT)
    # In a row they would agree to the last digit, and be of one pace or of the other.
    assert all(len(set(seconds)) == 2 for seconds in samples.values())
    assert all(len(seconds) > 20 for seconds in samples.values())


def test_sizes_are_repeated_in_turns() -> None:
    machine = Machine(linear, noise=0.5)
    samples = follow_curve(machine.timed, FIRST, LIMIT, EFFORT)
    repeated = machine.asked[5 * len(samples) :]
    assert repeated[: 3 * len(samples)] == 3 * sorted(samples)


def test_what_was_taken_in_a_row_counts_only_where_there_is_no_time_for_turns() -> None:
    calls: list[int] = []

    def law(size_bytes: int) -> float:
        calls.append(size_bytes)
        return 1.0 if len(calls) > 5 * 4 else 2.0

    ample = follow_curve(Machine(law).timed, FIRST, 1 << 16, replace(EFFORT, seconds_per_curve=100.0))
    assert all(set(seconds) == {1.0} and len(seconds) == 10 for seconds in ample.values())
    calls.clear()
    scarce = follow_curve(Machine(law).timed, FIRST, 1 << 16, replace(EFFORT, seconds_per_curve=1.0))
    assert all(set(seconds) == {2.0} and len(seconds) == 5 for seconds in scarce.values())


def test_sizes_are_added_where_the_curve_bends_and_nowhere_else() -> None:
    def with_step(size_bytes: int) -> float:
        return linear(size_bytes) + (1e-3 if size_bytes > 1 << 15 else 0.0)

    samples = follow_curve(Machine(with_step).timed, FIRST, LIMIT, EFFORT)
    added = [size for size in samples if size.bit_length() % 2 == 0]
    assert added
    assert all(1 << 12 < size < 1 << 18 for size in added)
    assert bends({size: [linear(size)] for size in samples}) == ()
    # What noise explains is no bend.
    assert bends({1 << 10: [1.0, 1.1], 1 << 12: [1.0, 2.5], 1 << 14: [1.1, 1.2]}) == ()
    assert bends({1 << 10: [1.0, 1.1], 1 << 12: [1.7, 1.8], 1 << 14: [1.1, 1.2]}) == (1 << 11, 1 << 13)


def test_the_same_seconds_give_the_same_decisions() -> None:
    first, second = Machine(linear, noise=0.5), Machine(linear, noise=0.5)
    assert follow_curve(first.timed, FIRST, LIMIT, EFFORT) == follow_curve(second.timed, FIRST, LIMIT, EFFORT)
    assert first.asked == second.asked


def test_all_kinds_of_group_of_the_search_space_are_timed() -> None:
    assert kinds_to_time((4,), quick=False) == ((1, 2), (1, 4), (2, 4))
    assert (2, 8) in kinds_to_time((4, 4), quick=True)
    many = kinds_to_time((8, 16), quick=True)
    assert many == ((1, 8), (1, 128), (8, 128))
    assert (2, 64) in kinds_to_time((8, 16), quick=False)


@pytest.mark.parametrize("nodes", [1, 8, 128, 1024])
def test_the_time_of_a_measurement_does_not_grow_with_the_machine(nodes: int) -> None:
    for quick, most_s in ((True, 40.0), (False, 2400.0)):
        num_curves = 6 * len(kinds_to_time((8, nodes), quick))
        assert num_curves * effort_per_curve(quick, num_curves).seconds_per_curve <= most_s
    assert 240 * seconds_per_pair(True, 240) <= 3.0
