"""Runs every way to train on emulated clusters: holds what was predicted, and what was chosen, to what was measured.

Needs root, `ip` and `tc`, and a machine with nothing else to do; a scenario takes from five minutes to an hour:

    .venv/bin/python benchmarks/accuracy_and_regret.py --keep build/regret --only 2x2-3000-300 --out docs/accuracy.md

Each cluster (network namespaces as nodes, joined by shaped links) is profiled by `shardplan profile` once. On it each
model is planned, and then trained in every way there is: all points of both engines, the plan, DeepSpeed's defaults,
and PyTorch's `fully_shard` by itself. Memory and messages do not depend on the links: they are recorded once for all
clusters, without shaping; what is timed on the links records nothing.
What was measured is kept beneath `--keep`; `--again` writes the page of all that is there without measuring. The page
has the predictions and the plan of the present code, of the profile that was measured on each cluster. What it shows is
in `benchmarks/kept/regret`, and what is left of it can be measured into that folder.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accuracy_page import page
from accuracy_plots import plot_regret, plot_steps
from collectives_accuracy import profile_of
from emulated_cluster import CONNECTIONS, EmulatedCluster, emulated_cluster
from scenarios import SCENARIOS, Cluster, Scenario
from strategy_space import Candidate, candidates, fixed_plans

from hw_profiles.load import read_profile
from hw_profiles.save import save
from hw_profiles.schema import HardwareProfile
from planner import plan
from planner.job import Job
from planner.plan import Plan

_HERE = Path(__file__).parent
WARM_UP_STEPS = {"deepspeed": 2, "fsdp": 1}
"""Not timed: in the first DeepSpeed's stage 3 learns the order of modules, and it prefetches from the second on."""
TIMED_STEPS = ((2.0, 3), (4.0, 2), (float("inf"), 1))
"""Of steps predicted to take up to so many seconds, how many are timed: long ones differ least."""


def measured(scenario: Scenario, cluster: EmulatedCluster, profile: HardwareProfile, keep: Path) -> dict[str, Any]:
    """Returns what every way to train the scenario's model was predicted to do, and did."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = candidates(_traced(scenario, folder), profile, _job(scenario, profile), folder / "candidates")
        _record(found, profile.world_size, keep)
        alike = defaultdict(list)
        for each in found:
            alike[each.role == "plain", WARM_UP_STEPS[each.engine] + _num_timed(each)].append(each)
        for (is_plain, num_steps), chosen in alike.items():
            options = ["--time-only", "--steps", str(num_steps), *(("--plain",) if is_plain else ())]
            cluster.run(_runner(chosen, folder, options), timeout_s=300.0 * len(chosen))
        rows = [_row(each, keep) for each in found]
    return {
        "name": scenario.name,
        "day": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "scenario": dataclasses.asdict(scenario),
        "connections": CONNECTIONS,
        "levels": [level.size for level in profile.levels],
        "rows": rows,
    }


def _record(found: Sequence[Candidate], world_size: int, keep: Path) -> None:
    left = {
        _recorded(each, keep): each for each in found if each.role != "plain" and not _recorded(each, keep).exists()
    }
    if not left:
        return
    some = next(iter(left.values())).folder.parent
    arguments = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world_size)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments, *_runner(list(left.values()), some, ["--steps", "1"])]
    subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    for path, candidate in left.items():
        report = candidate.folder / "measured.json"
        if report.exists():
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(json.loads(report.read_text())["measured"]))


def _recorded(candidate: Candidate, keep: Path) -> Path:
    """Returns where memory and messages of this way to train are kept: they hang on what is run alone."""
    plan = json.loads((candidate.folder / "plan.json").read_text())
    config = json.loads((candidate.folder / "ds_config.json").read_text())
    # Wherever the repository is.
    model = json.dumps(plan["model"]).replace(str(_HERE.parent), "")
    run = [model, plan["strategies"], plan["hardware"]["world_size"], config, candidate.engine]
    return keep / "recorded" / f"{hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()[:16]}.json"


def _runner(chosen: Sequence[Candidate], folder: Path, options: Sequence[str]) -> list[str]:
    listed = folder / "folders.json"
    listed.write_text(json.dumps([str(each.folder) for each in chosen]))
    return [str(_HERE / "run_strategies.py"), str(listed), *options]


def _num_timed(candidate: Candidate) -> int:
    return next(number for most_s, number in TIMED_STEPS if candidate.predicted["step_s"] <= most_s)


def _traced(scenario: Scenario, folder: Path) -> str:
    model = scenario.model
    graph = folder / "graph.json"
    arguments = [part for argument in model.arguments for part in ("--model-arg", argument)]
    sequence = ["--sequence-length", str(model.sequence_length)] if model.sequence_length else []
    precision = ["--precision", model.precision, "--device", "cpu"]
    command = [str(Path(sys.executable).with_name("shardplan")), "trace", model.spec, *arguments, *sequence, *precision]
    subprocess.run([*command, "--out", str(graph)], check=True, capture_output=True, text=True)
    return str(graph)


def _job(scenario: Scenario, profile: HardwareProfile) -> Job:
    model = scenario.model
    return Job(
        global_batch_size=model.micro_batch_size * scenario.num_micro_batches * profile.world_size,
        sequence_length=model.sequence_length,
        micro_batch_size=model.micro_batch_size,
        precision=model.precision,  # type: ignore[arg-type]
        recompute="none",
        offload="none",
    )


def _row(candidate: Candidate, keep: Path) -> dict[str, Any]:
    folder = candidate.folder
    row: dict[str, Any] = {
        "name": candidate.name,
        "role": candidate.role,
        "engine": candidate.engine,
        "predicted": candidate.predicted,
        "strategies": json.loads((folder / "plan.json").read_text())["strategies"],
        "config": json.loads((folder / "ds_config.json").read_text()),
    }
    timed, recorded = folder / "timed.json", _recorded(candidate, keep)
    if not timed.exists() or (candidate.role != "plain" and not recorded.exists()):
        failures = sorted(folder.glob("failed-*.txt"))
        return {**row, "failed": failures[0].read_text()[-2000:] if failures else "nothing was reported"}
    seconds = [step["seconds"] for step in json.loads(timed.read_text())["steps"]]
    seconds = seconds[WARM_UP_STEPS[candidate.engine] :]
    figures = json.loads(recorded.read_text()) if candidate.role != "plain" else {}
    return {**row, "measured": {**figures, "step_s": statistics.median(seconds)}}


def _profile(cluster: EmulatedCluster, asked: Cluster, keep: Path) -> HardwareProfile:
    path = keep / f"profile-{asked.name}.json"
    if not path.exists():
        save(profile_of(cluster), path)
    return read_profile(path)


def main() -> None:
    """Runs what is asked for and not kept yet, and writes the page of all that is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--keep", type=Path, default=Path("build/regret"), help="a folder for what was measured")
    parser.add_argument("--only", nargs="*", default=[], help="beginnings of the scenarios' names; default: all")
    parser.add_argument("--again", action="store_true", help="measure nothing")
    parser.add_argument("--out", type=Path, help="where to write the page; default: printed")
    parser.add_argument("--plots", action="store_true", help="pictures beside the page; needs matplotlib")
    given = parser.parse_args()
    given.keep.mkdir(parents=True, exist_ok=True)
    for asked in dict.fromkeys(scenario.cluster for scenario in SCENARIOS) if not given.again else ():
        left = [each for each in SCENARIOS if each.cluster == asked and _is_asked(each, given.only, given.keep)]
        if left:
            _run_all(asked, left, given.keep)
    order = {scenario.name: place for place, scenario in enumerate(SCENARIOS)}
    kept = [json.loads(path.read_text()) for path in given.keep.glob("scenario-*.json")]
    kept.sort(key=lambda each: order.get(each["name"], len(order)))
    for scenario in SCENARIOS:
        for each in kept:
            if each["name"] == scenario.name:
                _predict_again(each, scenario, read_profile(given.keep / f"profile-{scenario.cluster.name}.json"))
    plots = _plotted(kept, given.out) if given.plots and given.out else []
    text = page(kept, " ".join(["python", *sys.argv]), plots)
    if given.out:
        given.out.write_text(text)
    else:
        print(text)


