"""What was measured outlives a measurement that is cut off, and is never mixed with another's."""

from __future__ import annotations

import json
import resource
import signal
from pathlib import Path

import pytest

from hw_profiles.errors import ProfileError
from hw_profiles.measure.journal import journals, open_journal

ONE, OTHER = {"world size": 2, "quick": True}, {"world size": 4, "quick": True}


def test_a_second_opening_has_the_pieces_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "j"
    first = open_journal(path, ONE)
    assert first.notes == []
    first.add("a", [1.5, 2])
    first.add("b", {"x": 0.1})
    second = open_journal(path, ONE)
    assert second.pieces == {"a": [1.5, 2], "b": {"x": 0.1}}
    assert "2 pieces are measured already" in second.notes[0]
    second.add("c", 3)
    assert list(open_journal(path, ONE).pieces) == ["a", "b", "c"]


def test_each_piece_is_on_disk_as_soon_as_it_is_added(tmp_path: Path) -> None:
    journal = open_journal(tmp_path / "j", ONE)
    journal.add("a", 1)
    assert json.loads((tmp_path / "j").read_text().splitlines()[-1]) == {"piece": "a", "value": 1}


def test_pieces_before_a_broken_line_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = open_journal(path, ONE)
    for name in ("a", "b", "c"):
        journal.add(name, 1)
    path.write_text(path.read_text().replace('"b"', '"b'))
    assert open_journal(path, ONE).pieces == {"a": 1}


def test_a_last_line_that_is_cut_off_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = open_journal(path, ONE)
    journal.add("a", 1)
    journal.add("b", 22)
    path.write_text(path.read_text()[:-3])
    again = open_journal(path, ONE)
    assert again.pieces == {"a": 1}
    again.add("b", 23)
    assert open_journal(path, ONE).pieces == {"a": 1, "b": 23}


def test_a_journal_of_another_measurement_is_not_used_and_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "j"
    open_journal(path, ONE).add("a", 1)
    other = open_journal(path, OTHER)
    assert other.pieces == {}
    assert "world size 2 there, 4 now" in other.notes[0]
    other.add("a", 4)
    assert len(journals(path)) == 2
    # Asked for again, each has its own.
    assert open_journal(path, ONE).pieces == {"a": 1}
    assert open_journal(path, OTHER).pieces == {"a": 4}


def test_fresh_starts_anew_and_keeps_the_old_one_aside(tmp_path: Path) -> None:
    path = tmp_path / "j"
    open_journal(path, ONE).add("a", 1)
    journal = open_journal(path, ONE, fresh=True)
    assert journal.pieces == {}
    assert "as asked for" in journal.notes[0]
    assert len(journals(path)) == 2
    journal.add("a", 2)
    assert open_journal(path, ONE).pieces == {"a": 2}


@pytest.mark.parametrize("content", ["", "no json\n", "[]\n", '{"version": 99, "fingerprint": {}}\n', "\x00\xff\n"])
def test_a_file_that_is_no_journal_is_moved_aside(tmp_path: Path, content: str) -> None:
    path = tmp_path / "j"
    path.write_text(content)
    journal = open_journal(path, ONE)
    assert journal.pieces == {}
    assert "no journal that can be read" in journal.notes[0]
    assert content in [each.read_text() for each in journals(path)]


def test_a_place_that_cannot_be_written_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProfileError, match=r"cannot write .*file/j.*--out"):
        open_journal(tmp_path / "file" / "j", ONE)


def test_a_full_disk_does_not_end_the_measurement(tmp_path: Path) -> None:
    journal = open_journal(tmp_path / "j", ONE)
    used, limits = journal.path.stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (used, limits[1]))
    try:
        trouble = journal.add("a", 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert "cannot be written (File too large)" in trouble
    assert journal.pieces == {"a": 1}
