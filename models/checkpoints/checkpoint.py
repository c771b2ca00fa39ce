"""A model with all that is needed to use it, and the folder that it is kept in.

Knows nothing about training or export. The folder holds config.json (sizes, labels, origin),
model.safetensors and, of what reads texts, tokenizer.json; the same checkpoint always gives the
same bytes.

Writing is atomic: everything is written into a folder beside, which then takes the place of the
old one. A reader sees the old checkpoint, none or the new one, never a mixture.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import nn

from models.checkpoints.chat_templates import TOKENIZER_CONFIG, read_chat
from models.checkpoints.consolidated import as_transformers
from models.checkpoints.embedder_use import EmbedderUse, check_no_prompt
from models.checkpoints.file_names import KEPT_FILE
from models.checkpoints.foreign import check_is_folder, check_is_ours, names_in
from models.checkpoints.foreign_tokenizer import load_foreign_tokenizer
from models.checkpoints.gguf.folders import gguf_at, unpacked_gguf
from models.checkpoints.hub import download_folder, is_hub_id
from models.checkpoints.huggingface import CONFIG_FILE, load_pretrained
from models.checkpoints.lazy import realise
from models.checkpoints.llama import factor_of
from models.checkpoints.peft import ADAPTER_CONFIG, ADAPTER_WEIGHTS, LABELS_FILE
from models.checkpoints.rounded.kept import Kept
from models.checkpoints.rounded.kept_files import to_bytes
from models.checkpoints.sampling_defaults import read_sampling
from models.checkpoints.stored_maps import source_of
from models.checkpoints.weights import (
    WEIGHTS_FILE,
    assign_weights,
    build_on_meta,
    check_digest,
    kept_weights,
    lazy_tensors,
    own_kept_weights,
    weights_left_in_files,
)
from models.checkpoints.whole import check_is_fetched, check_is_whole
from models.checkpoints.writing_weights import num_bytes, write_tensors
from models.data.tokenizer import TOKENIZER_FILE, load_tokenizer, num_ids
from models.errors import CheckpointError, SettingError, check_range
from models.json_files import fields_of, read_object
from models.networks.gpt import GPT
from models.networks.heads import EncoderNetwork, TextNetwork
from models.networks.kinds import Task, kind_named, kind_of
from models.networks.llama import Llama
from models.networks.traced import TracedDecoder
from models.networks.transformer import Transformer
from models.writing import writing

__all__ = ["Checkpoint", "CheckpointError", "load_checkpoint", "save_checkpoint"]

FORMAT = "attendant-checkpoint-1"
WEIGHTS_DIGEST, KEPT_DIGEST = "weights_sha256", "rounded_sha256"
# Files that config.json has a digest of; checkpoints of before have none.
DIGESTS = {WEIGHTS_DIGEST: WEIGHTS_FILE, KEPT_DIGEST: KEPT_FILE}
CHECKPOINT_FILES = (CONFIG_FILE, WEIGHTS_FILE, KEPT_FILE, TOKENIZER_FILE, TOKENIZER_CONFIG)
MAX_WITHOUT_ROW = 1_024  # tokens that were added without a row of the network's table
WRITERS = (GPT, Llama, TracedDecoder)  # decoders that continue texts, whose weights may be lazy
NO_TOKENIZER = Tokenizer(WordLevel({}, unk_token=""))  # of a network that reads no texts
REPORT_FILES = ("training.json", "confusion.png", "wrong.csv", "loss.png", "attention.png")
ADAPTER_FILES = (ADAPTER_CONFIG, ADAPTER_WEIGHTS, LABELS_FILE)  # what training adapters writes
OWN_FILES = (*CHECKPOINT_FILES, *REPORT_FILES, *ADAPTER_FILES)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model, its labels and its tokenizer (no padding, no truncation), which fit together."""

    model: nn.Module
    task: Task
    labels: tuple[str, ...]  # in the order of the logits; empty where nothing is classified
    tokenizer: Tokenizer
    max_tokens: int  # longest row, special tokens included
    origin: str  # where the weights come from: hub id or folder name, and training data
    metrics: dict[str, float] = field(default_factory=dict)
    chat: Mapping[str, Any] = field(default_factory=dict)  # templates: see `read_chat`
    sampling: Mapping[str, float] = field(default_factory=dict)  # see `read_sampling`
    embedder: EmbedderUse = field(default_factory=EmbedderUse)  # of an embedder
    source: Mapping[str, Any] = field(default_factory=dict)  # its family: see `source_of`
    # Its comparison with the folder that it was imported from: see `Certificate`.
    certificate: Mapping[str, Any] = field(default_factory=dict)
    # Reads weights of a decoder with the numbers that its folder has rounded them to: see `Kept`.
    kept: Callable[[], tuple[Kept, ...]] = tuple

    def __post_init__(self) -> None:
        kind, config = kind_of(self.model), self.config
        if self.task != kind.task:
            raise SettingError(
                "task", self.task, f"{kind.task!r} for a {type(self.model).__name__}"
            )
        num_labels = int(self.model.num_labels) if kind.has_labels else 0  # type: ignore[arg-type]
        if not len(self.labels) == len(set(self.labels)) == num_labels:
            raise SettingError("labels", self.labels, f"{num_labels} different names")
        check_range("max_tokens", self.max_tokens, 1, config.max_positions)
        if kind.has_tokenizer:
            _check_rows(self.tokenizer, config.vocab_size)

    @property
    def config(self) -> Any:  # noqa: ANN401 - each network has its own
        """The sizes of the network."""
        return self.model.config

    @property
    def num_rows_if_fewer(self) -> int:
        """The rows of the network's table, where the tokenizer has more tokens; else 0."""
        num_rows = int(self.config.vocab_size)
        return num_rows if num_ids(self.tokenizer) > num_rows else 0

    @property
    def text_network(self) -> TextNetwork:
        """The model, where only one that reads texts will do; raises CheckpointError for others."""
        if not isinstance(self.model, TextNetwork):
            raise CheckpointError(
                f"{self.origin}: task is {self.task!r}, but this needs a network that reads texts"
            )
        return self.model

    @property
    def encoder_model(self) -> EncoderNetwork:
        """The model, where only one with an encoder will do; raises CheckpointError for others."""
        if not isinstance(self.model, EncoderNetwork):
            raise CheckpointError(
                f"{self.origin}: task is {self.task!r}, but this needs an encoder, which a "
                "text-classification or embedding checkpoint has"
            )
        return self.model


