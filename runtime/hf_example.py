"""What a batch for a Hugging Face model is asked for, and what it is: the values that the makers of batches share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from runtime import hf_media as media
from runtime import hf_text as text


@dataclass(frozen=True, slots=True)
class Example:
    """A batch, and the names of the arguments that generated data must leave as they are."""

    batch: dict[str, Any]
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a batch is asked for."""

    config: Any
    spec: str
    takes: frozenset[str]
    """Names of the arguments of the class's forward."""
    num_samples: int
    sequence_length: int | None
    image_size: int | None

    @property
    def length(self) -> int:
        """Tokens per sample."""
        return text.checked_length(self.config, self.spec, self.sequence_length)

    @property
    def num_labels(self) -> int:
        """Classes of a classification."""
        return int(getattr(self.config, "num_labels", 2))

    def tokens(self, *between: int) -> torch.Tensor:
        """Returns tokens (num_samples, *between, length)."""
        return text.example_tokens(self.config, self.num_samples, *between, self.length)

    def image(self, default_side: int = media.DEFAULT_IMAGE_SIDE) -> torch.Tensor:
        """Returns pixels (num_samples, channels, height, width)."""
        return media.image(self.config, self.num_samples, self.image_size, default_side)

    def classes(self, *shape: int) -> torch.Tensor:
        """Returns classes (num_samples, *shape)."""
        return text.spread(0, self.num_labels - 1, self.num_samples, *shape)

    def sound(self) -> dict[str, torch.Tensor]:
        """Returns the waveform or the features that the model hears."""
        if "input_values" in self.takes and self.config.model_type != "audio-spectrogram-transformer":
            return {"input_values": media.waveform(self.config, self.num_samples, self.length)}
        name = "input_values" if "input_values" in self.takes else "input_features"
        return {name: media.spectrogram(self.config, self.num_samples, self.length)}
