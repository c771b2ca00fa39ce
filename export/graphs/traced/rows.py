"""A network of transformers that reads texts as a graph over packed tokens.

The library's own forward pass is traced. Where its body begins, the tokens of all rows are put one
after the other, with their places in their rows; where it ends they are rows again for a head that
reads a whole text, and stay as they are for one that reads each token. Attention alone unpacks
them, to one node of a layer. A body that cannot be given places sees the rows as they are. One that
has attention of its own, from before transformers' interface, is traced with that and its masks.
"""

# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, D hidden size, N real tokens

import copy
import inspect
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import onnx
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from export.errors import ExportError
from export.graphs.graph import (
    DTYPES,
    LENGTHS_OPSET,
    OPSET,
    Float32Output,
    check_fused,
    share_matrices,
    trace_texts,
)
from export.graphs.grouped_attention import attention_of_rows
from export.graphs.packing import Packing, Padded
from export.graphs.traced.attention import answered, looked_at
from export.graphs.traced.calls import SDPA, Call, Layer
from export.graphs.traced.experts import with_experts
from export.graphs.traced.norms import with_norms
from export.settings import Operator
from models.errors import reason
from models.networks.traced_readers import TracedReader
from service.contract.manifest import Precision

NUM_LOOKED = 3  # tokens of the pass that looks at layers
NODE: Operator = "Attention"


def trace_reader(
    reader: TracedReader,
    operator: Operator = NODE,
    *,
    precision: Precision = "fp32",
    is_padded: bool = False,
) -> onnx.ModelProto:
    """The graph of a network as `trace` of others has it, or `ExportError`."""
    if operator != NODE:
        raise ExportError(
            f"attention is {operator}, but networks of transformers' own are exported with {NODE}"
        )
    layers = layers_of_reader(reader)
    dtype = DTYPES.get(precision, torch.float32)
    by_length = dtype != torch.float32
    layout = Padded if is_padded or not reader.takes_positions else Packing
    changed = reader if dtype == torch.float32 else copy.deepcopy(reader).to(dtype)
    rows = Rows(changed, layers, partial(layout, by_length=by_length))
    with with_norms(changed.network), with_experts(changed.network):
        try:
            model = trace_texts(
                Float32Output(rows),
                reader.input_names,
                reader.output_names,
                opset=LENGTHS_OPSET if by_length else OPSET,
            )
        except ExportError:
            raise
        except Exception as error:
            raise ExportError(
                f"{type(reader.network).__name__} cannot be traced: {reason(error)}"
            ) from error
    share_matrices(model)
    check_fused(model, operator, reader.num_attentions)
    return model


def layers_of_reader(reader: TracedReader) -> list[Layer]:
    """The layers of a network that reads texts; none where attention is its own.

    Raises `ExportError` for those of no graph.
    """
    config = reader.config
    if not reader.num_attentions:
        return []
    ids = torch.zeros(1, min(NUM_LOOKED, config.max_positions), dtype=torch.int64)
    inputs = (ids, torch.ones_like(ids), ids if reader.has_token_types else None)
    look = partial(looked_at, reader.network, lambda: reader(*inputs), config.max_positions)
    try:
        layers = look(is_full_taken=True)
    except ExportError:
        if not getattr(reader.network, "_supports_sdpa", False):
            raise
        layers = look(way=SDPA, is_full_taken=True)
    if len(layers) != config.num_layers:
        raise ExportError(
            f"{len(layers)} of {config.num_layers} layers of {type(reader.network).__name__} "
            "compute attention by transformers' interface, and all of them must"
        )
    return layers


@dataclass(slots=True)
class EmitRows:
    """Writes each layer's attention over rows as one node, between packed tokens."""

    layers: list[Layer]
    packing: Packing
    num_done: int = 0
    seen: dict[tuple[int, bool], Tensor | None] = field(default_factory=dict)

    def __call__(self, call: Call) -> Tensor:
        layer = self.layers[self.num_done]
        self.num_done += 1
        if call.sinks is not None:
            raise ExportError("attention has sinks, which are taken of networks that write texts")
        query, key, value = (
            self.packing.unpack(each.transpose(1, 2).flatten(2))
            for each in (call.query, call.key, call.value)
        )
        kind = layer.mask.window, layer.mask.is_causal
        if kind not in self.seen:
            width = layer.mask.window + (not layer.mask.is_causal) if layer.mask.window else 0
            self.seen[kind] = self.packing.seen(width, layer.mask.is_causal)
        output_BSD = attention_of_rows(
            (query, key, value),
            self.seen[kind],
            heads=(layer.num_heads, layer.num_kv_heads),
            scale=layer.scale,
            softcap=float(call.softcap),
            is_causal=layer.mask.is_causal,
        )
        output_1ND = self.packing.pack(output_BSD)
        return torch.unflatten(output_1ND, -1, (layer.num_heads, layer.value_size))