def _check_rows(tokenizer: Tokenizer, num_rows: int) -> None:
    """Raise `SettingError` for tokens without a row in the network's table, but for a few added.

    A prompt that spells one of these is refused, as it would fail in any other library.
    """
    of_texts = 1 + max(tokenizer.get_vocab(with_added_tokens=False).values(), default=-1)
    most = num_ids(tokenizer)
    if of_texts > num_rows or most > num_rows + MAX_WITHOUT_ROW:
        limit = f"at most the model's vocab_size, {num_rows}"
        raise SettingError("the tokenizer's vocabulary size", max(of_texts, most), limit)
    if most <= num_rows:
        return
    around = [*tokenizer.encode("").ids, *tokenizer.encode("", "").ids]
    if any(token >= num_rows for token in around):
        limit = f"below the model's vocab_size, {num_rows}"
        raise SettingError("the id of a token that is put around texts", max(around), limit)


def load_checkpoint(
    source: str | Path,
    context: int | None = None,
    task: str | None = None,
    network: str = "auto",
    *,
    leaves_weights: bool = False,
) -> Checkpoint:
    """A checkpoint from our own folder, a Hugging Face folder or, without a folder, a hub id.

    `context` bounds the tokens of an imported decoder's texts, as `decoder_config` says; `task` is
    for an imported head with one output, as `score_head` says; `network` as `is_traced` says. With
    `leaves_weights`, those of a decoder that continues texts stay in the files, which must then
    stay as they are: see `LazyTensor`.
    """
    with weights_left_in_files() if leaves_weights else nullcontext():
        checkpoint = _load(source, context, task, network)
    if not isinstance(checkpoint.model, WRITERS):
        realise(checkpoint.model)
    return checkpoint


