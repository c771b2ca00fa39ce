"""Labels, vectors and similarities of texts, and labels of images."""

import base64
import binascii
from collections.abc import Iterable, Sequence

import msgspec

from service.calls.answers import LabelScore
from service.calls.features import ExtractFeatures, Features
from service.calls.images import ClassifyImage, ImageClassifications
from service.calls.texts import (
    Classifications,
    Classify,
    Embed,
    Embeddings,
    PairScores,
    ScoreFunction,
    ScorePairs,
    Similarities,
    Similarity,
)
from service.http.huggingface.fields import Target, Values
from service.http.numbers import Count, Whole
from service.http.request import Reply, Request
from service.http.shared.embedding_fields import unit_vector, width_in
from service.http.shared.inputs import (
    LONGEST_SPACE,
    Compared,
    Inputs,
    begins,
    check_texts,
    inputs_as,
    refuse,
)
from service.http.shared.names import TRUNCATE, names_of
from service.http.shared.paths import (
    CLASSIFY,
    CLASSIFY_IMAGE,
    EMBED,
    EXTRACT_FEATURES,
    SCORE_PAIRS,
    SIMILARITY,
)
from service.http.status import invalid

# By their names here; of images the softmax alone is there.
FUNCTIONS: dict[str, ScoreFunction] = {
    "softmax": "softmax",
    "sigmoid": "sigmoid",
    "none": "identity",
}
OF_IMAGES = {"function_to_apply": "scores are probabilities of a softmax over the labels"}
REFUSED_OF_LABELS = {
    "candidate_labels": "the model has labels of its own",
}
FIXED_INPUT = {
    "truncation_direction": "a text that is cut loses its end",
}

OF_EMBEDDERS = {
    "prompt_name": "the model has no prompts",
    "dimensions": "the model's features have one width",
}


class LabelParameters(msgspec.Struct):
    """Which labels an answer has."""

    function_to_apply: str | None = None
    top_k: Count | None = None
    candidate_labels: str | list[str] | None = None
    truncate: bool | None = None
    truncation: bool | None = None  # as transformers' pipelines name it


class LabelRequest(msgspec.Struct):
    """Texts, a pair of texts, or an image in base64."""

    inputs: msgspec.Raw
    parameters: LabelParameters | None = None
    truncate: bool | None = None


class TextPair(msgspec.Struct):
    """Two texts that are read together."""

    text: str
    text_pair: str


class FeatureRequest(msgspec.Struct):
    """Texts, with parameters beside them, as its clients send."""

    inputs: msgspec.Raw
    normalize: bool | None = None
    truncate: bool | None = None
    prompt_name: str | None = None
    dimensions: Whole | None = None
    truncation_direction: str | None = None


class SimilarityRequest(msgspec.Struct):
    """The body of sentence similarity."""

    inputs: Compared


async def classify_texts(request: Request, target: Target) -> Reply:
    asked = await request.json(LabelRequest)
    parameters = _checked(asked.parameters)
    score_function, seconds = _function(parameters), []
    if begins(asked.inputs, b"{"):
        pair = inputs_as(asked.inputs, TextPair)
        inputs, seconds = Inputs([pair.text], is_one=True), [pair.text_pair]
    else:
        inputs = await Inputs.of(request, asked.inputs)
    call = Classify(
        model=target.name,
        texts=inputs.texts,
        text_pairs=seconds,
        all_scores=True,
        score_function=score_function,
        truncate=bool(asked.truncate or parameters.truncate or parameters.truncation),
    )
    request.named = inputs.names(Classify, TRUNCATE)
    answer: Classifications = await request.ask(CLASSIFY, call)
    # A list of one for one text, too: as its clients read it.
    return Reply.json([_labels(each.labels, parameters) for each in answer.results])


async def classify_image(request: Request, target: Target) -> Reply:
    """The labels of an image: the body is its file, or has it in base64."""
    parameters = LabelParameters()
    image = bytes(request.body)
    if image[:LONGEST_SPACE].lstrip()[:1] == b"{":
        await request.check_json(has_files=True)
        asked = await request.json(LabelRequest)
        parameters, image = _checked(asked.parameters), _image_of(asked.inputs)
        refuse(parameters, OF_IMAGES, harmless=("softmax",))
    call = ClassifyImage(model=target.name, images=[image], all_scores=True)
    answer: ImageClassifications = await request.ask(CLASSIFY_IMAGE, call)
    return Reply.json(_labels(answer.results[0].labels, parameters))


