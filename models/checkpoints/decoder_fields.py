"""The bounds of the fields of a decoder's config.json, whichever family it is of.

Knows nothing about families or files. The limits are far above every published decoder, and low
enough that nothing is allocated or counted by a number that a file made up.
"""

from collections.abc import Mapping

from models.errors import SettingError
from models.json_files import check_number, check_whole

MAX_LAYERS = 1_024
MAX_POSITIONS = 2**24  # tokens
# Sizes that no decoder is without.
SIZES: Mapping[str, tuple[int, int]] = {
    "vocab_size": (1, 2**24),
    "hidden_size": (1, 2**17),
    "intermediate_size": (1, 2**20),
    "num_hidden_layers": (1, MAX_LAYERS),
    "num_attention_heads": (1, 4_096),
    "max_position_embeddings": (1, MAX_POSITIONS),
}
# Others may be null.
WHOLE: Mapping[str, tuple[int, int]] = {
    "num_key_value_heads": (1, 4_096),
    "head_dim": (1, 4_096),
    "sliding_window": (0, 2**31 - 1),
    "max_window_layers": (0, MAX_LAYERS),
    "sliding_window_pattern": (1, MAX_LAYERS),
    "no_rope_layer_interval": (1, MAX_LAYERS),
    "original_max_position_embeddings": (1, MAX_POSITIONS),
}
LARGE = (1e-6, 1e6)
THETA = (1.0, 1e15)
NUMBERS: Mapping[str, tuple[float, float]] = {
    "rms_norm_eps": (0.0, 1.0),
    "attn_logit_softcapping": (0.0, 1e6),
    "final_logit_softcapping": (0.0, 1e6),
    "query_pre_attn_scalar": LARGE,
    "embedding_multiplier": LARGE,
    "logits_scaling": LARGE,
    "residual_multiplier": LARGE,
    "attention_multiplier": LARGE,
    "partial_rotary_factor": (0.0, 1.0),
    "rope_theta": THETA,
    "rope_local_base_freq": THETA,
}
# Of `rope_parameters` or `rope_scaling`.
ROPE_NUMBERS: Mapping[str, tuple[float, float]] = {
    "rope_theta": THETA,
    "partial_rotary_factor": (0.0, 1.0),
    "factor": (1e-3, 1e6),
    "low_freq_factor": LARGE,
    "high_freq_factor": LARGE,
    "beta_fast": LARGE,
    "beta_slow": LARGE,
    "mscale": (0.0, 1e6),
    "mscale_all_dim": (0.0, 1e6),
    "attention_factor": LARGE,
}
FLAGS = ("is_causal", "use_bidirectional_attention")
# Lists with a value for each layer.
BY_LAYER = ("layer_types", "no_rope_layers")


def check_fields(values: Mapping[str, object]) -> None:
    """Raise `SettingError` for the first field that is out of its bounds, or of another type."""
    for name, bounds in SIZES.items():
        check_whole(name, values.get(name), *bounds)
    _check(values, WHOLE, NUMBERS)
    for name in FLAGS:
        if values.get(name) is not None and not isinstance(values[name], bool):
            raise SettingError(name, values[name], "true or false")
    num_layers = values["num_hidden_layers"]
    for name in BY_LAYER:
        listed = values.get(name)
        if listed is not None and not (isinstance(listed, list) and len(listed) == num_layers):
            raise SettingError(name, listed, f"a list of {num_layers}, one for each layer")


def check_rope(values: Mapping[str, object]) -> None:
    """Check the fields that say how positions are stretched."""
    whole = {"original_max_position_embeddings": (1, MAX_POSITIONS)}
    _check(values, whole, ROPE_NUMBERS)


def _check(
    values: Mapping[str, object],
    whole: Mapping[str, tuple[int, int]],
    numbers: Mapping[str, tuple[float, float]],
) -> None:
    for name, bounds in whole.items():
        if values.get(name) is not None:
            check_whole(name, values[name], *bounds)
    for name, limits in numbers.items():
        if values.get(name) is not None:
            check_number(name, values[name], *limits)