def _load(source: str | Path, context: int | None, task: str | None, network: str) -> Checkpoint:
    folder = Path(source)
    gguf = gguf_at(folder)
    if gguf is not None:
        with unpacked_gguf(gguf) as unpacked:
            return _load_foreign(unpacked, gguf.stem, context, task, network)
    if folder.is_dir():
        origin = folder.resolve().name
    elif is_hub_id(str(source)) and not folder.exists():
        folder, origin = download_folder(str(source)), str(source)
    else:
        check_is_folder(folder)
        raise CheckpointError(f"there is no folder {str(source)!r}, and it is no hub id either")
    path = folder / CONFIG_FILE
    if read_object(path, optional=True).get("format") == FORMAT:
        return _load_own(folder)
    check_is_ours(folder)
    names = names_in(folder)
    check_is_whole(folder, names)
    try:
        with as_transformers(folder) as complete:
            return _load_foreign(complete, origin, context, task, network)
    except CheckpointError:
        check_is_fetched(folder, names)
        raise


def _load_foreign(
    folder: Path, origin: str, context: int | None, task: str | None, network: str = "auto"
) -> Checkpoint:
    path = folder / CONFIG_FILE
    pretrained = load_pretrained(folder, context, task, network)
    kind = kind_of(pretrained.model)
    task, tokenizer = kind.task, pretrained.tokenizer or NO_TOKENIZER
    if kind.has_tokenizer and pretrained.tokenizer is None:
        tokenizer = load_foreign_tokenizer(pretrained.folder)
    if task != "embedding":
        check_no_prompt(folder)
    sampling: dict[str, float] = {}
    kept: Callable[[], tuple[Kept, ...]] = tuple
    if isinstance(pretrained.model, WRITERS):
        values = read_object(pretrained.folder / CONFIG_FILE)
        is_folded = not isinstance(pretrained.model, TracedDecoder)
        kept = kept_weights(
            pretrained.folder, lambda name: factor_of(name, values) if is_folded else 1.0
        )
    if task == "text-generation":
        is_greedy = isinstance(pretrained.model, Transformer)  # as translations are
        sampling = read_sampling(pretrained.folder, is_greedy=is_greedy)
    with fields_of(path, {}):
        return Checkpoint(
            pretrained.model,
            task,
            pretrained.labels,
            tokenizer,
            pretrained.max_tokens,
            origin,
            chat=read_chat(pretrained.folder),
            sampling=sampling,
            embedder=EmbedderUse.read(folder) if task == "embedding" else EmbedderUse(),
            source=source_of(read_object(pretrained.folder / CONFIG_FILE)),
            kept=kept,
        )


def save_checkpoint(
    checkpoint: Checkpoint, folder: str | Path, reports: Mapping[str, bytes] | None = None
) -> None:
    """Write the folder at once, with `reports` (some of REPORT_FILES) beside the checkpoint.

    An older checkpoint there is replaced; a folder that holds anything else is refused.
    """
    weights, contents = checkpoint.model.state_dict(), _others_of(checkpoint)

    def write(staged: Path) -> None:
        config = {**_config_of(checkpoint)}
        config[WEIGHTS_DIGEST] = write_tensors(weights, staged / WEIGHTS_FILE)
        if KEPT_FILE in contents:
            config[KEPT_DIGEST] = hashlib.sha256(contents[KEPT_FILE]).hexdigest()
        written = {**contents, CONFIG_FILE: _to_json(config).encode()}
        _write_all({**written, **(reports or {})}, staged)

    _replace_folder(Path(folder), write, num_bytes(weights) + len(contents.get(KEPT_FILE, b"")))


