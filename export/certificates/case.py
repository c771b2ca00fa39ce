"""Both sides of a comparison: our network, and the one that a folder's own libraries make of it.

Everything is made once, where it is asked for first. The code of a folder is never run. Networks
above `MAX_BYTES` are compared in their first layers alone, whose weights both sides read.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from tokenizers import Encoding
from torch import nn

from export.certificates.certificate import MAX_DIFFERENCE
from export.certificates.graphs import GraphSubject
from models.checkpoints import file_names
from models.checkpoints.checkpoint import Checkpoint
from models.checkpoints.declared import encoder_folder
from models.checkpoints.plan import OWN_FORMAT
from models.checkpoints.rounded.declared import FIELDS as ROUNDED
from models.checkpoints.rounded.declared import rounding_of
from models.checkpoints.weights import build_on_meta, read_weights
from models.errors import reason, shown
from models.json_files import read_object
from models.networks.kinds import kind_of

MAX_BYTES = 2**30  # of weights in float32 of a network that is compared as a whole
NUM_LAYERS = 2  # of a larger one
SCALAR = "query_pre_attn_scalar"  # of Gemma 2 and 3
MAX_REASON = 150  # characters of an error in a note
PACKAGES = {  # names of distributions by those of modules
    "transformers": "transformers",
    "sentence_transformers": "sentence-transformers",
    "peft": "peft",
    "compressed_tensors": "compressed-tensors",
    "accelerate": "accelerate",
}
# Fields of transformers' configurations that count layers.
COUNTS = (
    *("num_hidden_layers", "num_layers", "n_layer", "n_layers", "num_decoder_layers"),
    *("encoder_layers", "decoder_layers", "max_window_layers"),
)
OUR_COUNTS = ("num_layers", "num_decoder_layers", "num_distinct_layers")


class NotComparedError(Exception):
    """Something cannot be compared; says why."""


def check_there(module: str) -> None:
    """Raise `NotComparedError` where a library is not installed."""
    if find_spec(module) is None:
        name = PACKAGES[module]
        raise NotComparedError(f"{name} is not installed: pip install {name}")


def title_of(module: str) -> str:
    """A library and its version, for people."""
    return f"{PACKAGES[module]} {version(PACKAGES[module])}"


@dataclass(frozen=True)
class Case:
    """A checkpoint, the folder that it was read from, and how it was imported."""

    checkpoint: Checkpoint | GraphSubject
    folder: Path  # of a GGUF file: that which stands for it
    gguf: Path | None = None
    adapter: Path | None = None  # of PEFT, which was merged
    yes_no: str | None = None  # the words of which a score is made
    is_as_declared: bool = True  # whether vectors are made as the folder says
    max_bytes: float = MAX_BYTES  # of a network that is compared as a whole
    graph: str = ""  # the file in ONNX that stands for our network
    limit: float = MAX_DIFFERENCE  # of outputs
    _networks: dict[str, Any] = field(default_factory=dict)

    @property
    def why_not(self) -> str:
        """The reason why nothing at all can be compared, or nothing."""
        try:
            check_there("transformers")
        except NotComparedError as error:
            return str(error)
        if not self.values:
            return "transformers reads no config.json there"
        if self.values.get("format") == OWN_FORMAT or "model_type" not in self.values:
            return "the folder is Attendant's own, which transformers cannot read"
        import transformers

        stated = self.values["model_type"]
        if stated not in transformers.CONFIG_MAPPING:
            return (
                f"{title_of('transformers')} has no network for the model_type {shown(stated)}, "
                "and code of the folder is never run"
            )
        return ""

    @property
    def network_name(self) -> str:
        """Our side: the name of its network, or the file of its graph."""
        return self.graph or kind_of(self.checkpoint.model).name

    @cached_property
    def encoder(self) -> Path:
        """The folder of the network."""
        return encoder_folder(self.folder)

    @cached_property
    def values(self) -> Mapping[str, Any]:
        """The fields of config.json."""
        return read_object(self.encoder / file_names.CONFIG_FILE, optional=True)

    @cached_property
    def is_large(self) -> bool:
        """Whether only the first layers are compared."""
        weights = sum(each.numel() for each in self.checkpoint.model.parameters())
        return 4 * weights > self.max_bytes

    @cached_property
    def is_rounded(self) -> bool:
        return any(self.values.get(name) for name in ROUNDED)

    @cached_property
    def model(self) -> Any:  # noqa: ANN401 - any network
        """Our network, or its first layers."""
        model = self.checkpoint.model
        return first_layers(model, len(self.checkpoint.labels)) if self.is_large else model.eval()

    @cached_property
    def tokenizer(self) -> Any:  # noqa: ANN401 - of transformers
        """Raises `NotComparedError` where transformers makes none of the files."""
        import transformers

        place = (self.encoder, {}) if self.gguf is None else gguf_of(self.gguf)
        try:
            return transformers.AutoTokenizer.from_pretrained(
                place[0], trust_remote_code=False, **place[1]
            )
        except Exception as error:
            raise NotComparedError(
                f"transformers makes no tokenizer of it: {reason(error)}"
            ) from error

    @cached_property
    def is_lowered(self) -> bool:
        """Whether sentence-transformers writes all texts in lower case first."""
        settings = read_object(self.folder / "sentence_bert_config.json", optional=True)
        return settings.get("do_lower_case") is True

    def given(self, row: tuple[str, ...]) -> list[str]:
        """The texts as the other side gets them."""
        return [text.lower() if self.is_lowered else text for text in row]

    def encoded(self, row: tuple[str, ...], *, adds_special: bool = True) -> Encoding:
        """Our tokens of a text, or of a pair."""
        second = row[1] if len(row) > 1 else None
        tokenizer = self.checkpoint.tokenizer
        return tokenizer.encode(row[0], second, add_special_tokens=adds_special)

    def network(self, class_name: str) -> tuple[Any, str]:
        """The other side's network as a class of transformers, and what is not the folder's own.

        Raises `NotComparedError` where no way leads to it.
        """
        if class_name not in self._networks:
            self._networks.clear()  # one at a time is held
            self._networks[class_name] = self._made(class_name)
        made: tuple[Any, str] = self._networks[class_name]
        return made

    def _made(self, class_name: str) -> tuple[Any, str]:
        import transformers

        if self.adapter is not None:
            check_there("peft")
        why: list[str] = []
        notes: list[str] = []
        for way in WAYS:
            if not way.is_for(self):
                continue
            try:
                network, note = way.load(self, getattr(transformers, class_name))
                notes = [
                    f"{note}, as {why[0][:MAX_REASON]}" if note and why else note,
                    f"the first {NUM_LAYERS} layers alone" if self.is_large else "",
                ]
                break
            except NotComparedError as error:
                why.append(str(error))
            except Exception as error:  # whatever a library raises for a folder
                why.append(f"{title_of('transformers')} failed: {reason(error)}")
        else:
            raise NotComparedError("; ".join(why))
        if self.adapter is not None:
            peft = import_module("peft").PeftModel
            network = peft.from_pretrained(network, str(self.adapter))
            network = network.merge_and_unload()
            notes.append(f"the adapter merged by {title_of('peft')}")
        return network.eval(), "; ".join(filter(None, notes))

    @cached_property
    def config(self) -> Any:  # noqa: ANN401 - of transformers
        """The other side's configuration, of the layers that are compared."""
        import transformers

        config = transformers.AutoConfig.from_pretrained(self.encoder, trust_remote_code=False)
        if self.is_large:
            config = type(config).from_dict(_with_fewer(config.to_dict()))
        if self.adapter is not None and self.checkpoint.task in ("text-classification",):
            config.num_labels = len(self.checkpoint.labels)
        return config


