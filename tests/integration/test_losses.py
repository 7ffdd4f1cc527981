"""The emitted files train as one process does that knows nothing of sharding."""

import json

import pytest
import torch
from emitted import emitted, losses
from one_process import NUM_STEPS, reference_losses

from runtime.prepare import generated_samples
from runtime.settings import read_settings


def use_sgd(folder):
    """Adam hides a wrong scale of the gradients; this does not. A user may edit the file like that."""
    path = folder / "ds_config.json"
    config = json.loads(path.read_text())
    config["optimizer"] = {"type": "SGD", "params": {"lr": 0.5}}
    config["zero_allow_untested_optimizer"] = True
    path.write_text(json.dumps(config))


def check_losses(folder, num_ranks):
    expected = reference_losses(folder)
    assert abs(expected[0] - expected[-1]) > 0.01 * expected[0], "training must show in the loss"
    assert losses(folder, num_ranks, NUM_STEPS) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("degrees", "recompute"), [((1, 1, 2), "none"), ((1, 2, 2), "full"), ((2, 2, 2), "none")], ids=str
)
def test_two_ranks_train_as_one_process(tmp_path, degrees, recompute):
    folder = emitted(tmp_path / "plan", degrees, recompute=recompute)
    use_sgd(folder)
    check_losses(folder, 2)


def test_a_model_that_initializes_and_copies_its_parts_late_trains_sharded_as_one_process(tmp_path):
    folder = emitted(tmp_path / "plan", (2, 2, 2), model="Late")
    use_sgd(folder)
    check_losses(folder, 2)


def test_a_secondary_partition_with_recomputation_trains_as_one_process(tmp_path):
    folder = emitted(tmp_path / "plan", (4, 4, 4), world_size=4, secondary_degree=2, recompute="full")
    check_losses(folder, 4)


def test_the_samples_of_a_seed_do_not_depend_on_the_micro_batch(tmp_path):
    batches = []
    for micro_batch_size in (1, 2, 4):
        folder = emitted(tmp_path / f"plan{micro_batch_size}", (1, 1, 1), micro_batch_size=micro_batch_size)
        settings = read_settings(folder, None)
        assert (settings.micro_batch_size, settings.num_micro_batches) == (micro_batch_size, 4 // micro_batch_size)
        batches.append(generated_samples(settings, seed=3).batch(range(8)))
    for batch in batches[1:]:
        assert torch.equal(batch["tokens"], batches[0]["tokens"])
        assert torch.equal(batch["soft"], batches[0]["soft"])


@pytest.mark.slow
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize(
    ("degrees", "secondary_degree"),
    [((1, 1, 1), None), ((1, 1, 4), None), ((1, 4, 4), None), ((4, 4, 4), None), ((4, 4, 4), 1), ((4, 4, 4), 2)],
    ids=str,
)
def test_four_ranks_train_as_one_process(tmp_path, degrees, secondary_degree, recompute):
    folder = emitted(tmp_path / "plan", degrees, world_size=4, secondary_degree=secondary_degree, recompute=recompute)
    check_losses(folder, 4)
