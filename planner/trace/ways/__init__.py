"""The other ways to trace a step, for models that do not run on fake tensors.

fallback        which way is taken                    fallback_writer, fallback_owners
record_joint    from the graph of `make_fx`           joint_graph
static_walk     over modules that are not run         static_rows
"""
