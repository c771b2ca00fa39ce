"""The settings of texts of a sentence-transformers folder: limit, case, and the tokenizer's own.

They stand in one of seven files, of which the first that says anything is read, and only where
modules.json lists the folder. Knows nothing about weights and poolings.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tokenizers import Tokenizer
from tokenizers.normalizers import Lowercase, Sequence

from models.checkpoints.setting_keys import (
    MODULES,
    TEXT_SETTINGS,
    TOKENIZER_CONFIG,
    check_keys,
    check_loading,
)
from models.errors import CheckpointError, SettingError, shown
from models.json_files import check_whole, fields_of, read_json, read_object
from models.remarks import remark

OF_TOKENIZER = ("processor_kwargs", "tokenizer_args")
OF_NETWORK = ("model_args", "model_kwargs", "config_args", "config_kwargs")
NOT_OF_TOKENIZER = ("trust_remote_code", "token", "cache_dir", "revision", "local_files_only")
MOST = 2**31 - 1  # tokens; tokenizer_config.json writes 10^30 for "no limit"


@dataclass(frozen=True, slots=True)
class SettingsOfTexts:
    """Settings of the file; none where there is no file."""

    max_tokens: int | None = None
    is_lowered: bool = False
    of_tokenizer: Mapping[str, Any] = field(default_factory=dict)  # of tokenizer_config.json

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The settings of an encoder's folder; raises `CheckpointError`."""
        paths = [folder / name for name in TEXT_SETTINGS]
        stated = [(path, read_object(path, optional=True)) for path in paths]
        path, values = next((each for each in stated if each[1]), stated[0])
        if not values:
            return cls()
        if not _is_listed(folder):
            remark(f"{path} is passed over, as no {MODULES} lists its folder")
            return cls()
        check_keys(path, values)
        with fields_of(path, values):
            for name in OF_NETWORK:
                check_loading(path, name, values.get(name) or {})
            most = values.get("max_seq_length")
            lower = values.get("do_lower_case") or False
            if not isinstance(lower, bool):
                raise SettingError("do_lower_case", lower, "true or false")
            of_tokenizer = {
                key: value
                for name in OF_TOKENIZER
                for key, value in (values.get(name) or {}).items()
                if key not in NOT_OF_TOKENIZER
            }
            if most is not None:
                most = check_whole("max_seq_length", most, 1, MOST)
        return cls(most, lower, of_tokenizer)


def _is_listed(folder: Path) -> bool:
    """Whether modules.json of the folder or of the one around it lists the folder."""
    for around in (folder, folder.absolute().parent):
        path = around / MODULES
        if not path.is_file():
            continue
        modules = read_json(path)
        for module in modules if isinstance(modules, list) else []:
            with fields_of(path, module) as values:
                listed = around / str(values["path"])
            if listed.resolve() == folder.resolve():
                return True
    return False


def lowered(tokenizer: Tokenizer, settings: SettingsOfTexts) -> Tokenizer:
    """The tokenizer, which lowers the case first where the settings say so."""
    own = tokenizer.normalizer
    steps: list[Any] = [] if own is None else [own]
    if isinstance(own, Sequence):
        steps = [own[place] for place in range(len(own))]
    if settings.is_lowered and not any(isinstance(step, Lowercase) for step in steps):
        tokenizer.normalizer = Sequence([Lowercase(), *steps])
    return tokenizer


def longest_text(folder: Path) -> int | None:
    """The tokens of a folder's longest text as its files state it; None where they state none.

    sentence-transformers' own limit comes before that of tokenizer_config.json, larger or smaller.
    """
    settings = SettingsOfTexts.read(folder)
    path = folder / TOKENIZER_CONFIG
    with fields_of(path, {**read_object(path, optional=True)}) as values:
        own = settings.of_tokenizer.get("model_max_length")
        if own is None and settings.max_tokens is not None:
            return settings.max_tokens
        stated = next(
            (each for each in (own, values.get("model_max_length"), values.get("max_len")) if each),
            None,
        )
        if stated is None:
            return None
        if isinstance(stated, bool) or not isinstance(stated, int | float) or stated < 1:
            raise CheckpointError(
                f"{path}: model_max_length is {shown(stated)}, but must be a number of at least 1"
            )
        return int(min(stated, MOST))
