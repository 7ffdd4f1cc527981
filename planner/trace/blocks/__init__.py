"""Finds the blocks of a recorded model, and what engines need to know of them.

find_blocks     the units that are gathered at once   layout: the value; signature: which are equal
find_experts    stacked and separate experts          leaf_layers: layers that have to be gathered whole
frozen_inputs   what a linear map of frozen weights reads
"""
