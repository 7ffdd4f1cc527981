"""Whatever happened to a dump on its way, reading it gives a profile or an error for people."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from hw_profiles.errors import ProfileError
from hw_profiles.read.read_collectives import read_collectives
from hw_profiles.read.read_machine import read_machine
from hw_profiles.schema import HardwareProfile

DUMPS = sorted((Path(__file__).parent / "dumps").iterdir())
RUNS = [path for path in DUMPS if path.suffix == ".log" or "_perf" in path.name]
TOPOLOGIES = [path for path in DUMPS if path not in RUNS]


@st.composite
def damaged(draw: st.DrawFn, paths: list[Path]) -> bytes:
    """A dump that was cut off, lost lines or bytes, or got others."""
    content = draw(st.sampled_from(paths)).read_bytes()
    place = st.integers(0, len(content))
    lines = content.split(b"\n")
    line = st.integers(0, len(lines) - 1)
    match draw(st.sampled_from(["cut", "lines", "hole", "bytes", "swap", "glue"])):
        case "cut":
            return content[: draw(place)]
        case "lines":
            lost = draw(st.lists(line, min_size=1, max_size=4))
            return b"\n".join(text for index, text in enumerate(lines) if index not in lost)
        case "hole":
            start = draw(place)
            return content[:start] + content[start + draw(st.integers(1, 60)) :]
        case "bytes":
            start = draw(place)
            return content[:start] + draw(st.binary(min_size=1, max_size=12)) + content[start:]
        case "swap":
            one, other = draw(line), draw(line)
            lines[one], lines[other] = lines[other], lines[one]
            return b"\n".join(lines)
        case _:
            index = draw(line)
            lines[index] = b"".join(lines[index].split())
            return b"\n".join(lines)


def kept(content: bytes) -> Path:
    handle, name = tempfile.mkstemp(suffix=".txt")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    return Path(name)


@settings(max_examples=150)
@given(damaged(TOPOLOGIES))
def test_any_damage_to_a_topology_gives_a_profile_or_an_error_for_people(content: bytes) -> None:
    path = kept(content)
    try:
        assert isinstance(read_machine(path, (), None), HardwareProfile)
    except ProfileError as error:
        assert str(error)
    finally:
        path.unlink()


@settings(max_examples=300)
@given(damaged(RUNS))
def test_any_damage_to_a_benchmark_gives_its_points_or_an_error_for_people(content: bytes) -> None:
    path = kept(content)
    try:
        runs, _ = read_collectives(path)
        assert runs
        assert all(run.points and run.num_ranks % run.degree_to == 0 for run in runs)
    except ProfileError as error:
        assert str(error)
    finally:
        path.unlink()


@settings(max_examples=20)
@given(damaged(RUNS), st.sampled_from([path for path in TOPOLOGIES if path.name in ("dgx_a100.txt", "dgx1v.txt")]))
def test_any_damage_to_a_benchmark_beside_a_topology_gives_a_profile_or_an_error_for_people(
    content: bytes, topology: Path
) -> None:
    path = kept(content)
    try:
        assert isinstance(read_machine(topology, (path,), None), HardwareProfile)
    except ProfileError as error:
        assert str(error)
    finally:
        path.unlink()
