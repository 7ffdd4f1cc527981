"""Runs one step and records it: a torch.fx graph, and when each storage lived.

record_step     forward, loss, backward               recording: the value
recorder        a node for each operator              module_calls: whose it is; uses; model_line
storages        births and deaths                     liveness: as an allocator would see them
"""
