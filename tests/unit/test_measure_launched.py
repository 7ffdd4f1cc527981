"""Which rank a process is, by its launcher's variables."""

from __future__ import annotations

import pytest

from hw_profiles.errors import ProfileError
from hw_profiles.measure.launched import first_host, launched

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "29500"}
SRUN = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_NNODES": "2", "SLURM_JOB_ID": "12345"}


def test_without_a_launcher_there_is_no_rank() -> None:
    assert launched({}) is None
    assert launched({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}) is None


def test_torchruns_variables_are_taken_as_they_are() -> None:
    assert launched({**TORCHRUN, "HOME": "/"}) == TORCHRUN


def test_srun_ranks_find_the_first_host_and_a_port_of_their_job() -> None:
    found = launched({**SRUN, "SLURM_STEP_NODELIST": "gpu[003-004]", "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.9"})
    assert found == {
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "MASTER_ADDR": "gpu003",
        "MASTER_PORT": "22345",
    }
    told = launched({**SRUN, "SLURM_NODELIST": "n1,n2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "7"})
    assert told is not None
    assert (told["MASTER_ADDR"], told["MASTER_PORT"]) == ("10.0.0.1", "7")


def test_srun_without_an_address_of_rank_0_says_what_to_set() -> None:
    with pytest.raises(ProfileError, match="set MASTER_ADDR"):
        launched(SRUN)


@pytest.mark.parametrize(
    ("nodes", "host"),
    [
        ("node1", "node1"),
        ("a1,b2", "a1"),
        ("gpu[003-005,9],login", "gpu003"),
        ("n[7]", "n7"),
        ("dgx-h100-[12,14]", "dgx-h100-12"),
        ("rack[1-2]node[3-4]", None),
        ("", None),
    ],
)
def test_the_first_host_of_a_node_list(nodes: str, host: str | None) -> None:
    assert first_host(nodes) == host


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"RANK": "x"}, "RANK is 'x'"),
        ({"RANK": "4"}, "RANK 4 is not below WORLD_SIZE 4"),
        ({"MASTER_ADDR": None}, "MASTER_ADDR is not"),
        ({"MASTER_PORT": "p"}, "MASTER_PORT is 'p'"),
    ],
)
def test_broken_variables_are_refused_by_name(change: dict[str, str | None], text: str) -> None:
    environment = {name: value for name, value in {**TORCHRUN, **change}.items() if value is not None}
    with pytest.raises(ProfileError, match=text):
        launched(environment)
