"""Build a network of transformers' own from a folder, as it stands there: no map of weights.

Weights are read as those of our networks are, and transformers puts them into its modules by the
names of its files. Nothing of a folder is run: its code is never imported, and of pickles tensors
alone are read. Weights that are missing or that no module takes are refused by name.
"""

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from models.checkpoints import file_names
from models.checkpoints.lazy import realise
from models.checkpoints.rounded.declared import FIELDS as ROUNDED
from models.checkpoints.settings_files import longest_text
from models.checkpoints.stops import stop_tokens
from models.checkpoints.traced_types import check_config
from models.checkpoints.weights import (
    check_finite,
    first_of,
    read_weights,
    stay_in_files,
)
from models.errors import CheckpointError, reason
from models.json_files import fields_of, read_object
from models.networks.traced import EAGER, TracedConfig, TracedDecoder, class_of, context_of

ROUNDING = "quantization_config"
SIZES = ("vocab_size", "num_hidden_layers", "hidden_size")


@dataclass(frozen=True, slots=True)
class TracedFolder:
    """The network of a folder, and the longest text by its files."""

    model: TracedDecoder
    max_tokens: int


def load_traced(folder: Path, context: int | None = None) -> TracedFolder:
    """The network of a folder for texts of at most `context` tokens.

    Raises `CheckpointError` for what would be lost or run, and `SettingError`.
    """
    path = folder / file_names.CONFIG_FILE
    values = read_object(path)
    check_config(values, path)
    with fields_of(path, values):
        ends = stop_tokens(folder, values)
    network, loading = loaded(folder, class_of)
    check_loading(loading, folder)
    text = network.config.get_text_config()
    longest = longest_text(folder)
    sizes: Any = [getattr(text, name, None) for name in SIZES]
    if not all(isinstance(each, int) for each in sizes):
        named = ", ".join(f"{name} {value}" for name, value in zip(SIZES, sizes, strict=True))
        raise CheckpointError(f"{path}: sizes must be whole numbers, and are {named}")
    config = TracedConfig(
        {
            **{name: value for name, value in values.items() if name not in ROUNDED},
            "architectures": [type(network).__name__],
            "transformers_version": version("transformers"),
        },
        **dict(zip(("vocab_size", "num_layers", "hidden_size"), sizes, strict=True)),
        max_positions=context_of(text, context, longest),
        eos_token_ids=ends,
    )
    model = TracedDecoder(network.eval(), config)
    return TracedFolder(model, min(config.max_positions, longest or config.max_positions))


def loaded(folder: Path, choose: Callable[[Any], Any]) -> tuple[Any, Mapping[str, Any]]:
    """A network of the class that is chosen for its configuration, and what is said of weights.

    Raises `CheckpointError` for one that it cannot make, and for weights that are no numbers.
    """
    import transformers

    tensors = read_weights(folder)
    for name, tensor in tensors.items():
        check_finite(tensor, name, folder)
    with quiet():
        try:
            factory: Any = transformers.AutoConfig
            stated = factory.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            vars(stated).pop(ROUNDING, None)  # which `read_weights` has undone
            network, loading = choose(stated).from_pretrained(
                None,
                config=stated,
                state_dict=tensors,
                dtype=torch.float32,
                attn_implementation=EAGER,
                output_loading_info=True,
            )
        except Exception as error:
            raise CheckpointError(
                f"{folder}: transformers cannot load the network: {reason(error)}"
            ) from error
    if not stay_in_files():
        realise(network)
    return network, loading


def check_loading(loading: Mapping[str, Any], folder: Path) -> None:
    """Raise `CheckpointError` for weights that are missing, left over or of another shape."""
    for kind, what in (
        ("missing_keys", "the network has, and the files have not"),
        ("unexpected_keys", "the files have, and the network has not"),
        ("mismatched_keys", "are of another shape than the network's"),
        ("error_msgs", "could not be loaded"),
    ):
        names = [str(each) for each in loading.get(kind) or ()]
        if names:
            raise CheckpointError(f"{folder}: weights that {what}: {first_of(names)}")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep bars and warnings of transformers off the terminal while this is entered."""
    import transformers

    logs: Any = transformers.utils.logging
    level = logs.get_verbosity()
    logs.set_verbosity_error()
    logs.disable_progress_bar()
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logs.set_verbosity(level)
        logs.enable_progress_bar()
