"""ELMo's LSTMs as nodes of the exported graph, each with the lengths of its rows.

The tracer would take the number of tokens for a constant. The node that is emitted reads a row from
its own last token where it reads backwards, so that padding says nothing to it:
https://onnx.ai/onnx/operators/onnx__LSTM.html
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, D units

import torch
from torch import Tensor, nn

from models.words.elmo import DirectedLSTM


def emit_lstms(model: nn.Module) -> int:
    """Replace every `DirectedLSTM` of `model` in place; returns how many there were."""
    count = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, DirectedLSTM):
                setattr(parent, name, _LSTMNode(child))
                count += 1
    return count


class _LSTMNode(nn.Module):
    """One LSTM, as one ONNX operator."""

    def __init__(self, layer: DirectedLSTM) -> None:
        super().__init__()
        lstm = layer.lstm
        self.hidden_size = lstm.hidden_size
        self.direction = "reverse" if layer.is_backward else "forward"
        biases = [_in_onnx_order(bias) for bias in (lstm.bias_ih_l0, lstm.bias_hh_l0)]
        self.from_inputs = nn.Parameter(_in_onnx_order(lstm.weight_ih_l0).unsqueeze(0))
        self.from_states = nn.Parameter(_in_onnx_order(lstm.weight_hh_l0).unsqueeze(0))
        self.biases = nn.Parameter(torch.cat(biases).unsqueeze(0))

    def forward(self, hidden_BSD: Tensor, lengths_B: Tensor) -> Tensor:
        """[B, S, D], zeros on padding."""
        num_rows, num_tokens, _ = hidden_BSD.shape
        output_S1BD = torch.onnx.ops.symbolic(
            "LSTM",
            [
                hidden_BSD.transpose(0, 1),
                self.from_inputs,
                self.from_states,
                self.biases,
                lengths_B.to(torch.int32),
            ],
            {"hidden_size": self.hidden_size, "direction": self.direction},
            dtype=hidden_BSD.dtype,
            shape=(num_tokens, 1, num_rows, self.hidden_size),
        )
        output_BSD: Tensor = output_S1BD.squeeze(1).transpose(0, 1)
        return output_BSD


def _in_onnx_order(gates: Tensor) -> Tensor:
    """PyTorch has input, forget, cell and output one after the other; ONNX input, output, ..."""
    into, forget, cell, out = gates.detach().chunk(4)
    return torch.cat([into, out, forget, cell])
