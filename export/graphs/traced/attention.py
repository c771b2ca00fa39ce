"""The attention function that networks of transformers call in place of their own.

transformers has a register of such functions (`AttentionInterface`). Ours hands each call to what
was set for the time of one forward pass: `Look` notes what each layer asks for, and `Emit` writes
one node for it. An argument that is neither known to be of the call nor known to change nothing
is refused: what it means would be lost. For one thread: the register is of the process.
"""

# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, H heads, Dh head size

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import pad

from export.errors import ExportError
from export.graphs.traced.calls import NAME, PRODUCTS, SDPA, Answer, Call, Layer
from export.graphs.traced.masks import Mask, UnreadMask, mask_of, masks_read
from export.graphs.traced.products import products_answered
from models.errors import reason

OPERATOR = "GroupQueryAttention"
# Arguments that change no answer here: masks are read, and positions are applied before.
IGNORED = frozenset(
    (
        *("sliding_window", "is_causal", "position_ids", "cache_position", "use_cache"),
        *("output_attentions", "output_hidden_states", "output_router_logits", "return_dict"),
        *("deterministic", "layer_idx", "past_key_values", "past_key_value", "head_mask"),
        *("num_items_in_batch", "position_embeddings", "layer_head_mask", "attention_mask"),
    )
)
SINKS = ("s_aux", "sinks")
METHOD = "_attn"
TOLERANCE = 1e-5

_answers: list[Answer] = []
_SDPA = functional.scaled_dot_product_attention


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any = None,  # noqa: ANN401 - what `mask_of` gave
    scaling: float | None = None,
    dropout: float = 0.0,  # noqa: ARG001 - of training
    softcap: float | None = None,
    **others: Any,  # noqa: ANN401
) -> tuple[Tensor, None]:
    """A layer's attention as the current answer gives it: transformers calls this.

    Raises `ExportError` for an argument of unknown meaning.
    """
    sinks = next((others[name] for name in SINKS if others.get(name) is not None), None)
    for name, value_given in others.items():
        if name not in IGNORED and name not in SINKS and value_given is not None:
            raise ExportError(
                f"attention of {type(module).__name__} is given {name}, whose meaning is not known"
            )
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    given = {**others, "scaling": scaling, "dropout": 0.0}
    if softcap is not None:
        given["softcap"] = softcap

    def eager(*inputs: Tensor) -> Tensor:
        own = sys.modules[type(module).__module__].eager_attention_forward
        made: Tensor = own(module, *inputs, **given)[0]
        return made

    call = Call(query, key, value, attention_mask, scale, eager, softcap or 0.0, sinks)
    return _answers[-1](call), None


@contextmanager
def answered(network: Any, answer: Answer, way: str = NAME) -> Iterator[None]:  # noqa: ANN401
    """While entered, `answer` computes the attention of a network of transformers.

    It is asked by the interface, by methods, or in the way `SDPA` by PyTorch's own function, and
    in the way `PRODUCTS` by what a network multiplies.
    """
    if way == PRODUCTS:
        with products_answered(network, answer):
            yield
        return
    from transformers import AttentionInterface, AttentionMaskInterface

    masks = AttentionMaskInterface._global_mapping  # noqa: SLF001 - has no public way to restore
    before, own = masks.get(way), functional.scaled_dot_product_attention
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(way, mask_of)
    _answers.append(answer)
    try:
        if way == SDPA:
            functional.scaled_dot_product_attention = partial(_of_torch, own, answer)
        modules = network.modules()
        with asking(modules, "_attn_implementation", way), methods_replaced(network, answer):
            yield
    finally:
        _answers.pop()
        functional.scaled_dot_product_attention = own
        if before is not None:
            masks[way] = before


