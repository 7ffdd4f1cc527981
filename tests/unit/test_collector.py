"""The collector of cycles is paused while a question is answered, and is afterwards what it was before."""

from __future__ import annotations

import gc

import pytest

from planner.collector import paused_collector


@pytest.mark.parametrize("was_enabled", [True, False])
def test_the_collector_is_afterwards_what_it_was_even_where_the_answer_is_an_error(was_enabled: bool) -> None:
    before = gc.isenabled()
    (gc.enable if was_enabled else gc.disable)()
    try:
        with pytest.raises(ValueError, match="no answer"), paused_collector():
            assert not gc.isenabled()
            raise ValueError("no answer")
        assert gc.isenabled() == was_enabled
    finally:
        (gc.enable if before else gc.disable)()
