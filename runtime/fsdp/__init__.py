"""Runs a plan on PyTorch's `fully_shard`: each of parameters, gradients and optimizer states has a degree of its own."""
