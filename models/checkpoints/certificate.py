"""A comparison of an imported network with the folder's own one, as transformers computes it.

Token ids of 200 texts, and outputs of five, before anything is rounded. transformers is no library
of ours: where it is not installed the certificate says that nothing was compared. The code of a
folder is never run.
"""

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from tokenizers import Encoding
from torch import Tensor

from models.checkpoints import file_names
from models.checkpoints.checkpoint import Checkpoint
from models.checkpoints.plan import encoder_folder
from models.checkpoints.probe_texts import COMPARED, PAIRS, PROBES
from models.checkpoints.rounded.declared import FIELDS as ROUNDED
from models.errors import CheckpointError, reason, shown
from models.json_files import read_object
from models.networks.transformer import Transformer

LIBRARY = "transformers"
MAX_DIFFERENCE = 1e-3  # of any output, in parts of the largest one where that is above 1
MAX_WEIGHTS = 2_000_000_000  # of a network that is held twice
MAX_TOKENS = 64  # of a row that is compared
NUM_IMAGES = 2
TRANSLATION = "translation"  # of OUTPUTS: what writes texts with an encoder
Networks = tuple[Any, Any]  # ours, and theirs


@dataclass(frozen=True, slots=True)
class Certificate:
    """The result of a comparison; `why_not` says why something was not compared."""

    compared_with: str = ""  # the library and its version
    texts: int = 0
    same_tokens: int = 0
    first_difference: str = ""  # a text whose tokens differ
    outputs: str = ""  # what was compared
    max_difference: float = 0.0
    why_not: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs by more than is allowed, or nothing was compared."""
        return self.same_tokens == self.texts and self.max_difference <= MAX_DIFFERENCE

    def __str__(self) -> str:
        if not self.compared_with:
            return f"not compared: {self.why_not}"
        parts = []
        if self.texts:
            parts.append(f"{self.same_tokens} of {self.texts} texts give the same tokens")
        if self.outputs:
            parts.append(f"{self.outputs} within {self.max_difference:.0e}")
        if self.why_not:
            parts.append(f"not compared: {self.why_not}")
        return f"compared with {self.compared_with}: {'; '.join(parts)}"

    def to_dict(self) -> dict[str, Any]:
        """The certificate for a manifest."""
        return asdict(self) | {"max_difference": float(f"{self.max_difference:.0e}")}

    def check(self) -> None:
        """Raise `CheckpointError` where something differs by more than is allowed."""
        if self.is_equal:
            return
        first = f"; the first text is {self.first_difference}" * bool(self.first_difference)
        raise CheckpointError(
            f"the import differs from the folder's own network: {self}, and at most "
            f"{MAX_DIFFERENCE:.0e} is allowed{first}. Nothing is written; --compare accept goes on "
            "in spite of it, and keeps the difference in the manifest"
        )


def certify(checkpoint: Checkpoint, folder: Path, changed: str = "") -> Certificate:
    """The comparison of a checkpoint with the folder that it was read from.

    `changed` says what of the network is not the folder's own, so that outputs are not compared.
    """
    if find_spec(LIBRARY) is None:
        return Certificate(why_not="transformers is not installed: pip install transformers")
    encoder = encoder_folder(folder)
    values = read_object(encoder / file_names.CONFIG_FILE, optional=True)
    if not values:
        return Certificate(why_not="transformers reads no config.json there")
    if any(values.get(name) for name in ROUNDED):
        changed = (
            changed or "the stored weights are rounded, and taken as the numbers they stand for"
        )
    if "model_type" not in values:
        return Certificate(why_not="the folder is Attendant's own, which transformers cannot read")
    import transformers

    name = f"{LIBRARY} {version(LIBRARY)}"
    if values["model_type"] not in transformers.CONFIG_MAPPING:
        why = f"{name} has no network for the model_type {shown(values['model_type'])}"
        return Certificate(why_not=f"{why}, and code of the folder is never run")
    with _quiet(transformers):
        texts, same, first, why_not = _tokens(transformers, checkpoint, encoder, folder)
        outputs, difference = "", 0.0
        try:
            outputs, difference = _outputs(transformers, checkpoint, encoder, changed)
        except _NotComparedError as error:
            why_not = "; ".join(filter(None, (why_not, str(error))))
        except Exception as error:
            why_not = "; ".join(filter(None, (why_not, f"transformers failed: {reason(error)}")))
    return Certificate(name, texts, same, first, outputs, difference, why_not)


class _NotComparedError(Exception):
    """Outputs cannot be compared; says why."""


@contextlib.contextmanager
def _quiet(transformers: Any) -> Iterator[None]:  # noqa: ANN401 - the module
    """Keep bars and warnings of the library off the terminal while this is entered."""
    logs = transformers.utils.logging
    level = logs.get_verbosity()
    logs.set_verbosity_error()
    logs.disable_progress_bar()
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logs.set_verbosity(level)
        logs.enable_progress_bar()


def _tokens(
    transformers: Any,  # noqa: ANN401
    checkpoint: Checkpoint,
    encoder: Path,
    folder: Path,
) -> tuple[int, int, str, str]:
    """Numbers of texts and of those with the same tokens, the first of the others, and why not."""
    if checkpoint.task == "image-classification":
        return 0, 0, "", ""
    try:
        theirs = transformers.AutoTokenizer.from_pretrained(encoder, trust_remote_code=False)
    except Exception as error:
        return 0, 0, "", f"tokens, as transformers makes no tokenizer of it: {reason(error)}"
    settings = read_object(folder / "sentence_bert_config.json", optional=True)
    is_lowered = settings.get("do_lower_case") is True
    rows: list[tuple[str, ...]] = [(text,) for text in PROBES[: len(PROBES) - len(PAIRS)]]
    is_written = checkpoint.task == "text-generation"
    rows += [(text,) for text in PROBES[-len(PAIRS) :]] if is_written else list(PAIRS)
    different = []
    for row in rows:
        given = [text.lower() if is_lowered else text for text in row]
        ids = theirs(*given, verbose=False)["input_ids"]
        if _encoded(checkpoint, row).ids != list(ids):
            different.append(" / ".join(row))
    return len(rows), len(rows) - len(different), shown(different[0]) if different else "", ""


def _outputs(
    transformers: Any,  # noqa: ANN401
    checkpoint: Checkpoint,
    encoder: Path,
    changed: str,
) -> tuple[str, float]:
    """Name of what was compared, and the largest difference."""
    if changed:
        raise _NotComparedError(f"outputs, as {changed}")
    ours = checkpoint.model
    task = TRANSLATION if isinstance(ours, Transformer) else checkpoint.task
    kind = OUTPUTS.get(task)
    if kind is None:
        raise _NotComparedError(f"outputs of {task}")
    num_weights = sum(each.numel() for each in ours.parameters())
    if num_weights > MAX_WEIGHTS:
        raise _NotComparedError(f"outputs, as {num_weights / 1e9:.1f} billion weights do not fit")
    class_name, what, compare = kind
    theirs = getattr(transformers, class_name).from_pretrained(
        encoder, trust_remote_code=False, dtype=torch.float32, attn_implementation="eager"
    )
    theirs.eval()
    with torch.inference_mode():
        differences = [_difference(*pair) for pair in compare(checkpoint, (ours, theirs))]
    return what, float(torch.tensor(differences).max())  # NaN where one is


def _encoded(checkpoint: Checkpoint, row: Sequence[str]) -> Encoding:
    """Tokens of a text, or of a pair."""
    return checkpoint.tokenizer.encode(row[0], row[1] if len(row) > 1 else None)


def _difference(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, in parts of the largest value where that is above 1."""
    if ours.shape != theirs.shape:
        raise CheckpointError(
            f"the import gives outputs of shape {list(ours.shape)}, and transformers of "
            f"{list(theirs.shape)}: --compare accept imports the folder all the same"
        )
    largest = theirs.abs().max().clamp(min=1.0)  # NaN stays
    return float((ours - theirs).abs().max() / largest)


