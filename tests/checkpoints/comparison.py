"""What the server answers for a row, beside what transformers computes.

One comparison per head, in `COMPARISONS`: the largest difference of any number of the answers, or
infinity where an answer names another token, place or text.
"""

import math
from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any

import grpc
import numpy as np
import torch
from attendant.v1 import generation_pb2 as generation
from attendant.v1 import generation_pb2_grpc, reading_pb2_grpc, text_pb2_grpc, vision_pb2_grpc
from attendant.v1 import reading_pb2 as reading
from attendant.v1 import text_pb2 as text
from attendant.v1 import vision_pb2 as vision
from PIL import Image
from tokenizers import Encoding

from tests.checkpoints.rows import (
    CLS,
    IMAGE_PROCESSORS,
    LABELS,
    LAST,
    MEAN,
    MULTI_LABEL,
    OLD_RAW,
    RAW,
    REGRESSION,
    Row,
)
from tests.checkpoints.spellings import SPELLINGS, tokenizer
from tests.fakes.sessions import PATIENCE_S

TEXTS = ("a free prize is waiting for you", "see you at home later, sorry", "lunch now?")
PAIRS = tuple((TEXTS[2], each) for each in TEXTS[:2])
QUESTION, CONTEXT = "who is waiting?", "a free prize is waiting for you at home, see you later"
LONGEST_ANSWER = 5  # tokens
NUM_BEST = 20  # spans that an answer's probability is among, as reading.proto says
NUM_FILLS = 5
NUM_TOKENS = 16  # that an encoder-decoder writes
UNWEIGHTED = ("cls", "eos", "pad", "unk")  # special tokens without a weight
LEAST_SPREAD = 1e-2  # of a number over the texts: a hundred times the limit of a difference
ALIKE = "a network that answers every text alike proves nothing"


@torch.inference_mode()
def outputs(network: Any, encoding: Encoding) -> Any:
    """What transformers computes of one text."""
    inputs = {"input_ids": torch.tensor([encoding.ids])}
    if (getattr(network.config, "type_vocab_size", 0) or 0) > 1:
        inputs["token_type_ids"] = torch.tensor([encoding.type_ids])
    return network(**inputs)


def encoded(row: Row, first: str, second: str | None = None) -> Encoding:
    return tokenizer(row.spelling).encode(first, second)


def of_embedding(row: Row, network: Any, channel: grpc.Channel) -> float:
    request = text.EmbedRequest(model=row.name, texts=TEXTS)
    response = text_pb2_grpc.TextServiceStub(channel).Embed(request, timeout=PATIENCE_S)
    expected = []
    for each in TEXTS:
        (hidden,) = outputs(network, encoded(row, each)).last_hidden_state
        vector = torch.cat([_POOLINGS[name](hidden) for name in row.pooling])
        with torch.inference_mode():
            for dense in network.dense:
                vector = dense(vector)
        expected.append((vector / vector.norm()).numpy())
    return _largest([list(each.values) for each in response.results], expected)


def of_three_ways(row: Row, network: Any, channel: grpc.Channel) -> float:
    """BGE-M3's answers of one run, by FlagEmbedding's formulas."""
    kinds = [kind for kind in text.EmbeddingKind.keys() if "UNSPECIFIED" not in kind]  # noqa: SIM118
    request = text.EmbedRequest(model=row.name, texts=TEXTS, kinds=kinds)
    response = text_pb2_grpc.TextServiceStub(channel).Embed(request, timeout=PATIENCE_S)
    differences: list[float] = []
    special = {SPELLINGS[row.spelling].id_of(f"{role}_token") for role in UNWEIGHTED}
    for each, result in zip(TEXTS, response.results, strict=True):
        ids = encoded(row, each).ids
        (hidden,) = outputs(network, encoded(row, each)).last_hidden_state
        with torch.inference_mode():
            weights = network.sparse_linear(hidden).relu()[:, 0].tolist()
            vectors = network.colbert_linear(hidden[1:])
        expected: dict[int, float] = {}
        for token, weight in zip(ids, weights, strict=True):
            if weight > 0 and token not in special:
                expected[token] = max(weight, expected.get(token, 0.0))
        found = dict(zip(result.sparse.token_ids, result.sparse.weights, strict=True))
        differences.append(_largest_by_name(found, expected))
        rows = [list(vector.values) for vector in result.token_vectors]
        differences.append(_largest(rows, list(vectors / vectors.norm(dim=1, keepdim=True))))
        dense = hidden[0] / hidden[0].norm()
        differences.append(float(np.abs(np.array(result.values) - dense.numpy()).max()))
    return float(np.max(differences))