def first_layers(model: nn.Module, num_labels: int) -> nn.Module:
    """A network of the first layers of another, with the same tensors."""
    kind = kind_of(model)
    sections = {
        name: _with_fewer(section, OUR_COUNTS) if isinstance(section, Mapping) else section
        for name, section in kind.sections(model).items()
    }
    made = build_on_meta(partial(kind.build, sections, num_labels))
    state = model.state_dict()
    made.load_state_dict({name: state[name] for name in made.state_dict()}, assign=True)
    return made.eval()


def _with_fewer(values: Mapping[str, Any], counts: tuple[str, ...] = COUNTS) -> dict[str, Any]:
    """The fields of a configuration with fewer layers; lists of a value for each are cut."""
    number = next((values[name] for name in counts if values.get(name)), 0)
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name in counts and value:
            found[name] = min(NUM_LAYERS, value)
        elif isinstance(value, list | tuple) and len(value) == number > NUM_LAYERS:
            found[name] = value[:NUM_LAYERS]
        elif name in ("text_config", "decoder", "encoder") and isinstance(value, Mapping):
            found[name] = _with_fewer(value, counts)
        else:
            found[name] = value
    return found


@dataclass(frozen=True, slots=True)
class Way:
    """One way to the other side's network; the first that is for a case and does not fail counts.

    `load` gives the network, and what of it is not as transformers reads the folder.
    """

    is_for: Callable[[Case], bool]
    load: Callable[[Case, Any], tuple[Any, str]]


