# SPDX-License-Identifier: Apache-2.0
"""The prefill engine as the full attention of a model (`fastdelta.gemma.FullAttention`)."""

from __future__ import annotations

from fastdelta.arrays import Float32Array
from fastdelta.prefill.accelerator import PrefillAccelerator
from fastdelta.prefill.quantise import dequantise_attention, quantise_prompt
from fastdelta.prefill.results import PrefillResult
from fastdelta.reference.index_model import IndexParameters, generate_index
from fastdelta.reference.prefill_model import selected_attention
from fastdelta.reference.sparse_index import SelectionParameters


class AcceleratorAttention:
    """Attention of a model's full-attention layers on a card.

    Parameters
    ----------
    accelerator : PrefillAccelerator
        Opened with the model's head dimension.
    selection : SelectionParameters
        Rule by which blocks are chosen; its block size is the kernel's.

    Attributes
    ----------
    results : dict
        The last `PrefillResult` of each layer.
    """

    def __init__(self, accelerator: PrefillAccelerator, selection: SelectionParameters) -> None:
        self.accelerator = accelerator
        self.results: dict[int, PrefillResult] = {}
        self._selection = selection

    def __call__(
        self, layer_index: int, q: Float32Array, k: Float32Array, v: Float32Array
    ) -> Float32Array:
        """Attend from all queries of a layer; see `fastdelta.gemma.FullAttention`."""
        rule = self._selection
        result = self.accelerator.prefill(
            q,
            k,
            v,
            gamma=rule.gamma,
            tau=rule.tau,
            min_budget=rule.min_budget,
            max_budget=rule.max_budget,
        )
        self.results[layer_index] = result
        return result.output


class ModelAttention:
    """The same, computed by the bit-exact model, without a card.

    Parameters
    ----------
    selection : SelectionParameters
        Rule by which blocks are chosen, and the block size.
    """

    def __init__(self, selection: SelectionParameters) -> None:
        self._selection = selection

    def __call__(
        self,
        layer_index: int,  # noqa: ARG002 - part of the protocol
        q: Float32Array,
        k: Float32Array,
        v: Float32Array,
    ) -> Float32Array:
        """Attend from all queries of a layer; see `fastdelta.gemma.FullAttention`."""
        quantised = quantise_prompt(q, k, v)
        parameters = IndexParameters.from_selection(self._selection, q.shape[1])
        index_set = generate_index(quantised.operands, parameters).index_set
        outputs, _ = selected_attention(quantised.operands, index_set, self._selection.block)
        return dequantise_attention(outputs, quantised.v_scale)
