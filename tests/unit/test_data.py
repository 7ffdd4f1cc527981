import torch

from runtime.data import DatasetSamples, samples_like, samples_of_rank

EXAMPLE = {
    "tokens": torch.tensor([[3, 9, 5], [4, 4, 4]]),
    "mask": torch.tensor([[True, True, True], [True, True, True]]),
    "pixels": torch.zeros(2, 4, 4, dtype=torch.bfloat16),
    "positions": torch.arange(3),
    "temperature": torch.tensor(0.5),
    "labels": torch.tensor([0, 1]),
    "use_cache": False,
}


def test_samples_have_the_shapes_and_types_of_the_example():
    batch = samples_like(EXAMPLE, 2, seed=0).batch(range(5))
    assert batch.keys() == EXAMPLE.keys()
    for name in ("tokens", "mask", "pixels", "labels"):
        assert batch[name].shape == (5, *EXAMPLE[name].shape[1:])
        assert batch[name].dtype == EXAMPLE[name].dtype


def test_what_does_not_grow_with_the_batch_stays_as_given():
    batch = samples_like(EXAMPLE, 2, seed=0).batch(range(5))
    for name in ("positions", "temperature"):
        assert batch[name] is EXAMPLE[name]
    assert batch["use_cache"] is False


def test_integers_span_the_range_of_the_example_and_floats_are_normal():
    batch = samples_like(EXAMPLE, 2, seed=0).batch(range(2000))
    assert batch["tokens"].unique().tolist() == [3, 4, 5, 6, 7, 8, 9]
    counts = batch["tokens"].flatten().bincount()[3:]
    assert counts.min() > 0.8 * counts.max()
    assert batch["mask"].all()
    assert batch["labels"].unique().tolist() == [0, 1]
    pixels = batch["pixels"].float()
    assert abs(pixels.mean()) < 0.02
    assert abs(pixels.std() - 1) < 0.02


def test_a_sample_depends_on_its_index_and_the_seed_only():
    samples = samples_like(EXAMPLE, 2, seed=0)
    whole = samples.batch(range(8))
    again = samples.batch([7, 2])
    assert torch.equal(again["tokens"], whole["tokens"][[7, 2]])
    assert torch.equal(again["pixels"], whole["pixels"][[7, 2]])
    assert not torch.equal(samples_like(EXAMPLE, 2, seed=1).batch(range(8))["pixels"], whole["pixels"])


def test_neighbouring_seeds_share_no_sample():
    first = samples_like(EXAMPLE, 2, seed=0).batch(range(50))["pixels"].float().flatten(1)
    second = samples_like(EXAMPLE, 2, seed=1).batch(range(50))["pixels"].float().flatten(1)
    assert torch.cdist(first, second).min() > 0


def test_every_way_to_deal_a_step_covers_the_same_samples_once():
    for step in (0, 3):
        for micro_batch_size, num_micro_batches, world_size in ((12, 1, 1), (1, 3, 4), (2, 3, 2), (3, 1, 4), (6, 2, 1)):
            dealt = [
                index
                for rank in range(world_size)
                for micro_batch in range(num_micro_batches)
                for index in samples_of_rank(
                    step,
                    micro_batch,
                    rank,
                    micro_batch_size=micro_batch_size,
                    num_micro_batches=num_micro_batches,
                    world_size=world_size,
                )
            ]
            assert sorted(dealt) == list(range(step * 12, step * 12 + 12))


def test_ones_own_samples_come_again_after_the_last():
    dataset = [{"x": torch.tensor([float(index)])} for index in range(3)]
    assert DatasetSamples(dataset).batch([2, 3, 4])["x"].tolist() == [[2.0], [0.0], [1.0]]


def test_what_is_kept_comes_from_the_example_and_containers_are_looked_into():
    example = {
        "boxes": [{"at": torch.tensor([[float(sample), 1.0]])} for sample in range(3)],
        "ids": torch.tensor([[7, 1], [7, 2], [7, 3]]),
        "bags": {"offsets": torch.arange(3), "tables": [torch.tensor([4, 5, 6]), torch.arange(2)]},
    }
    samples = samples_like(example, 3, seed=0, kept=("boxes", "ids"))
    batch = samples.batch([2, 4, 6, 8])
    assert batch["ids"].tolist() == [[7, 3], [7, 2], [7, 1], [7, 3]]
    assert [label["at"][0, 0].item() for label in batch["boxes"]] == [2.0, 1.0, 0.0, 2.0]
    assert batch["bags"]["offsets"].shape == (4,)
    assert set(batch["bags"]["tables"][0].tolist()) <= {4, 5, 6}
    assert torch.equal(batch["bags"]["tables"][1], torch.arange(2))
    assert torch.equal(samples.batch([4])["bags"]["offsets"], batch["bags"]["offsets"][1:2])