def of_terms(row: Row, network: Any, channel: grpc.Channel) -> float:
    """SPLADE's weights of all words, by sentence-transformers' formula."""
    request = text.EmbedRequest(model=row.name, texts=TEXTS)
    response = text_pb2_grpc.TextServiceStub(channel).Embed(request, timeout=PATIENCE_S)
    expected, found = [], []
    for each, result in zip(TEXTS, response.results, strict=True):
        weights = outputs(network, encoded(row, each)).logits[0].relu().log1p()
        of_text = weights.max(dim=0).values if row.form == "max" else weights.sum(dim=0)
        expected.append(of_text.numpy())
        values = np.zeros(len(of_text))
        values[list(result.sparse.token_ids)] = result.sparse.weights
        found.append(values.tolist())
    return _largest(found, expected)


def of_classes(row: Row, network: Any, channel: grpc.Channel) -> float:
    request = text.ClassifyRequest(model=row.name, texts=TEXTS, all_scores=True)
    response = text_pb2_grpc.TextServiceStub(channel).Classify(request, timeout=PATIENCE_S)
    expected = [_scores(row, outputs(network, encoded(row, each)).logits[0]) for each in TEXTS]
    return _largest(_by_label(row, response.results), expected)


def of_score(row: Row, network: Any, channel: grpc.Channel) -> float:
    """One logit, or as sentence-transformers does where a folder says nothing, its sigmoid."""
    firsts, seconds = zip(*PAIRS, strict=True)
    request = text.ScorePairsRequest(model=row.name, texts=firsts, text_pairs=seconds)
    response = text_pb2_grpc.TextServiceStub(channel).ScorePairs(request, timeout=PATIENCE_S)
    logits = [outputs(network, encoded(row, *pair)).logits[0] for pair in PAIRS]
    is_raw = row.changes in (RAW, OLD_RAW)
    expected = [(each if is_raw else each.sigmoid()).numpy() for each in logits]
    return _largest([[each.score] for each in response.results], expected)


def of_tokens(row: Row, network: Any, channel: grpc.Channel) -> float:
    """Each token by itself: its place, its label unless that is O, and the probability."""
    labels = LABELS["tokens"]
    differences: list[float] = []
    scores: list[float] = []
    request = reading.ClassifyTokensRequest(
        model=row.name, texts=TEXTS, aggregation=reading.AGGREGATION_NONE
    )
    stub = reading_pb2_grpc.ReadingServiceStub(channel)
    response = stub.ClassifyTokens(request, timeout=PATIENCE_S)
    for sample, result in zip(TEXTS, response.results, strict=True):
        encoding = encoded(row, sample)
        probabilities = outputs(network, encoding).logits[0].softmax(dim=-1).numpy()
        expected = {
            (start, end, labels[of_token.argmax()]): float(of_token.max())
            for (start, end), is_special, of_token in zip(
                map(partial(_without_spaces, sample), encoding.offsets),
                encoding.special_tokens_mask,
                probabilities,
                strict=True,
            )
            if not is_special and of_token.argmax()
        }
        found = {
            (entity.start, entity.end, entity.label): entity.score for entity in result.entities
        }
        differences.append(_largest_by_name(found, expected))
        scores += expected.values()
    assert np.ptp(scores) > LEAST_SPREAD, ALIKE
    return float(np.max(differences))


def of_answers(row: Row, network: Any, channel: grpc.Channel) -> float:
    request = reading.AnswerRequest(
        model=row.name,
        question=QUESTION,
        context=CONTEXT,
        max_answer_tokens=LONGEST_ANSWER,
        must_answer=True,
    )
    stub = reading_pb2_grpc.ReadingServiceStub(channel)
    (found,) = stub.Answer(request, timeout=PATIENCE_S).answers
    encoding = encoded(row, QUESTION, CONTEXT)
    computed = outputs(network, encoding)
    start, end = computed.start_logits[0].numpy(), computed.end_logits[0].numpy()
    places = [place for place, part in enumerate(encoding.sequence_ids) if part == 1]
    spans = {
        (encoding.offsets[first][0], encoding.offsets[last][1]): float(start[first] + end[last])
        for first in places
        for last in places
        if first <= last < first + LONGEST_ANSWER
    }
    best = dict(sorted(spans.items(), key=lambda span: -span[1])[:NUM_BEST])
    total = sum(map(math.exp, best.values())) + math.exp(start[0] + end[0])
    place, logit = next(iter(best.items()))
    expected = {place: math.exp(logit) / total}
    assert np.ptp([start[places], end[places]], axis=1).max() > LEAST_SPREAD, ALIKE
    return _largest_by_name({(found.start, found.end): found.score}, expected)


