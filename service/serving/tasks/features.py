"""The features of texts: each request chooses the hidden states and their pooling.

Over the Open Inference Protocol the request parameters `layers`, `pooling` and `weights` do that,
and a text has one vector: a tensor has rows of one length. The strategies are those of Devlin et
al. 2018, table 7, as an export of an embedder has them, and a mix by given weights as in Peters et
al. 2018. The embeddings count as the first layer, and are not among "all" the layers that are
summed.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: S tokens, L layers, D values, N texts

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from service.calls.answers import Row
from service.calls.features import ExtractFeatures, TextFeatures
from service.contract.tensors import Signature, TensorSpec
from service.errors import InvalidArgument, invalid_field
from service.serving.tasks.task import (
    FP32,
    MAX_VALUES,
    TEXT,
    Ask,
    GraphOutput,
    Method,
    Outputs,
    Parameters,
    TextReply,
    TextTask,
    TextTaskModel,
    chosen,
    row_fields,
    tokens_of,
)
from service.text.tokenizer import EncodedText, Text

LAYERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "first": lambda states_SLD: states_SLD[:, 0],
    "last": lambda states_SLD: states_SLD[:, -1],
    "second_to_last": lambda states_SLD: states_SLD[:, -2],
    "sum_last_four": lambda states_SLD: states_SLD[:, -4:].sum(axis=1),
    "concat_last_four": lambda states_SLD: states_SLD[:, -4:].reshape(len(states_SLD), -1),
    "sum_all": lambda states_SLD: states_SLD[:, 1:].sum(axis=1),
}
MIX = "mix"
NEEDS_FOUR_LAYERS = ("sum_last_four", "concat_last_four")
POOLINGS = ("mean", "cls", "none")
DEFAULT_LAYERS, DEFAULT_POOLING = "last", "mean"
MAX_WEIGHTS_CHARACTERS = 4_096  # of a tensor request's, as text
# Of one request, 512 MiB: all layers of all its tokens, however few of them it requests.
MAX_STATES = 2**27


@dataclass(frozen=True, slots=True)
class Features:
    """The choice of features from one text's hidden states [S, L + 1, D]."""

    layers: str = DEFAULT_LAYERS
    pooling: str = DEFAULT_POOLING
    weights: Sequence[float] = ()  # of a mix: one per layer, the embeddings' first

    def check(self, num_layers: int) -> None:
        """Raise `InvalidArgument` for layers that a model of this depth does not have."""
        if self.layers not in (*LAYERS, MIX):
            raise invalid_field(
                "layers", f"is '{self.layers}', expected one of {', '.join((*LAYERS, MIX))}"
            )
        if self.pooling not in POOLINGS:
            raise invalid_field(
                "pooling", f"is '{self.pooling}', expected one of {', '.join(POOLINGS)}"
            )
        if self.layers in NEEDS_FOUR_LAYERS and num_layers < 4:
            raise invalid_field(
                "layers", f"is '{self.layers}', but the model has only {num_layers} layers"
            )
        num_expected = num_layers + 1 if self.layers == MIX else 0
        if len(self.weights) != num_expected:
            raise invalid_field(
                "weights",
                f"has {len(self.weights)} elements, expected {num_expected} for layers "
                f"'{self.layers}' of a model with {num_layers} layers and embeddings",
            )
        if not all(map(math.isfinite, self.weights)):
            raise invalid_field("weights", f"is {list(self.weights)}, expected finite numbers")

    def of(self, states_SLD: np.ndarray) -> np.ndarray:
        """[S, D'] for pooling "none", else [1, D']; special tokens count, as in an embedder."""
        if self.layers == MIX:
            features_SD = np.tensordot(states_SLD, np.array(self.weights, np.float32), (1, 0))
        else:
            features_SD = LAYERS[self.layers](states_SLD)
        if self.pooling == "none":
            return features_SD
        if self.pooling == "cls":
            return features_SD[:1]
        pooled_1D: np.ndarray = features_SD.mean(axis=0, keepdims=True)
        return pooled_1D


def parse_weights(text: str) -> tuple[float, ...]:
    """Numbers with commas between them, as a tensor request's parameter has them."""
    if len(text) > MAX_WEIGHTS_CHARACTERS:
        raise invalid_field(
            "weights", f"has {len(text)} characters, expected at most {MAX_WEIGHTS_CHARACTERS}"
        )
    try:
        return tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError as error:
        raise invalid_field("weights", f"is '{text}', expected numbers and commas") from error


def stacked(vectors: Sequence[np.ndarray]) -> np.ndarray:
    """[N, D'] of one vector per text."""
    return np.concatenate(vectors) if vectors else np.empty((0, 0), np.float32)


def _check_states(model: TextTaskModel, _: Sequence[Text], rows: Sequence[EncodedText]) -> None:
    per_token = (model.manifest.num_layers + 1) * model.manifest.embedding_size
    num_tokens = sum(row.num_tokens for row in rows)
    if num_tokens * per_token > MAX_STATES:
        raise InvalidArgument(
            f"the texts have {num_tokens} tokens in all, the server takes at most "
            f"{MAX_STATES // per_token}: a token has {per_token} values of all layers"
        )


def _ask(call: ExtractFeatures, model: TextTaskModel) -> Ask:
    features = Features(
        chosen("layers", call.layers, (*LAYERS, MIX), DEFAULT_LAYERS),
        chosen("pooling", call.pooling, POOLINGS, DEFAULT_POOLING),
        call.weights,
    )
    features.check(model.manifest.num_layers)
    return Ask(call.texts, lambda reply: {"results": list(_results(reply, features))})


def _results(reply: TextReply, features: Features) -> Iterator[TextFeatures]:
    """The features of each text; `InvalidArgument` where they are too much for one answer."""
    by_text = [features.of(states) for states in reply.per_text()]
    if (num_values := sum(vectors.size for vectors in by_text)) > MAX_VALUES:
        raise InvalidArgument(
            f"the features of these texts are {num_values} values, an answer has at most "
            f"{MAX_VALUES}: ask for fewer texts, fewer layers or pooling"
        )
    return (
        TextFeatures(
            list(map(Row, vectors)),
            tokens_of(row) if features.pooling == "none" else [],
            **row_fields(row),
        )
        for row, vectors in zip(reply.rows, by_text, strict=True)
    )


def _tensors(
    model: TextTaskModel, parameters: Parameters
) -> Callable[[Sequence[Text], TextReply], Outputs]:
    features = Features(
        str(parameters.get("layers", DEFAULT_LAYERS)),
        str(parameters.get("pooling", DEFAULT_POOLING)),
        parse_weights(str(parameters.get("weights", ""))),
    )
    features.check(model.manifest.num_layers)
    if features.pooling == "none":
        raise invalid_field(
            "pooling",
            "is 'none', expected mean or cls: a tensor has no rows of different "
            "lengths, ExtractFeatures has",
        )
    return lambda _texts, reply: {
        "features": stacked([features.of(states) for states in reply.per_text()])
    }


FEATURES = TextTask(
    name="features",
    verb="extract features",
    outputs=(
        GraphOutput(
            "hidden_states",
            lambda manifest: (manifest.num_layers + 1, manifest.embedding_size),
            "token",
        ),
    ),
    signature=lambda _: Signature(TEXT, (TensorSpec("features", FP32, (-1,)),)),
    inline_rows=8,  # each has thousands of values, of 50 ns in a message
    check=_check_states,
    tensors=_tensors,
)
METHODS = (Method(FEATURES, ExtractFeatures, _ask),)
