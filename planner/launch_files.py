"""The text of the emitted `launch.py`, `launch.sh` and `hostfile.example`."""

from __future__ import annotations

from planner.plan import Plan

CARRIED = "shardplan_runtime"
"""The name under which the folder carries a copy of `runtime`, so that it never meets another package of that name."""

_LAUNCH_PY = '''"""Trains {name} as plan.json and ds_config.json beside this file say, on {world} ranks.

Start it by launch.sh, or by any of
    torchrun --nproc-per-node {per_node} ... launch.py    {deepspeed}srun python launch.py
It needs {needs}, and this folder; `launch.py --help` lists its options.
"""

import sys
from pathlib import Path

from {carried}.launch import main

if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent))
'''

_LAUNCH_SH = """#!/usr/bin/env bash
# Trains {name} on {world} ranks: {nodes} node(s) of {per_node}. Arguments go to launch.py.
#   one node:       ./launch.sh --steps 10
#   SLURM:          srun --ntasks={world} --ntasks-per-node={per_node} ./launch.sh
#   several nodes:  MASTER_ADDR=<first node> NODE_RANK=<0, 1, ...> ./launch.sh    on each node
{deepspeed}set -euo pipefail
here=$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)
{threads}
if [ "${{SLURM_NTASKS:-0}}" -gt 1 ] && [ -n "${{SLURM_PROCID:-}}" ]; then
  exec python "$here/launch.py" "$@"
fi
if [ {nodes} -eq 1 ]; then
  exec python -m torch.distributed.run --standalone --nproc-per-node {per_node} "$here/launch.py" "$@"
fi
exec python -m torch.distributed.run --nnodes {nodes} --nproc-per-node {per_node} \\
  --node-rank "${{NODE_RANK:?which of the {nodes} nodes this is}}" \\
  --master-addr "${{MASTER_ADDR:?address of the first node}}" --master-port "${{MASTER_PORT:-29500}}" \\
  "$here/launch.py" "$@"
"""


def launch_py(plan: Plan, carried: str) -> str:
    """Returns `launch.py`, which imports its body from the package `carried`."""
    _, per_node = processes(plan)
    is_deepspeed = plan.engine == "deepspeed"
    return _LAUNCH_PY.format(
        name=plan.model.name,
        world=plan.hardware.world_size,
        per_node=per_node,
        carried=carried,
        deepspeed="deepspeed --hostfile FILE launch.py    " if is_deepspeed else "",
        needs="torch and deepspeed" if is_deepspeed else "torch",
    )


def launch_sh(plan: Plan) -> str:
    """Returns `launch.sh`, for one node, SLURM, or one call per node."""
    num_nodes, per_node = processes(plan)
    # Ranks that compute on the same cores only wait for each other with more than their share of threads.
    threads = 'export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"' if plan.hardware.device_kind == "cpu" else ""
    if not threads and any(strategy.offload != "none" for strategy in plan.strategies):
        # The host's cores update what is offloaded, and torchrun would leave each rank one of them.
        cores = f"$(($(nproc) > {per_node} ? $(nproc) / {per_node} : 1))"
        threads = f'export OMP_NUM_THREADS="${{OMP_NUM_THREADS:-{cores}}}"'
    by_deepspeed = "#   or, with ssh:   deepspeed --hostfile hostfile launch.py    (see hostfile.example)\n"
    return _LAUNCH_SH.format(
        name=plan.model.name,
        world=plan.hardware.world_size,
        nodes=num_nodes,
        per_node=per_node,
        threads=threads,
        deepspeed=by_deepspeed if plan.engine == "deepspeed" else "",
    )


def hostfile_example(plan: Plan) -> str:
    """Returns a hostfile to fill in, in the only form that every launcher reads: `host slots=n`."""
    num_nodes, per_node = processes(plan)
    return "".join(f"node{index + 1} slots={per_node}\n" for index in range(num_nodes))


def processes(plan: Plan) -> tuple[int, int]:
    """Returns (nodes, ranks per node) as launched: on CPUs nodes are logical, and all ranks share one machine."""
    if plan.hardware.device_kind == "cpu":
        return 1, plan.hardware.world_size
    return plan.hardware.world_size // plan.hardware.ranks_per_node, plan.hardware.ranks_per_node