def _rows(checkpoint: Checkpoint, *, are_pairs: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
    """Token ids and types of a text, or a pair, [1, S] each."""
    most = min(MAX_TOKENS, checkpoint.max_tokens)
    for number, text in enumerate(COMPARED):
        row = (text, COMPARED[number - 1]) if are_pairs else (text,)
        encoding = _encoded(checkpoint, row)
        yield torch.tensor([encoding.ids[:most]]), torch.tensor([encoding.type_ids[:most]])


def _inputs(ids: Tensor, types: Tensor, theirs: Any) -> dict[str, Tensor]:  # noqa: ANN401
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    has_types = (getattr(theirs.config, "type_vocab_size", 0) or 0) > 1
    return {**inputs, "token_type_ids": types} if has_types else inputs


def _of_reading(checkpoint: Checkpoint, networks: Networks) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits of texts, pairs, tokens or spans."""
    ours, theirs = networks
    are_pairs = checkpoint.task in ("pair-scoring", "question-answering")
    for ids, types in _rows(checkpoint, are_pairs=are_pairs):
        given = (ids, torch.ones_like(ids), *([types] if ours.has_token_types else []))
        made = theirs(**_inputs(ids, types, theirs))
        if checkpoint.task == "question-answering":
            spans = torch.stack([made.start_logits[0], made.end_logits[0]], dim=1)
            yield ours(*given), spans
        else:
            logits = made.logits
            yield ours(*given), logits[0] if checkpoint.task == "token-classification" else logits


def _of_masks(checkpoint: Checkpoint, networks: Networks) -> Iterator[tuple[Tensor, Tensor]]:
    """Log probabilities of words at a place that is masked."""
    ours, theirs = networks
    for ids, types in _rows(checkpoint):
        ids[0, ids.shape[1] // 2] = ours.mask_token_id
        given = (ids, torch.ones_like(ids), *([types] if ours.has_token_types else []))
        logits = theirs(**_inputs(ids, types, theirs)).logits
        yield ours(*given).log_softmax(-1), logits[ids == ours.mask_token_id].log_softmax(-1)


def _of_states(checkpoint: Checkpoint, networks: Networks) -> Iterator[tuple[Tensor, Tensor]]:
    """Hidden states of the last layer, which vectors are made of."""
    ours, theirs = networks
    for ids, types in _rows(checkpoint):
        mask, inputs = torch.ones_like(ids), _inputs(ids, types, theirs)
        if hasattr(ours, "decoder"):
            states = ours.decoder.hidden_states(ids, mask)
        else:
            states = ours.encoder(ids, mask, types if ours.has_token_types else None)[-1]
        yield states, theirs(**inputs).last_hidden_state


def _of_writing(checkpoint: Checkpoint, networks: Networks) -> Iterator[tuple[Tensor, Tensor]]:
    """Log probabilities of each next token."""
    ours, theirs = networks
    for ids, _ in _rows(checkpoint):
        logits = theirs(input_ids=ids).logits[..., : ours.config.vocab_size]
        yield ours(ids).log_softmax(-1), logits.log_softmax(-1)


def _of_translating(checkpoint: Checkpoint, networks: Networks) -> Iterator[tuple[Tensor, Tensor]]:
    """Log probabilities of each next token of an output, of which the source stands in place."""
    ours, theirs = networks
    for ids, _ in _rows(checkpoint):
        mask = torch.ones_like(ids)
        start = torch.full((1, 1), theirs.config.decoder_start_token_id)
        target = torch.cat([start, ids[:, :-1]], dim=1)
        hidden = ours.decode(target, ours.encode(ids, mask), mask)
        logits = theirs(input_ids=ids, attention_mask=mask, decoder_input_ids=target).logits
        yield ours.logits(hidden).log_softmax(-1), logits.log_softmax(-1)


def _of_images(_: Checkpoint, networks: Networks) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits of noise."""
    ours, theirs = networks
    random = torch.Generator().manual_seed(1)
    height, width = _size_of(theirs.config.image_size)
    shape = (NUM_IMAGES, theirs.config.num_channels, height, width)
    pixels = torch.randn(shape, generator=random)
    yield ours(pixels), theirs(pixels).logits


def _size_of(stated: Any) -> tuple[int, int]:  # noqa: ANN401 - a number, or two
    return (stated, stated) if isinstance(stated, int) else (stated[0], stated[1])


Compare = Callable[[Checkpoint, Networks], Iterator[tuple[Tensor, Tensor]]]
# The class of transformers by the task, what is compared, and how.
OUTPUTS: Mapping[str, tuple[str, str, Compare]] = {
    "text-classification": ("AutoModelForSequenceClassification", "logits", _of_reading),
    "pair-scoring": ("AutoModelForSequenceClassification", "logits", _of_reading),
    "token-classification": ("AutoModelForTokenClassification", "logits", _of_reading),
    "question-answering": ("AutoModelForQuestionAnswering", "logits", _of_reading),
    "fill-mask": ("AutoModelForMaskedLM", "log probabilities", _of_masks),
    "embedding": ("AutoModel", "hidden states", _of_states),
    "text-generation": ("AutoModelForCausalLM", "log probabilities", _of_writing),
    TRANSLATION: ("AutoModelForSeq2SeqLM", "log probabilities", _of_translating),
    "image-classification": ("AutoModelForImageClassification", "logits", _of_images),
}
