"""The stages of planning; `pipeline.py` joins them."""