class Rows(nn.Module):
    """A network whose body sees the tokens of a layout: same inputs, same outputs."""

    def __init__(self, reader: TracedReader, layers: list[Layer], layout: Any) -> None:  # noqa: ANN401
        super().__init__()
        self.reader, self.layers, self.layout = reader, layers, layout

    def forward(
        self,
        input_ids_BS: Tensor,
        attention_mask_BS: Tensor,
        token_type_ids_BS: Tensor | None = None,
    ) -> Tensor:
        reader, packing = self.reader, self.layout(attention_mask_BS)
        emit = EmitRows(self.layers, packing)
        inputs = reader.inputs(input_ids_BS, attention_mask_BS, token_type_ids_BS)
        attention = (
            answered(reader.network, emit, self.layers[0].way) if self.layers else nullcontext()
        )
        with attention, body_over(reader, packing, inputs):
            # A head that looks for the end of a text sees no token there, whatever it was given.
            padding = getattr(reader.network.config.get_text_config(), "pad_token_id", None) or 0
            ids_BS = torch.where(attention_mask_BS != 0, input_ids_BS, padding)
            made = reader.network(**{**inputs, "input_ids": ids_BS})
        return reader.answer(made, attention_mask_BS)


@contextmanager
def body_over(reader: TracedReader, packing: Packing, inputs: dict[str, Tensor]) -> Iterator[None]:
    """While entered, the network's body is given tokens of the layout, and its head rows."""
    body: Any = reader.body_of_network
    signature = inspect.signature(body.forward)
    ids_BS = inputs["input_ids"]
    is_packed = not isinstance(packing, Padded)
    given: dict[str, Tensor | None] = {}
    if reader.num_attentions:
        given = {name: _packed(packing, each) for name, each in inputs.items()}
        # For tracing only: the graph takes one token too.
        torch._check(given["input_ids"].shape[1] > 1)  # type: ignore[no-untyped-call,union-attr]  # noqa: SLF001 - documented
        given["attention_mask"] = None
    if reader.takes_positions:
        given["position_ids"] = _packed(packing, reader.positions(ids_BS))

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        bound = signature.bind(*args, **kwargs)
        bound.arguments.update(given)
        return bound.args, bound.kwargs

    def after(_: nn.Module, __: object, output: Any) -> Any:  # noqa: ANN401
        is_tuple = isinstance(output, tuple)
        hidden = output[0] if is_tuple else output.last_hidden_state
        if reader.reads_tokens:
            hidden = hidden if is_packed else Packing(inputs["attention_mask"]).pack(hidden)
            is_read = reader.is_read(_packed(Packing(inputs["attention_mask"]), ids_BS))
            hidden = hidden if is_read is None else hidden[is_read].unsqueeze(0)
        else:
            hidden = packing.unpack(hidden)
        if is_tuple:
            return (hidden, *output[1:])
        output.last_hidden_state = hidden
        return output

    def rows(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (packing.unpack(args[0]), *args[1:])

    handles = [
        body.register_forward_pre_hook(before, with_kwargs=True),
        body.register_forward_hook(after),
    ]
    pooler = getattr(body, "pooler", None)
    if isinstance(pooler, nn.Module) and not reader.reads_tokens:
        handles.append(pooler.register_forward_pre_hook(rows))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _packed(packing: Packing, values_BS: Tensor) -> Tensor:
    """[1, N] of [B, S], or as they are where the layout leaves them."""
    if isinstance(packing, Padded):
        return values_BS
    return F.embedding(packing.position_N, values_BS.flatten()[:, None]).squeeze(-1).unsqueeze(0)
