"""The cost model of DeepSpeed 0.19.8."""

from costmodels.deepspeed.engine import DEEPSPEED, DeepSpeed

__all__ = ["DEEPSPEED", "DeepSpeed"]
