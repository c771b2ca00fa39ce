"""A recurrent encoder-decoder as one ONNX graph that decodes greedily by itself.

Each of its two recurrences is ONNX's operator LSTM: the encoder's with the length of every row, so
that padding is never read; the decoder's once per step, as what it is given is what it said before.
The number of steps T is fixed, rows and source tokens are not.

    source     [B, S]     int64, right-padded with the pad token
    target     [B, T]     int64, padding after the end token
    attention  [B, T, S]  float32, absent without attention; zeros after the end

https://onnx.ai/onnx/operators/onnx__LSTM.html
"""
# ruff: noqa: N803, N806 - suffixes are array layouts, see above; D hidden size

import copy

import onnx
import torch
from torch import Tensor, nn

from export.errors import ExportError
from export.graph import clean, export_program
from models.seq2seq.recurrent import Recurrence, RecurrentSeq2Seq, State

OPERATOR = "LSTM"
INPUTS = ("source",)
OUTPUTS = ("target", "attention")


def emit_lstm(module: nn.Module) -> None:
    """Replace every `Recurrence` of `module`, in place, by one that becomes a single node."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, Recurrence):
                setattr(parent, name, _EmittedLSTM(child))


def trace_greedy(network: RecurrentSeq2Seq, num_steps: int) -> onnx.ModelProto:
    """The graph of `network.greedy`, or `ExportError` unless it has an LSTM for each step."""
    emitted = copy.deepcopy(network).eval()
    emit_lstm(emitted)
    outputs = OUTPUTS if network.score is not None else OUTPUTS[:1]
    # As many tokens as no size of the network: what is equal by chance would become fixed.
    example = (torch.ones(2, 7, dtype=torch.int64),)
    shapes = ({0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")},)
    program = export_program(_Greedy(emitted, num_steps), example, INPUTS, shapes)
    model = clean(program, INPUTS, outputs)
    num_found = sum(node.op_type == OPERATOR for node in model.graph.node)
    if num_found != num_steps + 1:
        raise ExportError(
            f"the graph has {num_found} {OPERATOR} nodes, expected one for the encoder and one for "
            f"each of {num_steps} steps"
        )
    return model


class _Greedy(nn.Module):
    """A network's own decoding, over sources whose padding tells where they end."""

    def __init__(self, network: RecurrentSeq2Seq, num_steps: int) -> None:
        super().__init__()
        self.network = network
        self.num_steps = num_steps

    def forward(self, source_BS: Tensor) -> tuple[Tensor, ...]:
        mask_BS = (source_BS != self.network.config.pad_token_id).to(torch.int64)
        target_BT, weights_BTS = self.network.greedy(source_BS, mask_BS, self.num_steps)
        return (target_BT,) if weights_BTS is None else (target_BT, weights_BTS)


class _EmittedLSTM(nn.Module):
    """A recurrence's own weights, in the operator's layout.

    The operator's gates are input, output, forget, cell; PyTorch's are input, forget, cell, output.
    """

    def __init__(self, recurrence: Recurrence) -> None:
        super().__init__()
        lstm = recurrence.lstm
        self.hidden_size = lstm.hidden_size
        ih, hh = (_reordered(weight) for weight in (lstm.weight_ih_l0, lstm.weight_hh_l0))
        biases = [_reordered(bias) for bias in (lstm.bias_ih_l0, lstm.bias_hh_l0)]
        self.input_weight = nn.Parameter(ih[None])  # [1, 4D, D]
        self.hidden_weight = nn.Parameter(hh[None])
        self.bias = nn.Parameter(torch.cat(biases)[None])  # [1, 8D]

    def forward(
        self, inputs_BSD: Tensor, lengths_B: Tensor | None = None, state: State | None = None
    ) -> tuple[Tensor, State]:
        num_rows, num_tokens, _ = inputs_BSD.shape
        hidden, cell = state or (None, None)
        lengths = None if lengths_B is None else lengths_B.to(torch.int32)
        given = (self.input_weight, self.hidden_weight, self.bias, lengths, hidden, cell)
        last = (1, num_rows, self.hidden_size)
        outputs = torch.onnx.ops.symbolic_multi_out(
            f"::{OPERATOR}",
            [inputs_BSD.transpose(0, 1), *given],
            {"hidden_size": self.hidden_size},
            dtypes=[inputs_BSD.dtype] * 3,
            shapes=[(num_tokens, *last), last, last],
        )
        hidden_BSD = outputs[0].squeeze(1).transpose(0, 1)
        return hidden_BSD, (outputs[1], outputs[2])


def _reordered(weight: Tensor) -> Tensor:
    """Rows of PyTorch's four gates in the operator's order."""
    of_input, of_forget, of_cell, of_output = weight.detach().chunk(4)
    return torch.cat((of_input, of_output, of_forget, of_cell))
