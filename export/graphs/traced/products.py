"""Attention that a network multiplies out by itself, from before transformers' interface.

A product of two tensors, a softmax of it and a product of that is attention, whatever is called
around it. What scores are multiplied by, which keys are hidden and what is added to scores is found
by trial: the network is run with products that are a constant. Places may be added to scores as a
slope of each head (ALiBi); softmax is the same whichever place they are counted from, so a place is
one more channel of a key, and its slope one of the query.
"""

# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, H heads, Dh head size

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from export.errors import ExportError
from export.graphs.traced.calls import PRODUCTS, Answer, Call, Layer
from export.graphs.traced.masks import Mask

MULTIPLIED = frozenset(("matmul", "__matmul__", "bmm", "baddbmm"))
SOFTMAX = "softmax"
EAGER = "eager"
NUM_LOOKED = 3
LONGEST = 2_048  # tokens of a text for which trials hold scores of all pairs
STEEP = 64.0  # a constant product at which a cap on scores would show
HIDDEN = torch.finfo(torch.float32).min / 2
TOLERANCE = 1e-5
Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # query, keys^T, value, scores


class Products(TorchFunctionMode):
    """Hands queries, transposed keys, values and scores to `attend`, which gives the output.

    With `product`, scores are computed of this constant in place of queries and keys.
    """

    def __init__(self, attend: Attend, product: float | None = None) -> None:
        super().__init__()
        self.attend, self.product = attend, product
        self.pair: tuple[Tensor, Tensor] | None = None
        self.scores: Tensor | None = None

    def __torch_function__(
        self,
        func: Any,  # noqa: ANN401
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        given = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name in MULTIPLIED:
            first, second, multiply = _operands(func, name, args, given)
            if self.pair is not None and self.scores is not None:
                (query, keys), scores = self.pair, self.scores
                self.pair = self.scores = None
                return self.attend(query, keys, second, scores)
            if min(first.dim(), second.dim()) > 2 and first.shape[-1] > 1:
                self.pair = first, second
                if self.product is not None:
                    constant = torch.zeros_like(first)
                    constant[..., 0] = self.product
                    return multiply(constant, torch.ones_like(second))
        elif name == SOFTMAX and self.pair is not None:
            self.scores = args[0] if args else given["input"]
        return func(*args, **given)


def _operands(
    func: Any,  # noqa: ANN401
    name: str,
    args: tuple[Any, ...],
    given: dict[str, Any],
) -> tuple[Tensor, Tensor, Callable[[Tensor, Tensor], Tensor]]:
    """The factors of a call, and the same call with others in their place."""
    if name != "baddbmm":
        first, second = (*args, *given.values())[:2]
        return first, second, func
    named = dict(zip(("input", "batch1", "batch2"), args, strict=False)) | given
    added, first, second = (named.pop(each) for each in ("input", "batch1", "batch2"))
    return first, second, lambda *pair: func(added, *pair, **named)


@dataclass(slots=True)
class Trial:
    """Notes the calls of layers with a constant product; answers are zeros."""

    calls: list[tuple[Tensor, Tensor, Tensor, Tensor]] = field(default_factory=list)

    def __call__(self, query: Tensor, keys: Tensor, value: Tensor, scores: Tensor) -> Tensor:
        self.calls.append((query, keys, value, scores))
        return query.new_zeros(*query.shape[:-1], value.shape[-1])


def layers_of_products(
    network: Any,  # noqa: ANN401
    run: Callable[[int], object],
    context: int,
) -> list[Layer]:
    """The layers, found by trials; empty without attention. `run(n)` computes a text of n tokens.

    Raises `ExportError` for what no attention node has.
    """
    if context > LONGEST:
        raise ExportError(
            f"{type(network).__name__} computes attention by itself, which is tried for texts of "
            f"at most {LONGEST} tokens, and it has {context}: choose a --context of {LONGEST} or "
            "fewer"
        )

    def tried(product: float, num_tokens: int) -> Trial:
        trial = Trial()
        with torch.inference_mode(), Products(trial, product):
            run(num_tokens)
        return trial

    few = min(NUM_LOOKED, context)
    trials = [tried(0.0, few), tried(1.0, few), tried(STEEP, few), tried(0.0, context)]
    by_layer = zip(*(each.calls for each in trials), strict=True)
    return [_layer(index, *calls) for index, calls in enumerate(by_layer)]


def _layer(index: int, none: Any, one: Any, steep: Any, long: Any) -> Layer:  # noqa: ANN401
    """The layer by its calls with products of 0, 1 and `STEEP`, and by that of the longest text."""
    query, keys, value, _ = none
    num_heads, num_kv_heads = (each.shape[-3] for each in (query, keys))
    of_none, of_one, of_steep, of_long = (
        each[3].float().reshape(num_heads, *each[3].shape[-2:]) for each in (none, one, steep, long)
    )
    if of_long.shape[-1] != of_long.shape[-2]:
        raise ExportError(f"layer {index} has other scores than those of its tokens")
    scale = float((of_one - of_none)[0, 0, 0])
    differences = (of_steep - of_none)[of_none > HIDDEN] - STEEP * scale
    if not bool((differences.abs() <= TOLERANCE * STEEP * abs(scale)).all()):
        raise ExportError(f"layer {index} changes scores by more than a factor and places")
    size = query.shape[-1]
    usual = min((1.0, size**-0.5, 1.0 / size), key=lambda each: abs(each - scale))
    scale = usual if abs(usual - scale) <= TOLERANCE * abs(scale) else scale
    seen_HSS = of_long > HIDDEN
    mask = Mask.read(lambda _, __, place, key: seen_HSS[0][place, key], of_long.shape[-1])
    if not mask.is_causal:
        raise ExportError(f"layer {index} looks ahead: its mask is {mask}")
    if not bool((seen_HSS == seen_HSS[:1]).all()):
        raise ExportError(f"layer {index} hides other keys of each of its heads")
    slopes = of_none[:, -1, -1] - of_none[:, -1, -2] if of_none.shape[-1] > 1 else of_none[:, 0, 0]
    _check_slopes(index, of_long, seen_HSS, slopes)

    def eager(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor) -> Tensor:
        times = num_heads // num_kv_heads
        key, value = (each.repeat_interleave(times, dim=1) for each in (key, value))
        weights = (query @ key.transpose(-1, -2) * scale + hidden).softmax(dim=-1)
        return (weights @ value).transpose(1, 2)

    sizes = num_heads, num_kv_heads, size, value.shape[-1]
    has_slopes = bool(slopes.any())
    return Layer(mask, scale, eager, *sizes, way=PRODUCTS, slopes=slopes if has_slopes else None)


def _check_slopes(index: int, scores_HSS: Tensor, seen_HSS: Tensor, slopes_H: Tensor) -> None:
    """Raise `ExportError` where scores without a product are not slopes of the keys' places."""
    places = torch.arange(scores_HSS.shape[-1], dtype=torch.float32)
    distance_SS = places[None] - places[:, None]
    for scores_SS, seen_SS, slope in zip(scores_HSS, seen_HSS, slopes_H, strict=True):
        differences = scores_SS - scores_SS.diagonal()[:, None] - slope * distance_SS
        largest = float(scores_SS[seen_SS].abs().max())
        if not bool((differences[seen_SS].abs() <= TOLERANCE * max(1.0, largest)).all()):
            raise ExportError(f"layer {index} adds to scores what is no slope of the keys' places")


@contextmanager
def products_answered(network: Any, answer: Answer) -> Iterator[None]:  # noqa: ANN401
    """While entered, `answer` computes the attention that a network multiplies out by itself.

    Masks hide nothing meanwhile: the answer has its own.
    """
    from transformers import AttentionMaskInterface

    masks = AttentionMaskInterface._global_mapping  # noqa: SLF001 - has no public way to restore
    own, num_heads = masks[EAGER], network.config.get_text_config().num_attention_heads

    def attend(query: Tensor, keys: Tensor, value: Tensor, scores: Tensor) -> Tensor:  # noqa: ARG001
        query, key, value = (
            torch.unflatten(each, 0, (-1, num_heads)) if each.dim() == 3 else each
            for each in (query, keys.transpose(-1, -2), value)
        )
        made = answer(Call(query, key, value, None, 0.0, _none)).transpose(1, 2)
        return made.flatten(0, 1) if keys.dim() == 3 else made  # rows and heads in one

    try:
        masks[EAGER] = _nothing_hidden
        with Products(attend):
            yield
    finally:
        masks[EAGER] = own


def _nothing_hidden(*, batch_size: int, q_length: int, kv_length: int, **_: object) -> Tensor:
    return torch.zeros(batch_size, 1, q_length, kv_length)


def _none(*_: Tensor) -> Tensor:
    raise AssertionError("it is read while layers are looked at")