def _predict_again(kept: dict[str, Any], scenario: Scenario, profile: HardwareProfile) -> None:
    """Sets the predictions and the plan of the present code in the place of those of the day.

    Raises:
        ValueError: The plan is another one than that of the day, and was not run among all ways to train either.
    """
    with tempfile.TemporaryDirectory() as name:
        folder, job = Path(name), _job(scenario, profile)
        graph = _traced(scenario, folder)
        found = fixed_plans(graph, profile, job, folder)
        planned = plan(graph, profile, job)
    for row in kept["rows"]:
        if row["name"] in found:
            row["predicted"] = found[row["name"]].predicted.model_dump(mode="json")
    same = [row for row in kept["rows"] if _runs(row, found, planned)]
    if not same:
        raise ValueError(f"{scenario.name}: the plan is another one now; remove what was kept, and measure again")
    others = [row for row in kept["rows"] if row["role"] != "plan"]
    predicted = planned.predicted.model_dump(mode="json")
    kept["rows"] = [{**same[0], "name": "plan", "role": "plan", "predicted": predicted}, *others]


def _runs(row: dict[str, Any], found: dict[str, Plan], planned: Plan) -> bool:
    """Tells whether a row was measured of what the plan runs."""
    if row["role"] == "plain":
        return False
    if row["name"] in found:
        other = found[row["name"]]
        return (other.engine, other.strategies, other.ds_config) == (
            planned.engine,
            planned.strategies,
            planned.ds_config,
        )
    strategies = planned.model_dump(mode="json")["strategies"]
    return (row["engine"], row["strategies"], row.get("config")) == (planned.engine, strategies, planned.ds_config)


def _plotted(kept: Sequence[dict[str, Any]], out: Path) -> list[str]:
    found = []
    for name, plot in (("steps", plot_steps), ("regret", plot_regret)):
        path = out.with_name(f"{out.stem}_{name}.png")
        plot(kept, path)
        found.append(path.name)
    return found


def _is_asked(scenario: Scenario, beginnings: list[str], keep: Path) -> bool:
    is_named = not beginnings or any(scenario.name.startswith(each) for each in beginnings)
    return is_named and not (keep / f"scenario-{scenario.name}.json").exists()


def _run_all(asked: Cluster, scenarios: list[Scenario], keep: Path) -> None:
    settings = dataclasses.asdict(asked)
    with emulated_cluster(**(settings if asked.num_racks > 1 else {**settings, "racks_mbit": 12})) as cluster:
        profile = _profile(cluster, asked, keep)
        for scenario in scenarios:
            print(f"{datetime.datetime.now():%H:%M} {scenario.name}", file=sys.stderr, flush=True)
            text = json.dumps(measured(scenario, cluster, profile, keep))
            (keep / f"scenario-{scenario.name}.json").write_text(text)


if __name__ == "__main__":
    main()
