"""LSTMs as nodes of the exported graph, which know the lengths of their rows.

The tracer would take the number of tokens for a constant. The node that is emitted stops at a row's
own last token, or begins there when it reads backwards, so that padding has no effect:
https://onnx.ai/onnx/operators/onnx__LSTM.html
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, N directions, D units

import torch
from torch import Tensor, nn

from models.networks.elmo import DirectedLSTM
from models.networks.recurrent import Recurrence, State

OPERATOR = "LSTM"


def emit_lstms(model: nn.Module) -> int:
    """Replace every recurrence of `model` in place; returns how many there were."""
    count = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, DirectedLSTM):
                setattr(parent, name, _DirectedNode(child))
            elif isinstance(child, Recurrence):
                setattr(parent, name, LSTMNode(child.lstm, _direction_of(child.lstm)))
            else:
                continue
            count += 1
    return count


class LSTMNode(nn.Module):
    """One LSTM as one ONNX operator; takes and gives what a `Recurrence` does."""

    def __init__(self, lstm: nn.LSTM, direction: str = "forward") -> None:
        super().__init__()
        self.hidden_size = lstm.hidden_size
        self.direction = direction
        weights = dict(lstm.named_parameters())
        self.num_directions = 2 if lstm.bidirectional else 1

        def stacked(name: str) -> Tensor:
            ways = ("", "_reverse")[: self.num_directions]
            return torch.stack([_in_onnx_order(weights[f"{name}_l0{way}"]) for way in ways])

        self.from_inputs = nn.Parameter(stacked("weight_ih"))
        self.from_states = nn.Parameter(stacked("weight_hh"))
        self.biases = nn.Parameter(torch.cat((stacked("bias_ih"), stacked("bias_hh")), dim=1))

    def forward(
        self, inputs_BSD: Tensor, lengths_B: Tensor | None = None, state: State | None = None
    ) -> tuple[Tensor, State]:
        """Hidden states [B, S, D], zeros on padding, and the last state."""
        num_rows, num_tokens, _ = inputs_BSD.shape
        last = (self.num_directions, num_rows, self.hidden_size)
        output_SNBD, hidden, cell = torch.onnx.ops.symbolic_multi_out(
            f"::{OPERATOR}",
            [
                inputs_BSD.transpose(0, 1),
                self.from_inputs,
                self.from_states,
                self.biases,
                None if lengths_B is None else lengths_B.to(torch.int32),
                *(state or (None, None)),
            ],
            {"hidden_size": self.hidden_size, "direction": self.direction},
            dtypes=[inputs_BSD.dtype] * 3,
            shapes=[(num_tokens, *last), last, last],
        )
        output_BSND = output_SNBD.permute(2, 0, 1, 3)
        return output_BSND.flatten(2), (hidden, cell)


class _DirectedNode(LSTMNode):
    """ELMo's LSTM: final states are not exported."""

    def __init__(self, layer: DirectedLSTM) -> None:
        super().__init__(layer.lstm, "reverse" if layer.is_backward else "forward")

    def forward(self, hidden_BSD: Tensor, lengths_B: Tensor) -> Tensor:  # type: ignore[override]
        """[B, S, D], zeros on padding."""
        return super().forward(hidden_BSD, lengths_B)[0]


def _direction_of(lstm: nn.LSTM) -> str:
    return "bidirectional" if lstm.bidirectional else "forward"


def _in_onnx_order(gates: Tensor) -> Tensor:
    """PyTorch has input, forget, cell and output one after the other; ONNX input, output, ..."""
    into, forget, cell, out = gates.detach().chunk(4)
    return torch.cat([into, out, forget, cell])
