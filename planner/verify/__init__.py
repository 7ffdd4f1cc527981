"""The trace against the real thing: one real step on this CPU, beside what was traced.

verify         the stage, in order                    verification: the value
real_step      the step on real tensors               tensors_alive, allocator: two independent counts of its bytes
replay         the emitted graph with real weights    walk: the step as the cost models read it; room: does it fit here
"""

from planner.verify.verify import verify

__all__ = ["verify"]
