"""The answers of a served model beside those of the folder that it was made of.

The folder is imported once more, and that import compared with transformers (`certificate.py`).
Then the server is asked: for the tokens of 200 texts, and for the outputs of five, which differ
from the import's by what the precision of the served graph costs. Imports PyTorch.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from commands.ask.client.client import Client
from models.checkpoints.certificate import Certificate, certify
from models.checkpoints.checkpoint import Checkpoint
from models.checkpoints.probe_texts import COMPARED, PROBES
from service.calls.generation import Generate
from service.calls.models import ModelFacts
from service.calls.sampling import Sampling
from service.calls.texts import Classify, Embed, ScorePairs
from service.calls.tokens import Tokenize

# Largest difference of an output that is no fault, by the served precision.
LIMITS = {"fp32": 1e-3, "fp16": 5e-2, "bf16": 4e-1}
NUM_TOKENS = 16  # that a decoder writes
BATCH = 32


@dataclass(frozen=True, slots=True)
class Verification:
    """The two comparisons: of the import with transformers, and of the server with the import."""

    model: str
    task: str
    precision: str
    certificate: Certificate
    texts: int
    same_tokens: int
    outputs: str = ""
    max_difference: float = 0.0

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs by more than the served precision explains."""
        limit = LIMITS.get(self.precision, float("inf"))
        served = self.same_tokens == self.texts and self.max_difference <= limit
        return served and self.certificate.is_equal

    def lines(self) -> list[str]:
        """A line for each comparison."""
        served = f"{self.same_tokens} of {self.texts} texts give the same tokens"
        if self.outputs:
            served += f"; {self.outputs} within {self.max_difference:.0e}"
        else:
            served += f"; outputs of {self.task} are not compared"
        return [
            f"the folder's import: {self.certificate}",
            f"{self.model} as it is served, in {self.precision}, beside the import: {served}",
        ]

    def to_dict(self) -> dict[str, Any]:
        """The comparisons for programs."""
        return {
            **asdict(self),
            "certificate": self.certificate.to_dict(),
            "is_equal": self.is_equal,
        }


def verify(client: Client, model: ModelFacts, source: Checkpoint, folder: Path) -> Verification:
    """The comparisons of a served model with the checkpoint that was read of its folder."""
    certificate = certify(source, folder)
    texts, same = _tokens(client, model.name, source)
    compare = COMPARISONS.get(model.task)
    outputs, difference = "", 0.0
    if compare is not None:
        with torch.inference_mode():
            outputs, difference = compare(client, model.name, source)
    return Verification(
        model.name, model.task, model.precision, certificate, texts, same, outputs, difference
    )


def _tokens(client: Client, name: str, source: Checkpoint) -> tuple[int, int]:
    """Numbers of texts, and of those that the server splits as the import does."""
    texts = [text for text in PROBES if text.strip() and "\0" not in text]
    same = 0
    for start in range(0, len(texts), BATCH):
        part = texts[start : start + BATCH]
        results = client.ask(Tokenize(name, texts=part)).results
        for text, result in zip(part, results, strict=True):
            ids = [token.id for token in result.tokens]
            same += ids == source.tokenizer.encode(text).ids
    return len(texts), same


def _logits(source: Checkpoint, *row: str) -> np.ndarray:
    """The import's output of one text or pair, [values]."""
    network = source.text_network
    encoding = source.tokenizer.encode(row[0], row[1] if len(row) > 1 else None)
    ids = torch.tensor([encoding.ids])
    given = [ids, torch.ones_like(ids)]
    if network.has_token_types:
        given.append(torch.tensor([encoding.type_ids]))
    output = network(*given)
    first = output[0] if isinstance(output, tuple) else output
    values: np.ndarray = first[0].numpy()
    return values


def _of_embedding(client: Client, name: str, source: Checkpoint) -> tuple[str, float]:
    rows = [source.tokenizer.encode(text).ids for text in COMPARED]
    served = np.array([each.values for each in client.ask(Embed(name, token_ids=rows)).results])
    expected = np.array([_logits(source, text) for text in COMPARED])
    return "vectors", float(np.abs(served - expected).max())


def _of_classes(client: Client, name: str, source: Checkpoint) -> tuple[str, float]:
    results = client.ask(Classify(name, texts=COMPARED, all_scores=True)).results
    differences = []
    for text, result in zip(COMPARED, results, strict=True):
        logits = torch.from_numpy(_logits(source, text))
        function = source.text_network.score_function or "softmax"
        scores = SCORES[function](logits).numpy()
        by_label = {each.label: each.score for each in result.labels}
        served = [by_label[label] for label in source.labels]
        differences.append(float(np.abs(np.array(served) - scores).max()))
    return "scores", float(np.max(differences))  # NaN where one is


def _of_pairs(client: Client, name: str, source: Checkpoint) -> tuple[str, float]:
    seconds = [COMPARED[number - 1] for number in range(len(COMPARED))]
    response = client.ask(ScorePairs(name, texts=COMPARED, text_pairs=seconds, raw_scores=True))
    expected = [_logits(source, *pair)[0] for pair in zip(COMPARED, seconds, strict=True)]
    served = [result.score for result in response.results]
    return "logits", float(np.abs(np.array(served) - np.array(expected)).max())


def _of_writing(client: Client, name: str, source: Checkpoint) -> tuple[str, float]:
    """How far the log probability of a written token is from that of the likeliest."""
    params = Sampling(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True)
    differences = []
    for text in COMPARED:
        prompt = source.tokenizer.encode(text).ids
        call = Generate(name, prompt=text, sampling_params=params)
        (result,) = client.generate(call).results
        written = list(result.token_ids)
        row = torch.tensor([[*prompt, *written]])
        logits = source.model(row)[0, len(prompt) - 1 : -1].log_softmax(-1)
        chosen = logits[torch.arange(len(written)), torch.tensor(written)]
        differences.append(float((logits.max(-1).values - chosen).max()))
    return f"log probabilities of {NUM_TOKENS} greedy tokens", float(np.max(differences))


SCORES: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "softmax": lambda logits: logits.softmax(-1),
    "sigmoid": torch.sigmoid,
    "identity": lambda logits: logits,
}
COMPARISONS: Mapping[str, Callable[[Client, str, Checkpoint], tuple[str, float]]] = {
    "embedding": _of_embedding,
    "text-classification": _of_classes,
    "pair-scoring": _of_pairs,
    "text-generation": _of_writing,
}
