"""The share of texts that a graph answers like the network: a precision's cost without labels.

Outputs may change while every answer stays, and an answer may change with tiny changes of outputs.
So the answers of clients are compared here: a text's label, its entities, the answer to a
question, the word for a mask, the nearest of other texts. Figures are shares from 0 to 1. Where
the answer is a number, of a pair or of a regression, they say how scores go together instead. How
far probabilities, scores and similarities themselves move is in `distributions.py`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from tokenizers import Tokenizer

from export.checks.distributions import (
    SMALLEST,
    Changes,
    cosines_of,
    label_probability_changes,
    probability_changes,
    score_changes,
    similarity_changes,
)
from export.checks.parity import BATCH_ROWS, Arrays, pad, run_network
from export.errors import ExportError
from models.data.tokenizer import cutting_copy
from models.networks.heads import TextNetwork
from service.contract.manifest import SCORE_FUNCTIONS
from service.serving.tasks.answers import MAX_ANSWER_TOKENS, Window, best_spans
from service.serving.tasks.entities import Entity, Words, entities_of
from service.serving.tasks.task import SCORES

# The least agreement with float32 for a precision that was not requested by name: decision 0017.
LEAST_AGREEMENT = {
    "same_labels": 0.98,  # of texts
    "same_label_sets": 0.95,  # texts of which all labels above 0.5 are the same
    "score_correlation": 0.98,  # Pearson's; of several outputs the least
    "same_entities": 0.95,  # texts of which all entities are the same
    "entity_f1": 0.95,
    "same_answers": 0.95,  # of questions
    "same_words": 0.9,  # for masks: the first few of a whole vocabulary are often close
    "same_neighbours": 0.85,  # texts of which the nearest other one is the same
    "weight_correlation": 0.98,  # Pearson's, of the weights of tokens or words
    "token_vector_cosine": 0.98,  # the mean
}
COMPARED_AS = {"score_correlation": "the correlation of scores with float32's"}
QUESTION_WORDS = 8  # a sample's question is how its context begins


@dataclass(frozen=True, slots=True)
class SampleText:
    """A text, or question and context, as a network reads it, and where each word begins."""

    ids: list[int]
    types: list[int]
    first_tokens: list[int]


@dataclass(frozen=True, slots=True)
class TextOutputs:
    """The outputs of graph and network for one text: float32 [its rows, values]."""

    sample: SampleText
    by_graph: np.ndarray
    by_network: np.ndarray


def sample_texts(
    task: str, tokenizer: Tokenizer, texts: Sequence[str], max_tokens: int, network: TextNetwork
) -> list[SampleText]:
    """Texts as rows of a task.

    For question answering, a text's beginning is the question; of pairs it is the first text, and
    the second is the text itself and of every other pair the next one, which matches less.
    """
    inputs: Sequence[str | tuple[str, str]] = texts
    if task == "question-answering":
        inputs = [(_beginning(text), text) for text in texts]
    if task == "pair-scoring":
        seconds = [texts[(i + i % 2) % len(texts)] for i in range(len(texts))]
        inputs = list(zip(map(_beginning, texts), seconds, strict=True))
    return [
        SampleText(
            network.as_sample(encoding.ids),
            encoding.type_ids if network.has_token_types else [0] * len(encoding.ids),
            _first_tokens(encoding.word_ids),
        )
        for encoding in cutting_copy(tokenizer, max_tokens).encode_batch(inputs)
    ]


def measure_agreement(
    task: str,
    labels: Sequence[str],
    samples: Sequence[SampleText],
    network: TextNetwork,
    graph: Callable[[Arrays], np.ndarray],
) -> dict[str, float]:
    """Shares of equal answers, cosines, and of how many texts; empty for a task without answers."""
    measure = measure_of(task, labels, network.score_function)
    if measure is None:
        return {}
    outputs = list(_outputs(samples, network, graph))
    figures = _cosines_of_texts(outputs) | measure(outputs, labels)
    changes = changes_of(task, network.score_function)
    if changes is not None:
        figures |= _changes_of_texts(outputs, changes)
    return {"texts_compared": len(outputs)} | {
        name: figure if isinstance(figure, int) else round(figure, 5)
        for name, figure in figures.items()
    }


def _changes_of_texts(outputs: Sequence[TextOutputs], changes: Changes) -> dict[str, float]:
    """The largest changes over all texts; of probabilities text by text, to hold few at a time."""
    is_apart = changes in (probability_changes, label_probability_changes)
    groups = [[each] for each in outputs] if is_apart else [outputs]
    largest: dict[str, float] = {}
    for group in groups:
        by_graph = np.concatenate([each.by_graph for each in group]).astype(np.float64)
        by_network = np.concatenate([each.by_network for each in group]).astype(np.float64)
        for name, change in changes(by_graph, by_network).items() if len(by_graph) else ():
            largest[name] = max(change, largest.get(name, change))
    return largest


def _cosines_of_texts(outputs: Sequence[TextOutputs]) -> dict[str, float]:
    """Cosines of each text's outputs with the network's; single values have no direction."""
    pairs = [(each.by_graph.ravel(), each.by_network.ravel()) for each in outputs]
    cosines = [
        float(ours @ theirs / max(np.linalg.norm(ours) * np.linalg.norm(theirs), SMALLEST))
        for ours, theirs in pairs
        if len(ours) > 1
    ]
    if not cosines:
        return {}
    return {"mean_text_cosine": float(np.mean(cosines)), "least_text_cosine": min(cosines)}


def check_agreement(precision: str, figures: Mapping[str, float]) -> None:
    """Raise `ExportError` where answers agree too seldom; figures of other things are left."""
    for name, least in LEAST_AGREEMENT.items():
        share = figures.get(name, 1.0)
        if not share >= least:
            compared = COMPARED_AS.get(name, f"{name.replace('_', ' ')} as in float32")
            raise ExportError(
                f"{compared} on {figures['texts_compared']} texts is {share}, the limit is "
                f"{least}: calibrate on texts like yours (--calibration), "
                f"or ask for it by name (--precision {precision})"
            )


def _outputs(
    samples: Sequence[SampleText], network: TextNetwork, graph: Callable[[Arrays], np.ndarray]
) -> Iterator[TextOutputs]:
    """The outputs of the network and the graph, computed in batches of similar lengths."""
    ordered = sorted(samples, key=lambda sample: len(sample.ids))
    for start in range(0, len(ordered), BATCH_ROWS):
        chosen = ordered[start : start + BATCH_ROWS]
        ids, types = [each.ids for each in chosen], [each.types for each in chosen]
        batch = pad(ids, network.pad_token_id, types)
        by_graph = graph(batch)
        by_network = run_network(network, batch)[network.output_name]
        ends = np.cumsum(_rows_of_texts(len(by_graph), ids, network.mask_token_id))[:-1]
        parts = zip(chosen, np.split(by_graph, ends), np.split(by_network, ends), strict=True)
        for sample, ours, theirs in parts:
            yield TextOutputs(sample, ours, theirs)


def _rows_of_texts(num_rows: int, ids: Sequence[Sequence[int]], mask_token_id: int) -> list[int]:
    """The number of each text's rows in a batch's output: one, one per token or one per mask."""
    of_tokens = [len(row) for row in ids]
    of_masks = [row.count(mask_token_id) for row in ids]
    for counts in ([1] * len(ids), of_tokens, of_masks):
        if sum(counts) == num_rows:
            return counts
    raise AssertionError("a network's output has rows of texts, of tokens or of masks")


def _same_labels(outputs: Sequence[TextOutputs], _: Sequence[str]) -> dict[str, float]:
    same = [each.by_graph.argmax() == each.by_network.argmax() for each in outputs]
    return {"same_labels": float(np.mean(same))}


def _same_label_sets(outputs: Sequence[TextOutputs], _: Sequence[str]) -> dict[str, float]:
    """A logit above 0 is a probability above 0.5."""
    same = [((each.by_graph > 0) == (each.by_network > 0)).all() for each in outputs]
    return {"same_label_sets": float(np.mean(same))}


def _score_agreement(
    outputs: Sequence[TextOutputs], _: Sequence[str], scores_by: str
) -> dict[str, float]:
    """Correlation of scores [T, outputs]: scores that are all alike have no correlation."""
    by_graph, by_network = (
        SCORES[scores_by](np.concatenate(logits).astype(np.float64))
        for logits in ([each.by_graph for each in outputs], [each.by_network for each in outputs])
    )
    differences = np.abs(by_graph - by_network)
    figures = {
        "mean_score_difference": float(differences.mean()),
        "max_score_difference": float(differences.max()),
    }
    columns = list(zip(by_graph.T, by_network.T, strict=True))
    if all(np.ptp(column) > 0 for pair in columns for column in pair):
        figures["score_correlation"] = min(float(np.corrcoef(*pair)[0, 1]) for pair in columns)
    return figures


def _same_words(outputs: Sequence[TextOutputs], _: Sequence[str]) -> dict[str, float]:
    same = [each.by_graph.argmax(axis=1) == each.by_network.argmax(axis=1) for each in outputs]
    return {"same_words": float(np.mean(np.concatenate(same)))}


def _same_entities(outputs: Sequence[TextOutputs], labels: Sequence[str]) -> dict[str, float]:
    """Two entities are the same where type and words are, as conlleval has it."""
    same, common, num_found, num_wanted = [], 0, 0, 0
    same_tags = []
    for each in outputs:
        words = each.sample.first_tokens
        by_graph, by_network = (
            _entities(values, labels, words) for values in (each.by_graph, each.by_network)
        )
        same.append(by_graph == by_network)
        same_tags.append(
            each.by_graph[words].argmax(axis=1) == each.by_network[words].argmax(axis=1)
        )
        common += len(by_graph & by_network)
        num_found, num_wanted = num_found + len(by_graph), num_wanted + len(by_network)
    both = num_found + num_wanted
    return {
        "entities_compared": num_wanted,
        "same_tags": float(np.mean(np.concatenate(same_tags))),  # of words
        "same_entities": float(np.mean(same)),
        "entity_f1": 2 * common / both if both else 1.0,
    }


def _entities(
    logits: np.ndarray, labels: Sequence[str], first_tokens: list[int]
) -> set[tuple[str, int, int]]:
    """Entities as a server decodes them, in words instead of characters."""
    spans = [(place, place + 1) for place in range(len(first_tokens))]
    words = Words([[token] for token in first_tokens], spans)
    entities: list[Entity] = entities_of(logits[first_tokens], labels, words)
    return {(entity.label, entity.start, entity.end) for entity in entities}


def _same_answers(outputs: Sequence[TextOutputs], _: Sequence[str]) -> dict[str, float]:
    same = [
        _answer(each.by_graph, each.sample) == _answer(each.by_network, each.sample)
        for each in outputs
    ]
    return {"same_answers": float(np.mean(same))}


def _answer(logits: np.ndarray, sample: SampleText) -> tuple[int, int]:
    """First and last token of the best span, (0, 0) where no answer scores more."""
    types = np.array(sample.types)
    is_context = types == types.max()
    is_context[[0, -1]] = False  # special tokens
    window = Window(logits, np.zeros((len(logits), 2), int), is_context)
    score, first, last = max(
        best_spans(window, MAX_ANSWER_TOKENS), default=(-np.inf, 0, 0), key=lambda span: span[0]
    )
    return (first, last) if score >= float(logits[0].sum()) else (0, 0)


def _same_neighbours(outputs: Sequence[TextOutputs], _: Sequence[str]) -> dict[str, float]:
    if len(outputs) < 2:
        return {}
    by_graph, by_network = (
        _cosines(np.concatenate(vectors))
        for vectors in ([each.by_graph for each in outputs], [each.by_network for each in outputs])
    )
    pairs = np.triu_indices(len(outputs), 1)
    return {
        "same_neighbours": float(np.mean(by_graph.argmax(axis=1) == by_network.argmax(axis=1))),
        "similarity_correlation": rank_correlation(by_graph[pairs], by_network[pairs]),
    }


def _cosines(vectors_TD: np.ndarray) -> np.ndarray:  # noqa: N803 - T texts, D values
    """Cosines of all pairs of texts; a text with itself is no pair, and has the least."""
    cosines = cosines_of(vectors_TD)
    np.fill_diagonal(cosines, -np.inf)
    return cosines


def rank_correlation(values: np.ndarray, others: np.ndarray) -> float:
    """Spearman's correlation of two series [N], from -1 to 1; 0 where one has no order."""
    ranks, other_ranks = _ranks(values), _ranks(others)
    spread = float(ranks.std() * other_ranks.std())
    if not spread:
        return 0.0
    together = (ranks - ranks.mean()) * (other_ranks - other_ranks.mean())
    return float(np.mean(together)) / spread


