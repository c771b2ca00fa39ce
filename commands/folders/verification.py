"""The answers of a served model beside those of the folder that it was made of.

The folder is imported once more, and that import compared with its own libraries
(`export/certificates/`). Then the server is asked for the same: tokens, prompts and outputs, which
differ from the import's by what the precision of the served graph costs. Imports PyTorch.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from commands.ask.client.client import Client
from export.certificates import items, sides
from export.certificates.case import Case, NotComparedError
from export.certificates.certificate import EXACT, Certificate, Pair, Row
from export.certificates.certify import certify
from export.certificates.items import Item, Texts
from export.certificates.probes import Conversation
from models.networks.retrieval import TermEmbedder
from models.networks.transformer import Transformer
from service.calls.conversation import Conversation as Messages
from service.calls.generation import Generate
from service.calls.models import ModelFacts
from service.calls.reading import ClassifyTokens, FillMask
from service.calls.sampling import Sampling
from service.calls.texts import Classify, Embed, ScorePairs
from service.calls.tokens import Tokenize

# Largest difference of an output that is no fault, by the served precision; others are told alone.
LIMITS = {"fp32": 1e-3, "fp16": 5e-2, "bf16": 4e-1}
NUM_TOKENS = 16  # that a decoder writes
NUM_WORDS = 20  # for a mask
BY = "the import"


@dataclass(frozen=True, slots=True)
class Served:
    """The server and the model that is asked, and the case that it was made of."""

    client: Client
    name: str
    case: Case

    def ask(self, call: Any) -> Any:
        return self.client.ask(call)


@dataclass(frozen=True, slots=True)
class Question:
    """One row: what is asked, and what the server and the import make of it."""

    what: str
    is_for: Callable[[Case], bool]
    items: Callable[[Case], Sequence[Item]]
    served: Callable[[Served, Any], Any]
    imported: Callable[[Case, Any], Any]


@dataclass(frozen=True, slots=True)
class Verification:
    """The two comparisons: of the import with the folder's libraries, and of the server with it."""

    model: str
    task: str
    precision: str
    certificate: Certificate
    served: Certificate

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs by more than the served precision explains."""
        return self.served.is_equal and self.certificate.is_equal

    def lines(self) -> list[str]:
        """A line for each comparison, and one for what differs first."""
        different = [
            row for made in (self.certificate, self.served) for row in made.rows if not row.is_equal
        ]
        return [
            f"the folder's import {self.certificate}",
            f"{self.model} as it is served, in {self.precision}, {self.served}",
            *(f"{row.what} differ first at {row.first}" for row in different),
        ]

    def to_dict(self) -> dict[str, Any]:
        """The comparisons for programs."""
        return {
            "model": self.model,
            "task": self.task,
            "precision": self.precision,
            "certificate": self.certificate.to_dict(),
            "served": self.served.to_dict(),
            "is_equal": self.is_equal,
        }


def verify(
    client: Client, model: ModelFacts, case: Case, certificate: Certificate | None = None
) -> Verification:
    """The comparisons of a served model with the case that was read of its folder.

    The certificate of the case is made unless it is given.
    """
    certificate = certificate or certify(case)
    served = Served(client, model.name, replace(case, max_bytes=math.inf))
    limit = LIMITS.get(model.precision, math.inf)
    found = [_row_of(each, served, limit) for each in QUESTIONS if each.is_for(case)]
    if all(row.what in EXACT for row in found):
        found.append(Row("outputs", why_not=f"those of {model.task} are not asked for"))
    made = Certificate(tuple(found), certificate.network)
    return Verification(model.name, model.task, model.precision, certificate, made)


def _row_of(question: Question, served: Served, limit: float) -> Row:
    try:
        with torch.inference_mode():
            pairs = [
                Pair(item.name, question.served(served, item.value), imported)
                for item in question.items(served.case)
                for imported in [question.imported(served.case, item.value)]
            ]
    except NotComparedError as error:
        return Row(question.what, why_not=str(error))
    return Row.of(question.what, BY, pairs, 0.0 if question.what in EXACT else limit)


def _texts(case: Case) -> list[Item]:
    """Texts that a request may have."""
    return [
        item
        for item in items.probes(case)
        if len(item.value) == 1 and item.value[0].strip() and "\0" not in item.value[0]
    ]


def _tokens(served: Served, row: Texts) -> list[int]:
    (result,) = served.ask(Tokenize(served.name, texts=list(row))).results
    return [token.id for token in result.tokens]


def _prompt(served: Served, asked: Conversation) -> list[int]:
    messages = [
        {name: value for name, value in message.items() if name != "thinking"}  # a second name
        for message in asked.messages
    ]
    conversation = Messages(messages, asked.tools, asked.variables)
    (result,) = served.ask(Tokenize(served.name, conversation=conversation)).results
    return [token.id for token in result.tokens]


def _conversations(case: Case) -> list[Item]:
    """Conversations that template and model take, as a refusal is an error of the server."""
    most = case.checkpoint.max_tokens
    return [
        item
        for item in items.conversations(case)
        if 0 < len(sides.our_prompt(case, item.value)[1]) < most
    ]


def _vector(served: Served, prompted: tuple[str | None, str]) -> np.ndarray:
    name, text = prompted
    (result,) = served.ask(Embed(served.name, texts=[text], prompt_name=name or "")).results
    return np.array([result.numbers], np.float32)


def _terms(served: Served, row: Texts) -> np.ndarray:
    (result,) = served.ask(Embed(served.name, texts=list(row), kinds=["sparse"])).results
    weights = np.zeros((1, served.case.checkpoint.config.vocab_size), np.float32)
    weights[0, list(result.sparse.token_ids)] = result.sparse.numbers
    return weights


def _classes(served: Served, row: Texts) -> np.ndarray:
    (result,) = served.ask(Classify(served.name, texts=list(row), all_scores=True)).results
    by_label = {each.label: each.score for each in result.labels}
    return np.array([by_label[label] for label in served.case.checkpoint.labels], np.float32)


def _class_scores(case: Case, row: Texts) -> np.ndarray:
    function = case.checkpoint.text_network.score_function or "softmax"
    scores: np.ndarray = _scores(case, row, function)[0]
    return scores


def _scores(case: Case, row: Texts, function: str) -> np.ndarray:
    values: np.ndarray = sides.SCORES[function](torch.from_numpy(sides.output(case, row))).numpy()
    return values


def _score(served: Served, pair: Texts) -> np.ndarray:
    call = ScorePairs(served.name, texts=[pair[0]], text_pairs=[pair[1]], raw_scores=True)
    (result,) = served.ask(call).results
    return np.array([[result.score]], np.float32)


def _entities(served: Served, row: Texts) -> np.ndarray:
    """Label, place and score of each token that is part of an entity."""
    call = ClassifyTokens(served.name, texts=list(row), aggregation="none")
    (result,) = served.ask(call).results
    labels = served.case.checkpoint.labels
    found = [(labels.index(e.label), e.start, e.end, e.score) for e in result.entities]
    return np.array(found, np.float32).reshape(-1, 4)


def _labelled(case: Case, row: Texts) -> np.ndarray:
    encoding, labels = case.encoded(row), case.checkpoint.labels
    found = []
    for scores, word, (start, end) in zip(
        _scores(case, row, "softmax"), encoding.word_ids, encoding.offsets, strict=True
    ):
        best = int(scores.argmax())
        if word is not None and start != end and labels[best] != "O":
            start += len(row[0][start:end]) - len(row[0][start:end].lstrip())
            found.append((best, start, end, scores[best]))
    return np.array(found, np.float32).reshape(-1, 4)


def _fills(served: Served, row: Texts) -> np.ndarray:
    """Log probabilities of all words: the server's of the likeliest, the import's of the others."""
    values = sides.our_words(served.case, row)
    top_k = min(NUM_WORDS, served.case.checkpoint.tokenizer.get_vocab_size())
    (result,) = served.ask(FillMask(served.name, texts=list(row), top_k=top_k)).results
    for fill in result.masks[0].fills:
        values[0, fill.token_id] = fill.logprob
    return values


def _written(served: Served, row: Texts) -> np.ndarray:
    """How far the log probability of each written token is from that of the likeliest."""
    params = Sampling(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True)
    (result,) = served.client.generate(
        Generate(served.name, prompt=row[0], sampling_params=params)
    ).results
    prompt, written = served.case.encoded(row).ids, list(result.token_ids)
    logits = served.case.model(torch.tensor([[*prompt, *written]]))[0, len(prompt) - 1 : -1]
    likely = logits.log_softmax(-1)
    chosen = likely[torch.arange(len(written)), torch.tensor(written)]
    gaps: np.ndarray = (likely.max(-1).values - chosen).numpy()
    return gaps


def _is(task: str) -> Callable[[Case], bool]:
    return lambda case: case.checkpoint.task == task


def _is_terms(case: Case) -> bool:
    return isinstance(case.checkpoint.model, TermEmbedder)


def _writes(case: Case) -> bool:
    return _is("text-generation")(case) and not isinstance(case.checkpoint.model, Transformer)


QUESTIONS = (
    Question(
        "tokens",
        lambda case: case.checkpoint.task != "image-classification",
        _texts,
        _tokens,
        lambda case, row: case.checkpoint.tokenizer.encode(row[0]).ids,
    ),
    Question(
        "conversations",
        lambda case: bool(case.checkpoint.chat),
        _conversations,
        _prompt,
        lambda case, asked: sides.our_prompt(case, asked)[1],
    ),
    Question(
        "vectors",
        lambda case: _is("embedding")(case) and not _is_terms(case),
        items.prompted,
        _vector,
        sides.our_vector,
    ),
    Question("weights of words", _is_terms, items.compared, _terms, sides.output),
    Question("scores", _is("text-classification"), items.compared, _classes, _class_scores),
    Question("logits", _is("pair-scoring"), items.compared, _score, sides.output),
    Question("entities", _is("token-classification"), items.compared, _entities, _labelled),
    Question("log probabilities", _is("fill-mask"), items.masked, _fills, sides.our_words),
    Question(
        f"log probabilities of {NUM_TOKENS} greedy tokens",
        _writes,
        items.compared,
        _written,
        lambda _case, _row: np.zeros(NUM_TOKENS, np.float32),
    ),
)
