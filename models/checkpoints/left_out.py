"""Weights of a folder that are left out, and why.

All other weights go into the network, or the folder is refused (`assign_weights` takes each tensor
once, and no other). So a tensor is put to use, named in a remark with the reason of its rule, or
named in the error that refuses it. Knows nothing about networks.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from models.errors import CheckpointError
from models.remarks import remark

MAX_NAMED = 40  # kinds of names in a remark: those of one layer stand for all layers
NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


@dataclass(frozen=True, slots=True)
class Rule:
    """Names of tensors that a network does not need, and the reason."""

    names: re.Pattern[str]
    reason: str

    @classmethod
    def of(cls, pattern: str, reason: str) -> "Rule":
        return cls(re.compile(pattern), reason)

    @classmethod
    def of_modules(cls, modules: Iterable[str], reason: str) -> "Rule":
        """For weight and bias of these modules, and of none within them."""
        listed = "|".join(map(re.escape, modules))
        return cls.of(rf"^({listed})\.(weight|bias)$", reason)


INDICES = Rule.of(
    r"(^|\.)(position_ids|token_type_ids)$", "numbers of places and types, which are counted again"
)
FREQUENCIES = Rule.of(
    r"(^|\.)(rotary_emb|rotary_embedding)\.(\w+_)?inv_freq$",
    "frequencies of positions, which are computed from config.json as transformers does",
)
CAUSAL_MASKS = Rule.of(r"\.attn\.(bias|masked_bias)$", "the causal mask, which is made again")
POOLER = Rule.of(
    r"^pooler\.((dense|out_proj)\.)?(weight|bias)$", "the pooler, which this task does not read"
)
IMAGES = Rule.of(
    r"^(model\.)?(vision_tower|multi_modal_projector)\.",
    "what reads images; the part that reads and writes texts is taken",
)
OUTPUT_LAYER = Rule.of(
    r"(^|\.)lm_head\.weight$", "the layer that writes words, which a reader of texts does not need"
)
SCORES = Rule.of(r"^score\.weight$", "a head of classes, where modules.json says that it embeds")


def without(tensors: Mapping[str, Tensor], rules: Iterable[Rule], path: Path) -> dict[str, Tensor]:
    """The tensors that no rule is for; a remark names the others, and says why."""
    kept = dict(tensors)
    for rule in rules:
        names = [name for name in kept if rule.names.search(name)]
        for name in names:
            del kept[name]
        if names:
            remark(f"{path}: left out {named(names)}: {rule.reason}")
    return kept


def named(names: Iterable[str]) -> str:
    """The names for people: a star stands for the numbers of layers."""
    kinds = sorted({NUMBER.sub("*", name) for name in names})
    rest = len(kinds) - MAX_NAMED
    return ", ".join(kinds[:MAX_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def renamed(
    tensors: Mapping[str, Tensor], rename: Callable[[str], str], path: Path
) -> dict[str, Tensor]:
    """The tensors under other names; raises `CheckpointError` where two would have one name."""
    names: dict[str, str] = {}
    for stored in tensors:
        other = names.setdefault(rename(stored), stored)
        if other != stored:
            raise CheckpointError(
                f"{path} has {other} and {stored}, which are two names of one weight"
            )
    return {name: tensors[stored] for name, stored in names.items()}


def without_copies(
    tensors: Mapping[str, Tensor], copies: Mapping[str, str], path: Path
) -> dict[str, Tensor]:
    """The tensors without those that repeat another; raises `CheckpointError` where one differs."""
    kept = dict(tensors)
    for name, original in copies.items():
        if name not in kept or original not in kept:
            continue
        if not is_same(kept[name], kept[original]):
            raise CheckpointError(
                f"{path}: {name} differs from {original}, but only one table of both is supported "
                "for what fills masks"
            )
        del kept[name]
    return kept


def is_same(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors have the same values; of those without values, the same shape."""
    if first.is_meta or second.is_meta:
        return first.shape == second.shape
    return first.dtype == second.dtype and torch.equal(first, second)