def _ranks(values: np.ndarray) -> np.ndarray:
    """The place of each value in their order; equal values share the mean of their places."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: np.ndarray = (np.cumsum(counts) - (counts + 1) / 2)[places]
    return ranks


def _beginning(text: str) -> str:
    return " ".join(text.split()[:QUESTION_WORDS])


def _first_tokens(word_ids: Sequence[int | None]) -> list[int]:
    """The first token of each word; special tokens belong to no word."""
    before = [None, *word_ids]
    return [
        token for token, word in enumerate(word_ids) if word is not None and word != before[token]
    ]


Measure = Callable[[Sequence[TextOutputs], Sequence[str]], dict[str, float]]
MEASURES: dict[str, Measure] = {  # of tasks whose answers are choices
    "text-classification": _same_labels,
    "token-classification": _same_entities,
    "question-answering": _same_answers,
    "fill-mask": _same_words,
    "embedding": _same_neighbours,
}


CHANGES: dict[str, Changes] = {  # of tasks whose answers are numbers, by what makes them
    "identity": score_changes,
    "sigmoid": label_probability_changes,
    "softmax": probability_changes,
}


def changes_of(task: str, score_function: str) -> Changes | None:
    """Comparison of the numbers that a task answers with; None where it answers with spans."""
    if task == "fill-mask":
        return probability_changes
    if task == "embedding":
        return similarity_changes
    return CHANGES.get(_scores_by(task, score_function))


def _scores_by(task: str, score_function: str) -> str:
    return score_function or next(iter(SCORE_FUNCTIONS.get(task, ())), "")


def measure_of(task: str, labels: Sequence[str], score_function: str) -> Measure | None:
    """The measure of a task whose scores are made by a function; None where there is none."""
    scores_by = _scores_by(task, score_function)
    if task == "pair-scoring" or scores_by == "identity" or len(labels) == 1:
        return partial(_score_agreement, scores_by=scores_by)
    return _same_label_sets if scores_by == "sigmoid" else MEASURES.get(task)
