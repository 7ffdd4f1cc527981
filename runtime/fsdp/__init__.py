"""Runs a plan on PyTorch's `fully_shard`: parameters, gradients and optimizer states each sharded to a degree of their own."""
