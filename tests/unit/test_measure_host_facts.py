"""What Linux says of this host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from hw_profiles.measure.host_facts import (
    available_bytes,
    interface_towards,
    is_stopped,
    limit_bytes,
    own_cores,
    resident_bytes,
)


def test_memory_that_can_be_had_is_part_of_what_may_be_used() -> None:
    assert 0 < resident_bytes() < limit_bytes()
    assert 0 < available_bytes() <= limit_bytes()


def test_a_process_that_holds_memory_leaves_less() -> None:
    before = available_bytes()
    held = subprocess.Popen(
        [sys.executable, "-c", "kept = b'x' * (1 << 30); print(len(kept), flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert held.stdout is not None
    held.stdout.readline()
    after = available_bytes()
    held.communicate(b"\n")
    # Others run on this host too.
    assert before - after > 1 << 29


def test_a_host_reaches_itself_over_the_loopback_interface() -> None:
    assert interface_towards("127.0.0.1") == "lo"
    assert interface_towards("no.such.host.invalid") is None


def test_a_process_runs_on_cores_of_the_host() -> None:
    assert set(own_cores()) <= set(range(os.cpu_count() or 1))


def test_a_stopped_process_is_known_as_such() -> None:
    process = subprocess.Popen(["sleep", "30"])
    try:
        assert not is_stopped(process.pid)
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        assert is_stopped(process.pid)
    finally:
        process.kill()
        process.wait()
    assert not is_stopped(process.pid)
