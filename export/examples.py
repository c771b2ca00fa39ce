"""The examples that a manifest has: texts or images to try a model with.

They come from a file, from labelled data, or are general texts that fit the task. Knows nothing of
graphs. A model of the user's own domain has better examples than the general ones: `--examples`.
"""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from export.errors import ExportError
from export.general_examples import examples_for, of_texts
from export.settings import ExportSettings
from models.checkpoints.checkpoint import Checkpoint
from models.data.datasets import Example as LabelledExample
from models.data.tokens import SPECIAL_TOKENS
from models.data.vocabulary import SPECIAL, words_of
from service.contract.manifest import MAX_EXAMPLE_IMAGE_BYTES, Example

MAX_EXAMPLES = 32  # of a file; `ListModels` shows as many
MAX_OF_LABELLED = 6
LONGEST_OF_LABELLED = 160  # characters, so that an example is read at a glance
NUM_WORDS = 8  # of a model of word vectors
NUM_ROWS, ROW_SYMBOLS = 5, 4  # of a model that reads symbols


def example_fields(settings: ExportSettings, general: Sequence[Example]) -> dict[str, Any]:
    """The manifest's entries of examples; `general` are those of a task, for want of better ones.

    What `--example` names is the first.
    """
    examples = tuple(settings.examples or general)
    if settings.example:
        others = (each for each in examples if each.text != settings.example)
        examples = (Example(settings.example), *others)
    return {"example": examples[0].text if examples else "", "examples": examples}


def general_examples(checkpoint: Checkpoint) -> tuple[Example, ...]:
    """Texts that fit the task of a network that reads texts."""
    network = checkpoint.text_network
    if network.served_name == "words":
        return of_texts(words_of(checkpoint.tokenizer)[len(SPECIAL) :][:NUM_WORDS])
    mask = None
    if network.mask_token_id:
        mask = checkpoint.tokenizer.id_to_token(network.mask_token_id)
        assert mask is not None, "the network was trained with it"
    return examples_for(checkpoint.task, mask)


def rows_of_symbols(names: Iterable[str | None], max_symbols: int) -> tuple[Example, ...]:
    """Rows of symbols, each beginning with another symbol; special tokens are none."""
    symbols = [name for name in names if name is not None and name not in SPECIAL_TOKENS]
    length = min(ROW_SYMBOLS, max_symbols, len(symbols))
    starts = range(min(NUM_ROWS, len(symbols)))
    return of_texts(" ".join((symbols + symbols)[start : start + length]) for start in starts)


def some_of(labelled: Sequence[LabelledExample]) -> tuple[Example, ...]:
    """Short texts out of labelled data: of each label, those that come first."""
    by_label: dict[str, list[Example]] = {}
    for each in labelled:
        if len(each.text) + len(each.text_pair) <= LONGEST_OF_LABELLED:
            by_label.setdefault(each.label, []).append(Example(each.text, each.text_pair))
    rounds = range(MAX_OF_LABELLED)
    taken = (texts[i] for i in rounds for texts in by_label.values() if i < len(texts))
    return tuple(taken)[:MAX_OF_LABELLED]


def read_examples(file: Path, task: str, *, has_images: bool = False) -> tuple[Example, ...]:
    """The examples of a file, one per line; `ExportError` where there are none, or too many.

    A tab stands before the second text of a pair; for question answering, before the context; of a
    model that reads images, between an image's name and the path of its file beside this one.
    """
    second = "context" if task == "question-answering" else "text_pair"
    examples = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        text, _, other = line.partition("\t")
        if other and not text:
            raise ExportError(f"{file.name}: line {number} has no text before its tab")
        if not text.strip():
            continue
        if has_images:
            if not other:
                raise ExportError(f"{file.name}: line {number} has no image's path behind a tab")
            examples.append(Example(text, image=_read_image(file.parent / other)))
        else:
            examples.append(Example(text, **{second: other}))
    if not 1 <= len(examples) <= MAX_EXAMPLES:
        raise ExportError(f"{file.name} has {len(examples)} examples, expected 1 to {MAX_EXAMPLES}")
    return tuple(examples)


def _read_image(file: Path) -> str:
    """The content in base64, of at most `MAX_EXAMPLE_IMAGE_BYTES`. Raises `ExportError`."""
    content = file.read_bytes()
    if len(content) > MAX_EXAMPLE_IMAGE_BYTES:
        raise ExportError(
            f"{file} has {len(content)} bytes, an example has at most {MAX_EXAMPLE_IMAGE_BYTES}"
        )
    return b64encode(content).decode()
