"""Which operators move less than the tensors that they are given and give."""

from __future__ import annotations

import torch

aten = torch.ops.aten

LOOKUPS = frozenset({aten.embedding.default, aten.gather.default, aten.index.Tensor, aten.index_select.default})
"""Of a table, only the rows that are looked up are read."""

WITHOUT_KERNEL = frozenset(
    {
        aten._unsafe_view.default,
        aten.empty.memory_format,
        aten.empty_like.default,
        aten.empty_strided.default,
        aten.new_empty.default,
        aten.new_empty_strided.default,
    }
)
"""Operators that run no kernel, beside the views."""
