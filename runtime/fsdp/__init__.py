"""Runs plans on PyTorch's `fully_shard`: parameters, gradients and optimizer states have degrees of their own."""
