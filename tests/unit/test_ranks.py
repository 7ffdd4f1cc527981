import pytest

from runtime.ranks import LaunchError, rank_environment

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "29500",
}


def test_the_three_launchers_put_a_rank_in_the_same_place():
    assert rank_environment({**TORCHRUN, "HOME": "/root"}) == TORCHRUN
    deepspeed = {name: value for name, value in TORCHRUN.items() if name != "LOCAL_WORLD_SIZE"} | {"LOCAL_SIZE": "4"}
    assert rank_environment(deepspeed) == TORCHRUN
    slurm = {
        "SLURM_PROCID": "5",
        "SLURM_NTASKS": "8",
        "SLURM_LOCALID": "1",
        "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
        "SLURM_STEP_NODELIST": "node[1-2]",
        "SLURM_JOB_ID": "9500",
    }
    assert rank_environment(slurm) == TORCHRUN


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("gpu[003-005,9],login", "gpu003"), ("gpu[7,9]", "gpu7"), ("alone", "alone"), ("a1,b2", "a1")],
)
def test_the_first_host_of_a_slurm_list_is_the_master(nodes, first):
    slurm = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0", "SLURM_JOB_NODELIST": nodes}
    assert rank_environment(slurm)["MASTER_ADDR"] == first


def test_jobs_that_share_a_node_meet_at_other_ports():
    slurm = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"}
    ports = {rank_environment({**slurm, "SLURM_JOB_ID": str(job)})["MASTER_PORT"] for job in range(100)}
    assert len(ports) == 100


def test_no_launcher_is_an_error_that_names_them():
    with pytest.raises(LaunchError, match="torchrun, deepspeed or srun"):
        rank_environment({"HOME": "/root"})
