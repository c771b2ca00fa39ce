"""Train and judge a token classifier: what its rows and targets are, and its figure.

A text's words are those of the tokenizer, at serving as in training: they may be parts of the
words that a file tags ("U.S." is four), whose parts then go on with its entity. What a word is
tagged by its first token; the loss ignores the others.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from models.checkpoints.checkpoint import Checkpoint
from models.data.batches import padded_inputs, remark_on_cut
from models.data.tagged import (
    OUTSIDE,
    Counts,
    TaggedDataset,
    TaggedSentence,
    count_entities,
    total,
    type_of,
)
from models.data.tokenizer import cutting_copy
from models.networks.elmo import Elmo, ElmoNetwork
from models.networks.elmo_tasks import ElmoTokenClassifier
from models.networks.readers import TokenClassifier
from models.recipes.finetune import Recipe, copy_of_elmo
from models.training.evaluation import predict_rows
from models.training.supervised import Criterion

IGNORED = -100  # a target that F.cross_entropy skips


@dataclass(frozen=True, slots=True)
class TaggedRows:
    """Token ids, and for each a label's index or IGNORED; row by row as the sentences."""

    sentences: tuple[TaggedSentence, ...]
    rows: tuple[tuple[int, ...], ...]
    targets: tuple[tuple[int, ...], ...]
    first_tokens: tuple[tuple[int | None, ...], ...]  # of each tagged word; None: it has no token
    pad_token_id: int

    def __len__(self) -> int:
        return len(self.rows)

    def lengths(self) -> list[int]:
        return [len(row) for row in self.rows]

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, ...]:
        """input_ids and attention_mask [B, S], and targets packed, [N]; all int64."""
        targets = [target for i in indices for target in self.targets[i]]
        inputs = padded_inputs([self.rows[i] for i in indices], self.pad_token_id)
        return *inputs, torch.tensor(targets)


@dataclass(frozen=True, slots=True)
class EntityEvaluation:
    """Entities found with equal ends and type, by type; the loss is of words."""

    loss: float
    counts: dict[str, Counts]
    num_rows: int

    @property
    def overall(self) -> Counts:
        return total(self.counts.values())

    def scores(self) -> dict[str, float]:
        overall = self.overall
        return {
            "entity_f1": overall.f1,
            "precision": overall.precision,
            "recall": overall.recall,
        }

    def to_dict(self) -> dict[str, Any]:
        counts = self.counts.items()
        types = {
            kind: {"f1": each.f1, "entities": each.true, "predicted": each.predicted}
            for kind, each in counts
        }
        return {"rows": self.num_rows, "loss": self.loss, **self.scores(), "types": types}


def tokenize_tagged(
    dataset: TaggedDataset,
    labels: Sequence[str],
    tokenizer: Tokenizer,
    max_tokens: int,
    pad_token_id: int,
) -> TaggedRows:
    """Tokenize all sentences; those longer than `max_tokens` are cut."""
    encodings = cutting_copy(tokenizer, max_tokens).encode_batch(
        [sentence.text for sentence in dataset.examples]
    )
    cut = [
        (sentence.line, len(sentence.text))
        for sentence, encoding in zip(dataset.examples, encodings, strict=True)
        if encoding.overflowing
    ]
    remark_on_cut(dataset.name, cut, len(dataset), max_tokens)
    index = {label: i for i, label in enumerate(labels)}
    tagged = [
        _tagged_row(sentence, encoding, index)
        for sentence, encoding in zip(dataset.examples, encodings, strict=True)
    ]
    return TaggedRows(
        sentences=dataset.examples,
        rows=tuple(tuple(encoding.ids) for encoding in encodings),
        targets=tuple(targets for targets, _ in tagged),
        first_tokens=tuple(first_tokens for _, first_tokens in tagged),
        pad_token_id=pad_token_id,
    )


def _tagged_row(
    sentence: TaggedSentence, encoding: Encoding, index: dict[str, int]
) -> tuple[tuple[int, ...], tuple[int | None, ...]]:
    """Targets of all tokens, and where the tokens of each tagged word begin."""
    words = [i for i, word in enumerate(sentence.words) for _ in range(len(word) + 1)]  # + space
    targets = [IGNORED] * len(encoding.ids)
    first_tokens: list[int | None] = [None] * len(sentence.words)
    known = None
    for place, (word_id, (start, end)) in enumerate(
        zip(encoding.word_ids, encoding.offsets, strict=True)
    ):
        if word_id is None or word_id == known or start == end:
            continue
        known = word_id
        word = words[end - 1]  # a token may begin with the space before it
        tag = sentence.tags[word]
        if first_tokens[word] is None:
            first_tokens[word] = place
        elif tag != OUTSIDE:
            tag = f"I-{type_of(tag)}"
        targets[place] = index[tag]
    return tuple(targets), tuple(first_tokens)


def judge_tags(model: nn.Module, rows: TaggedRows, labels: Sequence[str]) -> EntityEvaluation:
    """Run all rows through the model; words that were cut away have no entity."""
    logits = predict_rows(model, rows)
    predicted = []
    for row_logits, first_tokens in zip(logits, rows.first_tokens, strict=True):
        best = row_logits.argmax(dim=-1).tolist()
        predicted.append(
            [OUTSIDE if place is None else labels[best[place]] for place in first_tokens]
        )
    targets = torch.tensor([target for row in rows.targets for target in row])
    return EntityEvaluation(
        loss=F.cross_entropy(torch.cat(logits), targets, ignore_index=IGNORED).item(),
        counts=count_entities([sentence.tags for sentence in rows.sentences], predicted),
        num_rows=len(rows),
    )


def tagger_from(
    checkpoint: Checkpoint, data: TaggedDataset
) -> tuple[TokenClassifier | ElmoTokenClassifier, tuple[str, ...]]:
    """Copy the token classifier if it has these labels, else put a fresh head on the body."""
    labels, is_known = data.labels(), set(data.labels()) == set(checkpoint.labels)
    if isinstance(checkpoint.model, TokenClassifier | ElmoTokenClassifier) and is_known:
        return copy.deepcopy(checkpoint.model), checkpoint.labels
    if isinstance(checkpoint.model, Elmo | ElmoNetwork):
        return ElmoTokenClassifier(copy_of_elmo(checkpoint.model), len(labels)), labels
    model = checkpoint.encoder_model
    config = model.config
    return TokenClassifier(copy.deepcopy(model.encoder), len(labels), config.dropout), labels


TOKEN_CLASSIFICATION = Recipe(
    "token-classification",
    tagger_from,
    tokenize_tagged,
    lambda labels: Criterion(F.cross_entropy, partial(judge_tags, labels=labels), "entity_f1"),
)