def _by_transformers(case: Case, auto: Any) -> tuple[Any, str]:  # noqa: ANN401
    # A head that an adapter brings has other sizes than the base's, if that has one.
    is_other_head = case.adapter is not None
    return _loaded(
        auto, case.encoder, config=case.config, ignore_mismatched_sizes=is_other_head
    ), ""


def _loaded(auto: Any, place: Path | None, **more: Any) -> Any:  # noqa: ANN401 - a class
    return auto.from_pretrained(
        place,
        trust_remote_code=False,
        dtype=torch.float32,
        attn_implementation="eager",
        **more,
    )


def _by_gguf_reader(case: Case, auto: Any) -> tuple[Any, str]:  # noqa: ANN401
    assert case.gguf is not None, "the way is for files of GGUF"
    check_there("accelerate")
    folder, named = gguf_of(case.gguf)
    # No key of a file has it: llama.cpp scales by a head's size, and transformers 5.23 by 256.
    scalar = case.values.get(SCALAR)
    if scalar is None:
        return _loaded(auto, folder, **named), ""
    return _loaded(auto, folder, **named, **{SCALAR: scalar}), f"with {SCALAR} {scalar}"


def _by_rounding_library(case: Case, auto: Any) -> tuple[Any, str]:  # noqa: ANN401
    """By the library of the rounding, where transformers dequantises with it on a CPU."""
    import transformers

    rounding = rounding_of(case.values, case.encoder / file_names.CONFIG_FILE)
    assert rounding is not None, "the way is for rounded weights"
    module, class_name, settings = READERS[rounding.method]
    if module:
        check_there(module)
    configuration = getattr(transformers, class_name)
    stated = configuration.from_dict({**rounding.settings, **settings})
    network = _loaded(auto, case.encoder, quantization_config=stated)
    return network, f"dequantised by {title_of(module or 'transformers')}"


def _by_our_tensors(case: Case, auto: Any) -> tuple[Any, str]:  # noqa: ANN401
    """The network of transformers with the weights as we restore them."""
    config = copy.deepcopy(case.config)
    for name in ROUNDED:
        if hasattr(config, name):
            delattr(config, name)
    with torch.device("meta"):
        found = type(auto.from_config(config))  # as Auto classes need a folder
    network = _loaded(found, None, config=config, state_dict=read_weights(case.encoder))
    return network, "with the weights as we restore them"


def gguf_of(path: Path) -> tuple[Path, dict[str, str]]:
    """The arguments by which transformers reads a file."""
    return path.parent, {"gguf_file": path.name}


# Of roundings: the module, transformers' configuration, and what it needs for plain numbers.
READERS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "compressed-tensors": (
        "compressed_tensors",
        "CompressedTensorsConfig",
        {"run_compressed": False},
    ),
    "fp8": ("", "FineGrainedFP8Config", {"dequantize": True}),
}


def _has_reader(case: Case) -> bool:
    rounding = rounding_of(case.values, case.encoder / file_names.CONFIG_FILE)
    return rounding is not None and rounding.method in READERS and not case.is_large


WAYS = (
    Way(lambda case: case.gguf is not None and not case.is_large, _by_gguf_reader),
    Way(_has_reader, _by_rounding_library),
    Way(lambda case: case.gguf is not None or case.is_rounded, _by_our_tensors),
    Way(lambda case: case.gguf is None and not case.is_rounded, _by_transformers),
)
