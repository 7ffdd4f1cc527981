"""The page of a profile shows how near the wires its collectives come, and how its levels are known."""

from __future__ import annotations

import io
from typing import Any

import pytest
from link_machines import clique, graph_of, star
from rich.console import Console
from sample_plan import PROFILE

from hw_profiles.links.link_graph import LinkGraph
from hw_profiles.links.share_of_wires import share_of_wires
from hw_profiles.schema import Curve, CurvePoint, HardwareProfile, Level, Operation, Pair
from planner.report.machines import profile_page

SWITCHED = graph_of(4, star(range(4), "switch", 100))
MESHED = graph_of(4, clique(range(4), 100))
LARGE_BYTES = 10**9


def curve(operation: Operation, inner: int, outer: int, seconds: float) -> Curve:
    points = (CurvePoint(bytes=1024, seconds=1e-5), CurvePoint(bytes=LARGE_BYTES, seconds=seconds))
    return Curve(operation=operation, degree_from=inner, degree_to=outer, points=points)


def profile_with(graph: LinkGraph | None, *curves: Curve, **changes: Any) -> HardwareProfile:
    """Two nodes of four ranks."""
    levels = (
        Level(name="node", size=4, unit_bytes_per_s=1e11, alpha_s=1e-6),
        Level(name="cluster", size=2, unit_bytes_per_s=1e10, alpha_s=1e-5),
    )
    sources = {"device": "by hand", "host": "by hand", "levels.0": "the vendor", "levels.1": "fitted to the curves"}
    sources |= {"curves": "measured", "links": "by hand", "pairs": "measured"}
    links = graph.links if graph else ()
    changed = {"levels": levels, "curves": curves, "links": links, "sources": sources} | changes
    return HardwareProfile.model_validate(PROFILE.model_copy(update=changed).model_dump())


def page_of(profile: HardwareProfile, width: int = 80) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, highlight=False).print(profile_page(profile))
    assert max(len(line.rstrip()) for line in stream.getvalue().splitlines()) <= width
    return stream.getvalue()


def row_of(page: str, name: str) -> list[str]:
    return next(line for line in page.splitlines() if line.startswith(name)).split()


def test_a_share_is_the_bound_over_what_was_measured() -> None:
    # 3/4 of a gigabyte enters a rank at 100 GB/s: 7.5 ms at best.
    profile = profile_with(SWITCHED, curve("all_gather", 1, 4, 10e-3), curve("all_gather", 4, 8, 10e-3))
    assert share_of_wires(profile, profile.curves[0]) == pytest.approx(0.75)
    assert share_of_wires(profile, profile.curves[1]) is None
    assert share_of_wires(profile_with(None, *profile.curves), profile.curves[0]) is None


@pytest.mark.parametrize("width", [80, 120])
def test_groups_inside_a_node_have_their_share_and_others_none(width: int) -> None:
    page = page_of(profile_with(SWITCHED, curve("all_gather", 1, 4, 10e-3), curve("all_gather", 4, 8, 1e-1)), width)
    assert row_of(page, "all-gather over 4")[-1] == "75%"
    assert row_of(page, "all-gather between 4 and 8")[-1] == "-"
    assert "cannot be" not in page


def test_without_links_there_is_no_column() -> None:
    page = page_of(profile_with(None, curve("all_gather", 1, 4, 10e-3)))
    assert "wires" not in page
    assert row_of(page, "all-gather over 4")[-1] == "100"


def test_more_than_the_wires_allow_is_a_wrong_table_of_links() -> None:
    page = page_of(profile_with(SWITCHED, curve("all_gather", 1, 4, 5e-3)))
    assert row_of(page, "all-gather over 4")[-1] == "150%"
    assert "More than 100% cannot be" in page


def test_only_a_switch_lets_an_all_reduce_undercut_the_bound() -> None:
    summed = page_of(profile_with(SWITCHED, curve("all_reduce", 1, 4, 11e-3)))
    assert row_of(summed, "all-reduce over 4")[-1] == "136%"
    assert "summed in a switch" in summed
    assert "cannot be" not in summed
    assert "More than 100% cannot be" in page_of(profile_with(MESHED, curve("all_reduce", 1, 4, 4e-3)))


def test_links_that_leave_ranks_out_are_said_to_be_of_no_use() -> None:
    page = page_of(profile_with(graph_of(2, {(0, 1): 100}), curve("all_gather", 1, 4, 10e-3)))
    assert "The links say nothing" in page
    assert row_of(page, "all-gather over 4")[-1] == "100"


def test_each_level_says_what_pairs_reached_and_how_it_is_known() -> None:
    pairs = (
        Pair(source=0, target=1, bytes_per_s=80e9, latency_s=2e-6),
        Pair(source=2, target=1, bytes_per_s=90e9, latency_s=3e-6),
        Pair(source=0, target=4, bytes_per_s=9e9, latency_s=1e-5),
    )
    page = page_of(profile_with(None, pairs=pairs))
    assert row_of(page, "node  ")[-8:] == ["80.0", "to", "90.0", "2.00", "µs", "to", "3.00", "µs"]
    assert row_of(page, "cluster  ")[-3:] == ["9.00", "10.00", "µs"]
    known = [line.split(maxsplit=1)[1].strip() for line in page.splitlines() if "vendor" in line or "fitted" in line]
    assert known == ["the vendor", "fitted to the curves"]


def test_the_transport_attention_and_warnings_are_shown() -> None:
    device = PROFILE.known_device.model_copy(update={"attention_flop_per_s": {"bf16": 20e9}})
    page = page_of(profile_with(None, device=device, transport="gloo over eth0", warnings=("rank 3 is slow",)))
    assert "gloo over eth0" in page
    assert row_of(page, "  attention bf16") == ["attention", "bf16", "20.00", "GFLOP/s"]
    assert "- rank 3 is slow" in page
