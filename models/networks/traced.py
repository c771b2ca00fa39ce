"""A decoder of transformers: the library's own modules, with the sizes that our exports ask for.

Knows no family. What differs between families is what the modules compute. transformers is imported
when such a network is made, and code of a folder is never run.

Positions that depend on the longest text of a call (longrope, dynamic) are pinned for the context
of the network, as keys in a cache cannot be turned again.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from models.errors import SettingError
from models.networks.layers import Config

EAGER = "eager"  # transformers' own computation of attention and experts
LONG, DYNAMIC, PINNED = "longrope", "dynamic", "default"  # values of `rope_type`


@dataclass(frozen=True, slots=True)
class TracedConfig(Config):
    """The sizes of a network, and the configuration that transformers makes it of."""

    section: ClassVar[str] = "traced"
    values: Mapping[str, Any]  # transformers' configuration, as its config.json has it
    vocab_size: int
    num_layers: int
    hidden_size: int
    max_positions: int
    eos_token_ids: tuple[int, ...] = ()


class TiedWeights(nn.Module):
    """A module around a network of transformers, some of whose weights may be tied."""

    network: Any

    def state_dict(self, **options: Any) -> dict[str, Any]:  # type: ignore[override]  # noqa: ANN401
        """Every weight once: those that are tied have the name of the first."""
        state = super().state_dict(**options)
        first = {name for name, _ in self.named_parameters()}
        tied = {name for name, _ in self.named_parameters(remove_duplicate=False)} - first
        return {name: tensor for name, tensor in state.items() if name not in tied}

    def load_state_dict(
        self, state: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:  # noqa: ANN401
        """Take weights that `state_dict` gave, and tie those that are tied."""
        own = set(self.state_dict())
        assert not strict or own == set(state), "the caller checked the names"
        loaded = super().load_state_dict(state, strict=False, assign=assign)
        self.network.tie_weights()
        return loaded


class TracedDecoder(TiedWeights):
    """A causal language model of transformers; token ids [B, S] in, logits [B, S, V] out."""

    def __init__(self, network: Any, config: TracedConfig) -> None:  # noqa: ANN401
        super().__init__()
        self.network = network
        self.config = config
        self.takes_positions = "position_ids" in signature(network.forward).parameters
        leave_out_other_media(network)
        pin_positions(network, config.max_positions)

    @classmethod
    def of(cls, config: TracedConfig) -> "TracedDecoder":
        """A network whose weights are not set; tables that are no weights are."""
        import transformers
        from transformers.initialization import no_init_weights

        values = _decoded(dict(config.values))
        made = transformers.AutoConfig.for_model(values.pop("model_type"), **values)
        with torch.device("cpu"), no_init_weights(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            network = class_of(made)._from_config(  # noqa: SLF001 - as its auto classes do
                made, dtype=torch.float32, attn_implementation=EAGER
            )
        network.tie_weights()
        return cls(network, config)

    def forward(self, input_ids: Tensor) -> Tensor:
        """The logits of whole rows, as transformers computes them."""
        positions = torch.arange(input_ids.shape[1]).expand(input_ids.shape)
        return self.step(input_ids, positions)

    def step(self, input_ids: Tensor, position_ids: Tensor) -> Tensor:
        """The logits of tokens at these places, without a cache of transformers."""
        places = {"position_ids": position_ids} if self.takes_positions else {}
        made = self.network(input_ids=input_ids, use_cache=False, **places)
        logits: Tensor = made.logits
        return logits[..., : self.config.vocab_size]


def class_of(config: Any) -> Any:  # noqa: ANN401 - a configuration of transformers
    """The class that writes texts: the stated one, where another of its type reads images too."""
    import transformers

    tables: Any = transformers.AutoModelForCausalLM, transformers.AutoModelForImageTextToText
    of_tables = [each._model_mapping.get(type(config), None) for each in tables]  # noqa: SLF001
    classes = [each for each in of_tables if each is not None]
    stated = (getattr(config, "architectures", None) or [""])[0]
    return next((each for each in classes if each.__name__ == stated), classes[0])


def leave_out_other_media(network: Any) -> None:  # noqa: ANN401
    """Take out what reads images and sounds: models whose configuration is not that of texts."""
    from transformers import PreTrainedModel

    text = type(network.config), type(network.config.get_text_config())
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, PreTrainedModel) and not isinstance(child.config, text):
                setattr(parent, name, None)


def _decoded(value: Any) -> Any:  # noqa: ANN401 - of config.json
    """The value, where numbers that JSON has not are as transformers writes them: by name."""
    if isinstance(value, Mapping):
        if value.keys() == {"__float__"}:
            return float(value["__float__"])
        return {name: _decoded(each) for name, each in value.items()}
    return [_decoded(each) for each in value] if isinstance(value, list | tuple) else value


def pin_positions(network: nn.Module, context: int) -> None:
    """Fix positions that transformers would choose by the longest text of each call."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    module: Any
    for module in network.modules():
        kinds = getattr(module, "rope_type", None)
        of_layers = kinds if isinstance(kinds, dict) else {None: kinds}
        for layer, kind in of_layers.items():
            if not isinstance(kind, str) or not (kind == LONG or DYNAMIC in kind):
                continue
            options = {} if layer is None else {"layer_type": layer}
            function = ROPE_INIT_FUNCTIONS[kind]
            values, scaling = function(module.config, None, seq_len=context, **options)
            prefix = "" if layer is None else f"{layer}_"
            getattr(module, f"{prefix}inv_freq").copy_(values)
            setattr(module, f"{prefix}attention_scaling", scaling)
            if layer is None:
                module.rope_type = PINNED
            else:
                of_layers[layer] = PINNED


def context_of(values: Any, context: int | None, longest: int | None) -> int:  # noqa: ANN401
    """The positions of a network by transformers' configuration of its text.

    Without `context` it is the length that is stated, or of long ropes the one before they were
    stretched, as longer texts need other positions throughout. Raises `SettingError`.
    """
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
    stated = next((int(each) for n in names if (each := getattr(values, n, None))), None)
    ropes = _ropes(values)
    most = stated
    if stated is not None:
        factors = [float(r.get("factor") or 1) for r in ropes if DYNAMIC in str(r["rope_type"])]
        most = int(stated * max(factors, default=1.0))
    if context is not None:
        if most is not None and not 1 <= context <= most:
            raise SettingError("context", context, f"from 1 to {most}, as config.json has it")
        return context
    first = [r.get("original_max_position_embeddings") for r in ropes if r["rope_type"] == LONG]
    usual = [int(each) for each in (*first, stated or longest) if each]
    if not usual:
        raise SettingError("context", context, "given: no file of the folder states a length")
    return min(usual)


def _ropes(values: Any) -> list[Mapping[str, Any]]:  # noqa: ANN401
    stated = getattr(values, "rope_parameters", None) or {}
    each = [stated, *(one for one in stated.values() if isinstance(one, Mapping))]
    original = getattr(values, "original_max_position_embeddings", None)
    extra = {"original_max_position_embeddings": original} if original else {}
    return [{**extra, **one} for one in each if "rope_type" in one]
