"""The cost model of DeepSpeed 0.19.8."""