def _checked(parameters: LabelParameters | None) -> LabelParameters:
    parameters = parameters or LabelParameters()
    refuse(parameters, REFUSED_OF_LABELS)
    return parameters


def _function(parameters: LabelParameters) -> ScoreFunction:
    """Score function of a request; the model's own where none is named. Raises `HttpError`."""
    name = parameters.function_to_apply
    if name is None:
        return ""
    if name not in FUNCTIONS:
        expected = ", ".join(FUNCTIONS)
        field = "function_to_apply"
        raise invalid(f"{field} is '{name}', expected one of {expected}", field)
    return FUNCTIONS[name]


def _labels(ranked: Iterable[LabelScore], parameters: LabelParameters) -> list[Values]:
    best = list(ranked)[: parameters.top_k]
    return [{"label": each.label, "score": each.score} for each in best]


def _image_of(raw: msgspec.Raw) -> bytes:
    text = inputs_as(raw, str)
    if text.startswith("data:"):
        _, _, text = text.partition(",")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid(f"inputs is no image in base64: {error}", "inputs") from error


async def extract_features(request: Request, target: Target) -> Reply:
    """A vector per text of an embedder; of other models one per token of each text."""
    asked = await request.json(FeatureRequest)
    refuse(asked, FIXED_INPUT, harmless=("right", "Right"))
    inputs, truncate = await Inputs.of(request, asked.inputs), bool(asked.truncate)
    if target.manifest.task != "features":
        call = Embed(
            model=target.name,
            texts=inputs.texts,
            truncate=truncate,
            prompt_name=asked.prompt_name or "",
            dimensions=width_in(asked.dimensions),
            kinds=("dense",),
        )
        request.named = inputs.names(Embed, TRUNCATE)
        embedded: Embeddings = await request.ask(EMBED, call)
        return await request.answer(
            lambda: inputs.shaped([_vector(each.numbers, asked) for each in embedded.results]),
            embedded.num_values,
        )
    refuse(asked, OF_EMBEDDERS)
    extraction = ExtractFeatures(
        model=target.name, texts=inputs.texts, truncate=truncate, pooling="none"
    )
    request.named = inputs.names(ExtractFeatures, TRUNCATE)
    answer: Features = await request.ask(EXTRACT_FEATURES, extraction)
    return await request.answer(
        lambda: inputs.shaped(
            [[_vector(each.numbers, asked) for each in text.vectors] for text in answer.results]
        ),
        answer.num_values,
    )


def _vector(values: Sequence[float], asked: FeatureRequest) -> list[float]:
    return unit_vector(values) if asked.normalize else list(values)


async def extract_or_compare(request: Request, target: Target) -> Reply:
    """Answer of an embedder's own address, to which clients send both kinds of request."""
    asked = await request.json(LabelRequest)
    pipeline = compare_texts if begins(asked.inputs, b"{") else extract_features
    return await pipeline(request, target)


async def compare_texts(request: Request, target: Target) -> Reply:
    """The similarity of a text to others; of a model that scores pairs, its scores."""
    asked = (await request.json(SimilarityRequest)).inputs
    check_texts(request, asked.sentences, "sentences")
    if target.manifest.task == "pair-scoring":
        pairs = ScorePairs(
            model=target.name,
            texts=[asked.source_sentence] * len(asked.sentences),
            text_pairs=asked.sentences,
        )
        request.named = names_of("huggingface", ScorePairs, single=("texts",))
        scored: PairScores = await request.ask(SCORE_PAIRS, pairs)
        return Reply.json([result.score for result in scored.results])
    call = Similarity(
        model=target.name,
        texts=[asked.source_sentence],
        others=asked.sentences,
        measure="cosine",
    )
    request.named = names_of("huggingface", Similarity, single=("texts",))
    answer: Similarities = await request.ask(SIMILARITY, call)
    return Reply.json(answer.rows[0].numbers)
