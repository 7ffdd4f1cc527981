"""Training as one process does that knows nothing of sharding: what emitted files are compared with."""

import torch

from runtime.load_model import build
from runtime.prepare import generated_samples
from runtime.settings import read_settings

NUM_STEPS = 5


def reference_losses(folder, num_steps=NUM_STEPS):
    """Losses of plain torch, each global batch in one piece."""
    settings = read_settings(folder, None)
    samples = generated_samples(settings, seed=0)
    torch.manual_seed(0)
    model, _ = build(settings.spec, settings.kind, settings.arguments, 2, settings.sequence_length)
    optimizer = make_optimizer(model, settings.ds_config["optimizer"])
    found = []
    for step in range(num_steps):
        size = settings.global_batch_size
        loss = model(**samples.batch(range(step * size, (step + 1) * size)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def make_optimizer(model, section):
    kind = {"AdamW": torch.optim.AdamW, "SGD": torch.optim.SGD}[section["type"]]
    wanted = {"lr", "betas", "eps", "weight_decay", "momentum"} & section["params"].keys()
    return kind(model.parameters(), **{name: section["params"][name] for name in sorted(wanted)})
