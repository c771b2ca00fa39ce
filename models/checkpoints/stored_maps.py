"""The linear maps of a network under the names that its family has in transformers.

Knows nothing about files or adapters. A checkpoint's `source` says which family it was imported
from; without one it is named as Llama's, GPT-2's or BERT's are. A map of the family may be several
of ours, whose rows it has one after the other, and ours may be a multiple of it.
"""

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from torch import nn

from models.checkpoints.deberta import NUM_TERMS
from models.checkpoints.decoder_families import FAMILIES as DECODERS
from models.checkpoints.decoder_readers import SCORE
from models.checkpoints.families import FAMILIES
from models.checkpoints.family import ANSWERER, TAGGER, Family
from models.checkpoints.gpt2 import GPT2, PREFIX, name_in_gpt2
from models.checkpoints.gpt2 import PARTS as GPT2_PACKED
from models.checkpoints.llama import PACKED as LLAMA_PACKED
from models.checkpoints.llama import name_in_llama, plain_name, text_values
from models.checkpoints.seq2seq import SEQ2SEQ
from models.checkpoints.vit import ARCHITECTURES as IMAGE_CLASSIFIERS
from models.checkpoints.vit import name_in_vit
from models.errors import CheckpointError
from models.json_files import check_number
from models.networks.decoder_readers import DecoderReader
from models.networks.gpt import GPT
from models.networks.gpt_classifier import GPTClassifier
from models.networks.heads import EncoderNetwork
from models.networks.llama import Llama
from models.networks.masked import MaskedLanguageModel
from models.networks.readers import QuestionAnswerer, TokenClassifier
from models.networks.retrieval import TermEmbedder
from models.networks.traced import TracedDecoder
from models.networks.transformer import Transformer
from models.networks.vit import VisionTransformer

MULTIPLIER = "residual_multiplier"  # Granite's, which is folded into what joins the residual stream
Source = Mapping[str, Any]
Packed = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class StoredMap:
    """A linear map of the family: ours that have its rows, in their order, times `factor`."""

    modules: tuple[str, ...]
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Naming:
    """A family's names of its weights."""

    name_in_file: Callable[[str], str]  # of our weight; raises KeyError where it has no name
    plain: Callable[[str], str]  # a name without what stands before it in networks with a head
    packed: Packed
    prefix: str = ""  # what `plain` takes away from the names of the body's weights

    def plain_module(self, name: str) -> str:
        """Name of a module without what stands before it in networks with a head."""
        return self.plain(f"{name}.weight").removesuffix(".weight")

    def with_prefix(self, name: str) -> str:
        """The name in a network with a head, which has the prefix where the name is the body's."""
        is_of_body = re.search(r"(^|\.)(\d+|pooler)\.", f"{name}.") is not None
        return f"{self.prefix}{name}" if is_of_body else name


def source_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Record of the family for a checkpoint, from a config.json of transformers."""
    values = text_values(values)
    source = {"model_type": values["model_type"]}
    if values.get(MULTIPLIER) is not None:
        source[MULTIPLIER] = check_number(MULTIPLIER, values[MULTIPLIER], -1e6, 1e6)
    return source


def stored_maps(model: nn.Module, source: Source) -> dict[str, StoredMap]:
    """By the family's name, without prefix, each linear map that has one.

    Raises `CheckpointError` for a network of none of the families.
    """
    naming = naming_of(model, source)
    parts: dict[str, dict[int, str]] = {}
    for name, module in model.named_modules():
        if not isinstance(module, nn.Linear):
            continue
        with suppress(KeyError, ValueError):  # a map beside the layers that no file has
            stored = naming.name_in_file(f"{name}.weight").removesuffix(".weight")
            whole, place = _whole(stored, naming.packed)
            parts.setdefault(whole, {})[place] = name
    return {
        stored: StoredMap(
            tuple(modules[place] for place in sorted(modules)),
            _factor(source, modules[min(modules)], model),
        )
        for stored, modules in parts.items()
    }


def naming_of(model: nn.Module, source: Source) -> Naming:
    """The names of the source's family, or of the plainest one of the network's kind."""
    stated = source.get("model_type")
    decoder = _decoder_of(model)
    if isinstance(decoder, Llama) and stated in (None, *DECODERS):
        placement = decoder.config.norm_placement
        packed = LLAMA_PACKED if stated == "phi3" else {}
        return Naming(
            lambda name: _around(model, name, lambda name: name_in_llama(name, placement)),
            plain_name,
            packed,
        )
    if isinstance(decoder, GPT) and stated in (None, GPT2):
        return Naming(
            lambda name: _around(model, name, name_in_gpt2),
            lambda name: name.removeprefix(PREFIX),
            GPT2_PACKED,
            PREFIX,
        )
    if isinstance(model, TracedDecoder):  # whose modules have the names of transformers
        return Naming(lambda name: name.removeprefix("network."), lambda name: name, {})
    if isinstance(model, EncoderNetwork) and stated in (None, *FAMILIES):
        family = _with_head(FAMILIES[stated or "bert"], model)
        return Naming(
            family.name_in_file,
            lambda name: name.removeprefix(family.prefix).removeprefix("bert."),
            family.packed,
            family.prefix,
        )
    if isinstance(model, Transformer) and stated in SEQ2SEQ:
        names = SEQ2SEQ[stated].name_in_file
        return Naming(
            lambda name: names(name, model.config), lambda name: name.removeprefix("model."), {}
        )
    if isinstance(model, VisionTransformer) and stated in IMAGE_CLASSIFIERS:
        return Naming(name_in_vit, lambda name: name.removeprefix(f"{stated}."), {})
    raise CheckpointError(
        f"adapters are for encoders, decoders and imported networks, but the base is a "
        f"{type(model).__name__} of the family {stated or 'of none'}"
    )


def _decoder_of(model: nn.Module) -> nn.Module:
    if isinstance(model, DecoderReader):
        return model.decoder
    return model.gpt if isinstance(model, GPTClassifier) else model


def _around(model: nn.Module, name: str, in_decoder: Callable[[str], str]) -> str:
    """The name of a weight of a decoder, or of what reads texts by one."""
    if isinstance(model, GPT | Llama):
        return in_decoder(name)
    part, _, rest = name.partition(".")
    return in_decoder(rest) if part in ("decoder", "gpt") else SCORE


def _with_head(family: Family, model: EncoderNetwork) -> Family:
    """The family with the head that the network has."""
    if isinstance(model, MaskedLanguageModel | TermEmbedder):
        return family.with_words_head()
    for network, use in ((TokenClassifier, TAGGER), (QuestionAnswerer, ANSWERER)):
        if isinstance(model, network):
            return family.with_head(family.token_heads[use])
    return family


def _whole(stored: str, packed: Packed) -> tuple[str, int]:
    """The map that a file has in place of this one, and the place of this among its parts."""
    for whole, names in packed.items():
        for place, part in enumerate(names):
            if stored.endswith(f".{part}"):
                return f"{stored.removesuffix(part)}{whole}", place
    return stored, 0


def _factor(source: Source, module: str, model: nn.Module) -> float:
    """Factor of our map over the family's."""
    model_type, end = source.get("model_type"), module.rpartition(".")[2]
    if model_type == "granite" and end in ("output", "contract") and ".layers." in f".{module}":
        return float(source.get(MULTIPLIER, 1.0))
    if end == "query" and model_type == "deberta-v2":
        return 1.0 / math.sqrt(NUM_TERMS)
    if end == "query" and isinstance(model, Transformer) and model_type in ("t5", "mt5"):
        return math.sqrt(model.config.head_size)
    return 1.0