def replace_contents(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write a folder's files at once; an older checkpoint or adapter there is replaced."""
    assert set(contents) <= set(OWN_FILES), "check_replaceable would refuse our own folder"
    size = sum(map(len, contents.values()))
    _replace_folder(folder, lambda staged: _write_all(contents, staged), size)


def _write_all(contents: Mapping[str, bytes], folder: Path) -> None:
    for name, content in contents.items():
        (folder / name).write_bytes(content)


def _others_of(checkpoint: Checkpoint) -> dict[str, bytes]:
    """The files of a checkpoint beside its weights and its configuration."""
    contents = {}
    if kind_of(checkpoint.model).has_tokenizer:
        contents[TOKENIZER_FILE] = checkpoint.tokenizer.to_str(pretty=True).encode()
    if checkpoint.chat:
        contents[TOKENIZER_CONFIG] = _to_json(checkpoint.chat).encode()
    if checkpoint.task == "text-generation" and checkpoint.kept():
        contents[KEPT_FILE] = to_bytes(checkpoint.kept())
    return contents


def _replace_folder(folder: Path, write: Callable[[Path], None], size: int) -> None:
    """Write a folder beside and put it in place; what failed leaves the old one as it was."""
    target = folder.absolute()
    check_replaceable(target)
    with writing(folder, size):
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
            staged = Path(scratch) / "new"
            staged.mkdir()
            write(staged)
            old = Path(scratch) / "old"
            if target.exists():
                target.rename(old)
            try:
                staged.rename(target)
            except OSError:
                if old.exists():
                    old.rename(target)
                raise


def check_replaceable(folder: Path) -> None:
    """Refuse a target that cannot be written, or that holds files which no checkpoint has.

    Replacing would delete them.
    """
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder} is a file, but must be a folder or not exist")
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    foreign = sorted(names - set(OWN_FILES))
    if foreign:
        raise CheckpointError(
            f"{folder} holds {', '.join(foreign[:3])}, which no checkpoint has; "
            "choose a folder that is new, empty or a checkpoint"
        )
    existing = next(each for each in folder.absolute().parents if each.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise CheckpointError(f"{folder} cannot be written: {existing} is no writable folder")


def _to_json(values: Mapping[str, Any]) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def _config_of(checkpoint: Checkpoint) -> dict[str, Any]:
    kind = kind_of(checkpoint.model)
    labels = {"labels": list(checkpoint.labels)} if kind.has_labels else {}
    embedder = checkpoint.embedder
    return {
        "format": FORMAT,
        "task": checkpoint.task,
        "network": kind.name,
        "origin": checkpoint.origin,
        **labels,
        "max_tokens": checkpoint.max_tokens,
        **({"sampling": dict(checkpoint.sampling)} if checkpoint.sampling else {}),
        **({"embedder": embedder.to_dict()} if embedder != EmbedderUse() else {}),
        **({"source": dict(checkpoint.source)} if checkpoint.source else {}),
        **({"certificate": dict(checkpoint.certificate)} if checkpoint.certificate else {}),
        **kind.sections(checkpoint.model),
        "metrics": checkpoint.metrics,
    }


def _load_own(folder: Path) -> Checkpoint:
    path = folder / CONFIG_FILE
    with fields_of(path, read_object(path)) as values:
        kind = kind_named(values)
        labels = tuple(map(str, values["labels"])) if kind.has_labels else ()
        model = build_on_meta(partial(kind.build, values, len(labels)))
        assign_weights(model, lazy_tensors(folder / WEIGHTS_FILE), folder / WEIGHTS_FILE)
        kept = own_kept_weights(folder / KEPT_FILE) if KEPT_DIGEST in values else tuple
        for digest, name in DIGESTS.items():  # last: what is wrong otherwise is said more closely
            if digest in values:
                check_digest(folder / name, values[digest], path)
        return Checkpoint(
            model=model,
            task=kind.task,
            labels=labels,
            tokenizer=load_tokenizer(folder) if kind.has_tokenizer else NO_TOKENIZER,
            max_tokens=int(values["max_tokens"]),
            origin=str(values["origin"]),
            metrics={str(name): float(value) for name, value in values["metrics"].items()},
            chat=read_chat(folder),
            sampling=dict(values.get("sampling", {})),
            embedder=EmbedderUse.from_dict(values.get("embedder", {})),
            source=dict(values.get("source", {})),
            certificate=dict(values.get("certificate", {})),
            kept=kept,
        )
