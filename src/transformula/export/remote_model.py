"""The last part of the file of code in a folder for transformers: a formula's Transformer as a pretrained model.

The blocks above it are those of `stock_torch` (`hf_layout.remote_code` puts the file together).
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from transformula.export.stock_torch import Transformer


class FormulaConfig(PretrainedConfig):
    """The shapes of the blocks, under ``outline``, beside the claim."""

    model_type = "transformula"


class FormulaModel(PreTrainedModel):
    """Batch × inputs to batch × outputs, under ``logits`` (both batch × positions × features for a sequence)."""

    config_class = FormulaConfig
    main_input_name = "x"

    def __init__(self, config: FormulaConfig) -> None:
        super().__init__(config)
        self.formula = Transformer(config.outline)
        self.post_init()

    def _init_weights(self, module: Any) -> None:
        """Nothing is drawn at random: every number is in the file."""

    def forward(self, x: torch.Tensor, **_: Any) -> SequenceClassifierOutput:
        """The formula at rows of inputs in the model's dtype."""
        return SequenceClassifierOutput(logits=self.formula(x))
