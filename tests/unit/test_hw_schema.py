"""A profile says of every number where it is from, and holds only what can be."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from hw_profiles.errors import ProfileError
from hw_profiles.load import load, read_profile, shipped_names
from hw_profiles.save import as_json, save
from hw_profiles.schema import HardwareProfile


@pytest.fixture
def content() -> dict[str, Any]:
    profile = load("dgx-a100-80gb", num_nodes=2)
    content: dict[str, Any] = json.loads(as_json(profile))
    content["curves"] = [
        {
            "operation": "all_gather",
            "degree_from": 1,
            "degree_to": 8,
            "points": [{"bytes": 1024, "seconds": 1e-5}, {"bytes": 2048, "seconds": 2e-5}],
        }
    ]
    content["sources"]["curves"] = "by hand"
    return content


def refused(content: dict[str, Any], folder: Path) -> ProfileError:
    path = folder / "machine.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ProfileError) as caught:
        read_profile(path)
    assert str(path) in str(caught.value)
    return caught.value


def test_a_good_profile_is_read(content: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(content))
    assert load(path).curves[0].points[1].bytes == 2048


@pytest.mark.parametrize("name", shipped_names())
def test_every_number_of_a_shipped_profile_has_its_source(name: str) -> None:
    profile = load(name)
    for path in sorted(profile.sources.keys() - {"algorithms"}):  # which are no numbers, and have their source too
        bare = profile.model_dump()
        del bare["sources"][path]
        with pytest.raises(ValueError, match="sources has no entry"):
            HardwareProfile.model_validate(bare)


@pytest.mark.parametrize(
    ("keys", "value", "named"),
    [
        (("device", "memory_bytes"), "much", "device.memory_bytes"),
        (("device", "overlap"), 1.5, "device.overlap"),
        (("device", "kind"), "tpu", "device.kind"),
        (("levels", 1, "size"), 0, "levels.1.size"),
        (("levels", 0, "efficiency", "all_gather"), -1, "levels.0.efficiency.all_gather"),
        (("levels", 0, "efficiency", "gossip"), 1, "levels.0.efficiency.gossip"),
        (("curves", 0, "points", 0, "seconds"), 0, "curves.0.points.0.seconds"),
        (("levles",), [], "levles"),
        (("schema_version",), 2, "schema_version"),
    ],
)
def test_a_bad_value_is_named_by_its_dotted_key(
    content: dict[str, Any], tmp_path: Path, keys: tuple[str | int, ...], value: object, named: str
) -> None:
    place: Any = content
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    error = refused(content, tmp_path)
    assert error.key.startswith(named)
    assert error.value == value or named.endswith("gossip")
    assert error.expected
    assert named in str(error)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda c: c["device"].update(reserved_bytes=2**40), "less than memory_bytes"),
        (lambda c: c["device"]["peak_flop_per_s"].pop("fp32"), "same precisions"),
        (lambda c: c.update(node_level=2), "node_level 2 must be an index of levels"),
        (lambda c: c["curves"][0]["points"].reverse(), "sorted by bytes"),
        (lambda c: c["curves"][0].update(degree_to=6), "degree 6 is no prefix fill"),
        (lambda c: c["curves"][0].update(degree_from=8), "must divide"),
        (lambda c: c["curves"].append(copy.deepcopy(c["curves"][0])), "has a curve already"),
        (lambda c: c["curves"][0].update(points=[]), "at least 1 item"),
        (lambda c: c.update(levels=[]), "levels"),
        (lambda c: c["sources"].pop("levels.1.unit_bytes_per_s"), "no entry for levels.1.unit_bytes_per_s"),
    ],
)
def test_what_cannot_be_is_refused(content: dict[str, Any], tmp_path: Path, change: Any, text: str) -> None:
    change(content)
    assert text in str(refused(content, tmp_path))


def test_a_source_covers_all_below_its_path(content: dict[str, Any]) -> None:
    content["sources"] = dict.fromkeys(("device", "host", "levels", "curves"), "by hand")
    assert HardwareProfile.model_validate(content).num_nodes == 2


def test_a_key_that_stands_twice_is_refused(content: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(content).replace('"node_level"', '"name": "other", "node_level"'))
    with pytest.raises(ProfileError, match="'name' stands twice"):
        read_profile(path)


@pytest.mark.parametrize("text", ["{", "[1, 2]", "\x00", ""])
def test_what_is_no_profile_is_no_traceback(tmp_path: Path, text: str) -> None:
    path = tmp_path / "machine.json"
    path.write_text(text)
    with pytest.raises(ProfileError, match=r"machine\.json"):
        load(path)


def test_a_saved_profile_reads_back_the_same_and_writes_the_same_bytes(tmp_path: Path) -> None:
    for name in shipped_names():
        profile = load(name, num_nodes=2)
        path = save(profile, tmp_path / "deep" / f"{name}.json")
        assert load(path) == profile
        assert path.read_text() == as_json(load(path))
    assert sorted(path.stem for path in (tmp_path / "deep").iterdir()) == list(shipped_names())


def test_an_unwritable_place_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProfileError, match="cannot write"):
        save(load("dgx-h100"), tmp_path / "file" / "machine.json")
