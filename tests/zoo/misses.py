"""Why an entry's traced figures are not the real ones, for each entry where that is known to be so."""

from __future__ import annotations

_LOOP = (
    "loops over its samples: more operators run for each sample more, and such a stretch is known by its peak and what "
    "it leaves, not by each moment; the graph says so"
)
_ROUTED = (
    "splits its tokens among experts by lists of numbers: the trace assumes that all experts get as many, the real "
    "router of random weights does not; said as a warning with the line"
)

MISSES: dict[str, str] = {
    "branching": "an if asks for a sum of activations: the trace assumes that it holds, and the other branch ran",
    "dbrx": f"{_ROUTED}. Under autocast the model itself does not run on a CPU",
    "jetmoe": _ROUTED,
    "in_place": (
        "an activation is written in place through a view: for fake tensors torch re-plays the view in backward, for "
        "real ones it copies by strides, through a tensor of zeros that the trace does not see"
    ),
    "qwen2_vl": _LOOP,
    "reformer": "seeds its dropout from the machine's entropy: no two runs have the same loss; all else is exact",
    "selecting": (
        "rows are selected by the signs of activations: the trace assumes that all are, which bounds the step; said as "
        "a warning with the line"
    ),
    "superpoint": (
        "keeps the points whose score is high: the trace assumes that all are, which bounds the step; said as a "
        "warning with the line"
    ),
    "vilt": _LOOP,
}
