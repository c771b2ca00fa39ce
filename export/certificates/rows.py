"""All comparisons, a row each: what is compared, how, what it needs, and by how much it may differ.

Of rows in one group the first that can be made counts, so that what needs another library stands
before what transformers and our own reading of the folder tell. A row's two sides are functions of
a case and an item; what fails on the other side is not compared, and says why.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from export.certificates import items, sides
from export.certificates.case import Case
from export.certificates.items import Item
from models.networks.decoder_readers import DecoderEmbedder, DecoderPairScorer
from models.networks.heads import TextEmbedder
from models.networks.retrieval import TermEmbedder, ThreeWayEmbedder
from models.networks.traced_readers import TracedEmbedder, TracedYesNoScorer
from models.networks.transformer import Transformer


@dataclass(frozen=True, slots=True)
class Comparison:
    """One row of the table."""

    what: str
    group: str
    library: str
    is_for: Callable[[Case], bool]
    items: Callable[[Case], Sequence[Item]]
    ours: Callable[[Case, Any], Any]
    theirs: Callable[[Case, Any], Any]
    class_name: str = ""  # of transformers, whose network gives the other side
    note: str = ""
    allowed_of_gguf: int = 0  # that may differ, as transformers' own conversion may be at fault


def _is_whole(case: Case) -> bool:
    """Whether sentence-transformers reads the folder, and it was imported as it is."""
    plain = case.adapter is None and case.gguf is None and not case.is_rounded
    return plain and case.is_as_declared and not case.is_large


def _is_vector(case: Case) -> bool:
    is_declared = (case.folder / "modules.json").is_file()
    kinds = TextEmbedder | DecoderEmbedder | TracedEmbedder | ThreeWayEmbedder
    is_one = isinstance(case.checkpoint.model, kinds)
    is_graph = bool(case.graph) and case.checkpoint.task == "embedding"
    return is_declared and (is_one or is_graph) and _is_whole(case)


def _is(task: str) -> Callable[[Case], bool]:
    return lambda case: case.checkpoint.task == task


def _is_translator(case: Case) -> bool:
    return isinstance(case.checkpoint.model, Transformer)


OUTPUTS = "outputs"
POOLED = "prompts, pooling and maps as we read them, without sentence-transformers"
_row = partial(
    Comparison, group=OUTPUTS, library="transformers", items=items.compared, ours=sides.output
)
ROWS: tuple[Comparison, ...] = (
    Comparison(
        "tokens",
        "tokens",
        "transformers",
        lambda case: case.checkpoint.task != "image-classification",
        items.probes,
        sides.our_tokens,
        sides.their_tokens,
        allowed_of_gguf=10,
    ),
    Comparison(
        "conversations",
        "conversations",
        "transformers",
        lambda case: bool(case.checkpoint.chat),
        items.conversations,
        sides.our_prompt,
        sides.their_prompt,
    ),
    Comparison(
        "labels",
        "labels",
        "transformers",
        lambda case: bool(case.checkpoint.labels) and case.adapter is None,
        lambda case: [Item(f"label {n}", n) for n in range(len(case.checkpoint.labels))],
        lambda case, number: case.checkpoint.labels[number],
        sides.their_label,
    ),
    _row(
        "vectors",
        library="sentence_transformers",
        is_for=_is_vector,
        items=items.prompted,
        ours=sides.our_vector,
        theirs=sides.their_vector,
    ),
    _row(
        "weights of words",
        library="sentence_transformers",
        is_for=lambda case: isinstance(case.checkpoint.model, TermEmbedder) and _is_whole(case),
        theirs=sides.their_sparse,
    ),
    _row(
        "scores",
        library="sentence_transformers",
        is_for=lambda case: (
            case.checkpoint.task == "pair-scoring"
            and not case.yes_no
            and _is_whole(case)
            and not sides.has_template(case)
        ),
        ours=sides.our_score,
        theirs=sides.their_score,
    ),
    _row(
        "weights of words",
        is_for=lambda case: isinstance(case.checkpoint.model, TermEmbedder),
        theirs=sides.their_terms,
        class_name=sides.WORDS,
        note=POOLED,
    ),
    _row(
        "vectors",
        is_for=sides.has_own_pooling,
        items=items.prompted,
        ours=sides.our_vector,
        theirs=sides.their_pooled,
        class_name=sides.STATES,
        note=POOLED,
    ),
    _row(
        "hidden states",
        is_for=lambda case: case.checkpoint.task == "embedding" and not case.graph,
        ours=sides.our_states,
        theirs=sides.their_states,
        class_name=sides.STATES,
        note=POOLED,
    ),
    _row(
        "logits",
        is_for=lambda case: (
            isinstance(case.checkpoint.model, DecoderPairScorer | TracedYesNoScorer)
            and case.yes_no is not None
        ),
        theirs=sides.their_judgement,
        class_name=sides.TEXTS,
    ),
    *(
        _row("logits", is_for=_is(task), theirs=theirs, class_name=class_name)
        for task, theirs, class_name in (
            ("text-classification", sides.their_logits, sides.CLASSES),
            ("pair-scoring", sides.their_logits, sides.CLASSES),
            ("token-classification", sides.their_token_logits, sides.TOKENS),
            ("question-answering", sides.their_spans, sides.SPANS),
        )
    ),
    _row(
        "log probabilities",
        is_for=_is("fill-mask"),
        items=items.masked,
        ours=sides.our_words,
        theirs=sides.their_words,
        class_name=sides.WORDS,
    ),
    _row(
        "log probabilities",
        is_for=_is_translator,
        ours=sides.our_translation,
        theirs=sides.their_translation,
        class_name=sides.SOURCES,
    ),
    _row(
        "log probabilities",
        is_for=lambda case: _is("text-generation")(case) and not _is_translator(case),
        ours=sides.our_next,
        theirs=sides.their_next,
        class_name=sides.TEXTS,
    ),
    _row(
        "logits",
        is_for=_is("image-classification"),
        items=items.images,
        ours=sides.our_image,
        theirs=sides.their_image,
        class_name=sides.IMAGES,
    ),
)