def of_masks(row: Row, network: Any, channel: grpc.Channel) -> float:
    mask = SPELLINGS[row.spelling].roles["mask_token"]
    masked = [f"a free {mask} is waiting", f"{mask}?"]
    request = reading.FillMaskRequest(model=row.name, texts=masked, top_k=NUM_FILLS)
    response = reading_pb2_grpc.ReadingServiceStub(channel).FillMask(request, timeout=PATIENCE_S)
    differences, best_ids = [], set()
    for sample, result in zip(masked, response.results, strict=True):
        encoding = encoded(row, sample)
        place = encoding.tokens.index(mask)
        best = outputs(network, encoding).logits[0, place].log_softmax(dim=-1).topk(NUM_FILLS)
        expected = dict(zip(best.indices.tolist(), best.values.tolist(), strict=True))
        (filled,) = result.masks
        found = {fill.token_id: fill.logprob for fill in filled.fills}
        differences.append(_largest_by_name(found, expected))
        best_ids.add(tuple(expected))
    assert len(best_ids) > 1, ALIKE
    return float(np.max(differences))


def of_texts(row: Row, network: Any, channel: grpc.Channel) -> float:
    """How far any token that was written is from the likeliest, in logits."""
    params = generation.SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True)
    stub = generation_pb2_grpc.GenerationServiceStub(channel)
    furthest, written = [], set()
    for each in TEXTS:
        request = generation.GenerateRequest(model=row.name, text=each, sampling_params=params)
        (result,) = stub.GenerateUnary(request, timeout=PATIENCE_S).results
        before = [network.config.decoder_start_token_id, *result.token_ids[:-1]]
        with torch.inference_mode():
            logits = network(
                input_ids=torch.tensor([encoded(row, each).ids]),
                decoder_input_ids=torch.tensor([before]),
            ).logits[0]
        chosen = logits[torch.arange(len(before)), torch.tensor(list(result.token_ids))]
        furthest.append(float((logits.max(dim=-1).values - chosen).max()))
        written.add(tuple(result.token_ids))
    assert len(written) > 1, ALIKE
    return float(np.max(furthest))


def of_images(row: Row, network: Any, channel: grpc.Channel) -> float:
    """A wide PNG and a high JPEG of noise."""
    random, files = np.random.default_rng(5), []
    for shape, kind in (((50, 90, 3), "PNG"), ((130, 61, 3), "JPEG")):
        content = BytesIO()
        Image.fromarray(random.integers(0, 256, shape, np.uint8)).save(content, kind)
        files.append(content.getvalue())
    request = vision.ClassifyImageRequest(model=row.name, images=files, all_scores=True)
    stub = vision_pb2_grpc.VisionServiceStub(channel)
    response = stub.ClassifyImage(request, timeout=PATIENCE_S)
    images = [Image.open(BytesIO(file)) for file in files]
    pixels = IMAGE_PROCESSORS[row.kind](images, return_tensors="pt")["pixel_values"]
    with torch.inference_mode():
        expected = network(pixels).logits.softmax(dim=-1).numpy()
    return _largest(_by_label(row, response.results), list(expected))


COMPARISONS: dict[str, Callable[[Row, Any, grpc.Channel], float]] = {
    "embedding": of_embedding,
    "three ways": of_three_ways,
    "terms": of_terms,
    "classes": of_classes,
    "score": of_score,
    "quality": of_classes,
    "tokens": of_tokens,
    "answers": of_answers,
    "masks": of_masks,
    "texts": of_texts,
    "images": of_images,
}
_POOLINGS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    next(iter(MEAN)): lambda hidden: hidden.mean(dim=0),
    next(iter(CLS)): lambda hidden: hidden[0],
    next(iter(LAST)): lambda hidden: hidden[-1],
    "pooling_mode_max_tokens": lambda hidden: hidden.amax(dim=0),
    "pooling_mode_mean_sqrt_len_tokens": lambda hidden: hidden.sum(dim=0) / len(hidden) ** 0.5,
    "pooling_mode_weightedmean_tokens": lambda hidden: (
        torch.arange(1.0, len(hidden) + 1) @ hidden / sum(range(1, len(hidden) + 1))
    ),
}


def _without_spaces(sample: str, offsets: tuple[int, int]) -> tuple[int, int]:
    """The place of a token's text: one of pieces counts the space before it."""
    start, end = offsets
    return end - len(sample[start:end].lstrip()), end


def _scores(row: Row, logits: torch.Tensor) -> np.ndarray:
    if row.changes == MULTI_LABEL:
        return logits.sigmoid().numpy()
    return (logits if row.changes == REGRESSION else logits.softmax(dim=-1)).numpy()


def _by_label(row: Row, results: Any) -> list[list[float]]:
    """The scores of each result in the order of the row's labels."""
    found = [{each.label: each.score for each in result.labels} for result in results]
    return [[scores[label] for label in LABELS[row.head]] for scores in found]


def _largest(found: list[list[float]], expected: list[np.ndarray]) -> float:
    assert np.ptp(expected, axis=0).max() > LEAST_SPREAD, ALIKE
    assert np.shape(found) == np.shape(expected)
    return float(np.abs(np.array(found) - np.array(expected)).max())


def _largest_by_name(found: dict[Any, float], expected: dict[Any, float]) -> float:
    if found.keys() != expected.keys():
        return math.inf
    return float(np.max([0.0, *(abs(found[name] - expected[name]) for name in expected)]))
