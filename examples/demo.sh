#!/usr/bin/env bash
# The main job on this machine: measure it, plan a small GPT for it, train with the plan, compare. About five minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build/demo}
say() { printf '\n\033[1m$ %s\033[0m\n' "$*"; "$@"; }

say shardplan profile --nodes 2 --ranks-per-node 2 --quick
say shardplan plan examples/gpt.py:gpt --hardware local-cpu --nodes 2 --ranks-per-node 2 \
    --global-batch-size 16 --sequence-length 128 --precision fp32 --out "$out" --force
say shardplan run "$out" --steps 10
