"""The user's model of tensors without memory, and what makes it run as real ones do.

fake_model        builds it, with its batch             fake_world: what is arranged around torch and transformers
shadow            values of small whole numbers         cached_results, conversion: what functions and modules keep
refuse            what could be traced to nothing true  forward_only, layer_drop: what a step is not
left_as_it_was    what a model's file changes for the process
"""
