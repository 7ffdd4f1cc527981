"""Writes a plan as a folder that runs by itself: the plan, its engine's configuration, the launcher and its runtime."""

from __future__ import annotations

import json
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

import runtime
from planner.errors import InputError
from planner.launch_files import CARRIED, hostfile_example, launch_py, launch_sh
from planner.plan import Plan

REPLACEABLE = frozenset(
    {
        "plan.json",
        "ds_config.json",
        "launch.py",
        "launch.sh",
        "hostfile.example",
        "config.json",
        "graph.json",
        "hardware.json",
        CARRIED,
        "run.json",
        "logs",
        "report.html",
    }
)
"""What planning and running put into a folder. Anything else is somebody's own."""

_IMPORT = re.compile(r"^(\s*)(from|import) runtime\b", flags=re.MULTILINE)


def emit(plan: Plan, folder: Path, force: bool = False, extra_files: Mapping[str, str] | None = None) -> None:
    """Writes the plan's files into `folder`, all of them or none.

    Args:
        plan: Of `plan` or `estimate`.
        folder: Made anew; its parents are made too.
        force: Replaces the folder of an earlier plan, once the new one is complete.
        extra_files: Further text files by name, such as what the plan was made from.

    Raises:
        InputError: The folder exists and `force` is not given or there is no plan in it, or it cannot be written.
    """
    check_replaceable(folder, force)
    folder = folder.resolve()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = folder.parent / f".{folder.name}.{secrets.token_hex(4)}"
        try:
            _write(plan, unfinished, extra_files or {})
            _move(unfinished, folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror or error}") from error


def plan_json(plan: Plan) -> str:
    """Returns what `plan.json` holds and `plan --json` prints: one JSON document with a final newline."""
    return plan.model_dump_json(indent=2) + "\n"


def check_replaceable(folder: Path, force: bool) -> None:
    """Returns if a plan may be written to `folder`: what `emit` would refuse can be refused before the work.

    Raises:
        InputError: There is something that `force` does not allow to replace, or the folder cannot be looked at.
    """
    try:
        _check_replaceable(folder.resolve(), force)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror or error}") from error


def _check_replaceable(folder: Path, force: bool) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"{folder} is a file, and a plan needs a folder; choose another --out")
    if not force:
        raise InputError(
            f"{folder} exists already and is left as it is; choose another --out, or replace it by --force"
        )
    names = sorted(path.name for path in folder.iterdir())
    foreign = [name for name in names if name not in REPLACEABLE]
    if foreign or (names and "plan.json" not in names):
        first = (foreign or names)[0]
        raise InputError(
            f"{folder} holds other things than a plan, such as {first}, and --force would delete them; choose another "
            "--out, or move them away"
        )


def _write(plan: Plan, folder: Path, extra_files: Mapping[str, str]) -> None:
    folder.mkdir()
    files = dict(extra_files)
    files["plan.json"] = plan_json(plan)
    files["ds_config.json"] = json.dumps(plan.ds_config, indent=2) + "\n"
    files["launch.py"] = launch_py(plan, CARRIED)
    files["launch.sh"] = launch_sh(plan)
    files["hostfile.example"] = hostfile_example(plan)
    if plan.model.source.kind == "hf_config":
        files["config.json"] = _config_text(Path(plan.model.source.spec))
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "launch.sh").chmod(0o755)
    _carry_runtime(folder / CARRIED)


def _config_text(spec: Path) -> str:
    path = spec / "config.json" if spec.is_dir() else spec
    return path.read_text(encoding="utf-8")


def _carry_runtime(folder: Path) -> None:
    origin = Path(runtime.__file__).parent
    for source in sorted(origin.rglob("*.py")):
        target = folder / source.relative_to(origin)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = _IMPORT.sub(rf"\1\2 {CARRIED}", source.read_text(encoding="utf-8"))
        target.write_text(text, encoding="utf-8")


def _move(new: Path, folder: Path) -> None:
    """Puts `new` in the place of `folder`; what was there stays until the new one is in its place."""
    if not folder.exists():
        new.rename(folder)
        return
    old = new.with_name(f"{new.name}.old")
    folder.rename(old)
    try:
        new.rename(folder)
    except OSError:
        old.rename(folder)
        raise
    shutil.rmtree(old)