def _of_torch(
    own: Callable[..., Tensor],
    answer: Answer,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Any = None,  # noqa: ANN401 - what `mask_of` gave
    dropout_p: float = 0.0,  # noqa: ARG001 - of training
    is_causal: bool = False,  # noqa: ARG001 - masks are read
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention in place of PyTorch's function."""

    def eager(*inputs: Tensor) -> Tensor:
        return own(*inputs, scale=scale, enable_gqa=enable_gqa).transpose(1, 2)

    factor = query.shape[-1] ** -0.5 if scale is None else scale
    return answer(Call(query, key, value, attn_mask, factor, eager)).transpose(1, 2)


@contextmanager
def methods_replaced(network: nn.Module, answer: Answer) -> Iterator[None]:
    """While entered, methods `_attn` of networks from before the interface ask `answer`.

    They take queries, keys, values and a mask. What they multiply scores by, and which keys a
    window of their own hides, is found by trial.
    """
    found: list[Any] = [each for each in network.modules() if callable(getattr(each, METHOD, None))]
    try:
        for module in found:
            own = getattr(module, METHOD)
            setattr(module, METHOD, partial(_of_method, own, answer))
        yield
    finally:
        for module in found:
            module.__dict__.pop(METHOD, None)


def _of_method(
    own: Callable[..., Any],
    answer: Answer,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any = None,  # noqa: ANN401
) -> tuple[Tensor, None]:
    def eager(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        made: Tensor = own(query, key, value, mask)[0].transpose(1, 2)
        return made

    if isinstance(attention_mask, Mask):  # while layers are looked at
        scale, mask = _by_trial(own, query.shape[-1], attention_mask.context)
        made = answer(Call(query, key, value, mask, scale, eager))
    else:
        made = answer(Call(query, key, value, None, 0.0, eager))
    return made.transpose(1, 2), None


def _by_trial(own: Callable[..., Any], size: int, context: int) -> tuple[float, Mask]:
    """The factor of scores, and the mask with what the method hides by itself."""
    one, keys = torch.zeros(1, 1, 2, size), torch.zeros(1, 1, 2, size)
    one[..., 0], keys[..., 0, 0] = 1.0, 1.0
    weights = own(one, keys, keys, None)[1][0, 0, 1]
    found = float((weights[0] / weights[1]).log())
    usual = (1.0, size**-0.5, 1.0 / size)
    scale = min(usual, key=lambda each: abs(each - found))
    if abs(scale - found) > TOLERANCE * abs(found):
        scale = found

    def seen(_: Tensor, __: Tensor, places: Tensor, keys: Tensor) -> Tensor:
        rows = []
        for place in places.flatten().tolist():
            empty = torch.zeros(1, 1, place + 1, 1)
            weights = own(empty[..., -1:, :], empty, empty, None)[1].flatten()
            rows.append(pad(weights > 0, (0, keys.shape[-1] - len(weights))))
        return torch.stack(rows)

    return scale, Mask.read(seen, context)


@contextmanager
def asking(modules: Iterable[Any], field_name: str, way: str = NAME) -> Iterator[None]:
    """While entered, the field of the modules' configurations names our function, or `way`."""
    configs = {id(each.config): each.config for each in modules if hasattr(each, "config")}
    before = [(config, getattr(config, field_name, None)) for config in configs.values()]
    try:
        for config, _ in before:
            setattr(config, field_name, way)
        yield
    finally:
        for config, name in before:
            setattr(config, field_name, name)


class OwnAttentionError(ExportError):
    """A network that does not ask for attention in this way."""


@dataclass(slots=True)
class Look:
    """Notes what each layer asks for; answers are zeros."""

    layers: list[Layer] = field(default_factory=list)
    is_full_taken: bool = False  # of networks that read texts

    def __call__(self, call: Call) -> Tensor:
        num_rows, num_heads, num_tokens, size = call.query.shape
        if isinstance(call.mask, UnreadMask):
            raise ExportError(f"layer {len(self.layers)}: {call.mask.why}")
        if not isinstance(call.mask, Mask):
            raise ExportError(
                f"layer {len(self.layers)} is given {type(call.mask).__name__} for a mask, which "
                "transformers' functions of masks did not make, so it cannot be read"
            )
        if not call.mask.is_causal and not self.is_full_taken:
            raise ExportError(f"layer {len(self.layers)} looks ahead: its mask is {call.mask}")
        value_size = call.value.shape[-1]
        sizes = num_heads, call.key.shape[1], size, value_size
        has_sinks = call.sinks is not None
        way = SDPA if functional.scaled_dot_product_attention is not _SDPA else NAME
        layer = Layer(call.mask, call.scale, call.eager, *sizes, call.softcap, has_sinks, way)
        self.layers.append(layer)
        return call.query.new_zeros(num_rows, num_tokens, num_heads, value_size)


def looked_at(
    network: Any,  # noqa: ANN401
    forward: Callable[[], object],
    context: int,
    way: str = NAME,
    *,
    is_full_taken: bool = False,
) -> list[Layer]:
    """The layers of one forward pass, with their masks for texts of `context` tokens."""
    look = Look(is_full_taken=is_full_taken)
    with torch.inference_mode(), answered(network, look, way), masks_read(context):
        try:
            forward()
        except ExportError:
            raise
        except Exception as error:
            raise OwnAttentionError(
                f"{type(network).__name__} does not compute with attention that is not its own: "
                f"{reason(error)}"
            ) from error
    return look.layers


@dataclass(slots=True)
class Emit:
    """Writes each layer's attention as one node; `presents` are the caches that it leaves."""

    layers: list[Layer]
    lengths: tuple[Tensor, Tensor]
    pasts: tuple[Tensor, ...]
    positions: Tensor
    presents: list[Tensor] = field(default_factory=list)

    def __call__(self, call: Call) -> Tensor:
        index = len(self.presents) // 2
        layer, past = self.layers[index], self.pasts[2 * index : 2 * index + 2]
        size = past[0].shape[-1]
        num_cached = past[0].shape[1]
        query, key = self._placed(layer, call)
        key, value = (repeated(each, num_cached) for each in (key, call.value))
        inputs = [joined(each, size) for each in (query, key, value)]
        behind = [None] * 4 + [call.sinks] if call.sinks is not None else []
        output_BSD, *present = torch.onnx.ops.symbolic_multi_out(
            f"com.microsoft::{OPERATOR}",
            [*inputs, *past, *self.lengths, *behind],
            options_of(layer, num_cached),
            dtypes=[call.query.dtype, past[0].dtype, past[1].dtype],
            shapes=[inputs[0].shape, past[0].shape, past[1].shape],
        )
        self.presents += present
        output: Tensor = output_BSD.view(*output_BSD.shape[:-1], layer.num_heads, size)
        return output if layer.value_size == size else output[..., : layer.value_size]

    def _placed(self, layer: Layer, call: Call) -> tuple[Tensor, Tensor]:
        """Queries and keys, with a channel more where scores grow with the places of keys."""
        if layer.slopes is None:
            return call.query, call.key
        slopes_H11 = (layer.slopes / layer.scale)[:, None, None]
        places_B1S1 = self.positions[:, None, :, None].to(call.key.dtype)
        parts = (call.query, slopes_H11.to(call.query.dtype)), (call.key, places_B1S1)
        query, key = (
            torch.cat([each, channel.expand(*each.shape[:-1], 1)], dim=-1)
            for each, channel in parts
        )
        return query, key


def repeated(heads_BHSDh: Tensor, num_heads: int) -> Tensor:
    """Each head of keys or values as often as makes `num_heads`, which another layer has."""
    times = num_heads // heads_BHSDh.shape[1]
    return heads_BHSDh if times == 1 else heads_BHSDh.repeat_interleave(times, dim=1)


def options_of(layer: Layer, num_kv_heads: int) -> dict[str, Any]:
    """Attributes of a layer's attention node over a cache of `num_kv_heads` heads."""
    options: dict[str, Any] = {
        "num_heads": layer.num_heads,
        "kv_num_heads": num_kv_heads,
        "scale": layer.scale,
    }
    if layer.softcap:
        options["softcap"] = float(layer.softcap)
    if layer.mask.window:
        options["local_window_size"] = layer.mask.window
    return options


def joined(tensor_BHSDh: Tensor, size: int) -> Tensor:
    """Heads side by side, [B, S, H * size], each with zeros up to `size`."""
    tensor_BSHDh = tensor_BHSDh.transpose(1, 2)
    missing = size - tensor_BSHDh.shape[-1]
    return (pad(tensor_BSHDh, (0, missing)) if missing else tensor_BSHDh).flatten(2)
