"""One answer to who failed, made of what each rank knows."""

from __future__ import annotations

from hw_profiles.measure.ending import FAILED, USAGE, Answer, ending, ranks_text


def test_ranks_that_give_no_answer_are_named() -> None:
    found = ending({0: Answer(step=4, doing="all_gather", lost="closed"), 2: Answer(step=4)}, 3)
    assert (found.exit_code, found.ranks) == (FAILED, (1,))
    assert "rank 1 does not answer any more while measuring all_gather" in found.message


def test_a_ranks_own_error_is_told_and_not_what_others_saw_of_it() -> None:
    answers = {0: Answer(step=9, lost="Connection closed by peer"), 1: Answer(step=9, failure="ValueError: bad")}
    found = ending(answers, 2)
    assert (found.ranks, found.message) == ((1,), "rank 1 failed: ValueError: bad")


def test_a_mistake_of_usage_ends_with_its_own_text_and_code() -> None:
    found = ending({0: Answer(), 1: Answer(failure="too many ranks", is_usage=True)}, 2)
    assert (found.message, found.exit_code) == ("too many ranks", USAGE)


def test_a_rank_that_answers_but_is_behind_hung() -> None:
    found = ending({0: Answer(step=7, lost="timed out"), 1: Answer(step=6), 2: Answer(step=7)}, 3)
    assert found.ranks == (1,)
    assert "rank 1 hung" in found.message


def test_a_lost_message_between_ranks_that_all_answer_accuses_none() -> None:
    found = ending({0: Answer(step=7, lost="timed out"), 1: Answer(step=7)}, 2)
    assert (found.ranks, found.exit_code) == ((), FAILED)
    assert "timed out" in found.message


def test_of_many_ranks_the_first_few_are_named() -> None:
    assert ranks_text((3,)) == "rank 3"
    assert ranks_text((1, 2, 5)) == "ranks 1, 2 and 5"
    assert ranks_text(tuple(range(100))) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 92 more"
