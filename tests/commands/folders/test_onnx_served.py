"""`attendant serve FOLDER` of ready-made graphs: every task over HTTP, with the graph's numbers."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from commands.ask.client.client import Client
from service.calls.images import ClassifyImage
from service.calls.reading import Answer, ClassifyTokens, FillMask
from service.calls.texts import Classify, Embed, ScorePairs
from service.serving.tasks.task import sigmoid, softmax
from tests.commands.folders.serving import started
from tests.fakes.onnx_folders import CLASSES, image_folder, onnx_folder, run_alone

PATIENCE_S = 240
GRAPHS = {"token-classification": "model.onnx"}  # others are in onnx/
IMAGES = "image-classification"
TEXTS = ["win the prize now", "lunch", "sorry later home a free cash"]
CLOSE = 1e-5


@contextmanager
def serving(*line: object) -> Iterator[tuple[Client, list[str]]]:
    """A client of `attendant serve` over HTTP, and what it printed before it served."""
    with started(*line) as (address, lines), Client(address, PATIENCE_S) as client:
        yield client, lines


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of each task, by its name."""
    root = tmp_path_factory.mktemp("graphs")
    for task in CLASSES:
        onnx_folder(root / task, task, graph=GRAPHS.get(task, "onnx/model.onnx"))
    image_folder(root / IMAGES)
    return root


@pytest.fixture(scope="module")
def client(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a server of all of them, at its second start."""
    cache = tmp_path_factory.mktemp("cache")
    line = [*(folders / task for task in (*CLASSES, IMAGES)), "--folder-cache", cache]
    with serving(*line) as (_, first):
        pass
    assert sum("compared with its own graph as it was" in each for each in first) == 7
    with serving(*line) as (second, log):
        yield second
    assert sum("kept from an earlier start" in each for each in log) == 7


def graph_of(task: str) -> str:
    return GRAPHS.get(task, "onnx/model.onnx")


def test_texts_have_the_graphs_scores(client: Client, folders: Path) -> None:
    task = "text-classification"
    results = client.ask(Classify(task, texts=TEXTS, all_scores=True)).results
    for text, result in zip(TEXTS, results, strict=True):
        (logits,) = run_alone(folders / task, graph_of(task), text)
        scores = {each.label: each.score for each in result.labels}
        assert [scores[f"LABEL_{n}"] for n in range(3)] == pytest.approx(
            softmax(logits)[0].tolist(), abs=CLOSE
        )


def test_pairs_have_the_graphs_scores(client: Client, folders: Path) -> None:
    task, others = "pair-scoring", TEXTS[::-1]
    results = client.ask(ScorePairs(task, texts=TEXTS, text_pairs=others)).results
    for *pair, result in zip(TEXTS, others, results, strict=True):
        (logits,) = run_alone(folders / task, graph_of(task), *pair)
        assert result.score == pytest.approx(float(sigmoid(logits)[0, 0]), abs=CLOSE)


def test_vectors_are_the_mean_of_the_graphs_states(client: Client, folders: Path) -> None:
    task = "embedding"
    results = client.ask(Embed(task, texts=TEXTS)).results
    for text, result in zip(TEXTS, results, strict=True):
        (states,) = run_alone(folders / task, graph_of(task), text)
        assert np.array(result.numbers) == pytest.approx(states[0].mean(axis=0), abs=CLOSE)


def test_tokens_have_the_graphs_labels(client: Client, folders: Path) -> None:
    task = "token-classification"
    results = client.ask(ClassifyTokens(task, texts=TEXTS, aggregation="none")).results
    for text, result in zip(TEXTS, results, strict=True):
        (logits,) = run_alone(folders / task, graph_of(task), text)
        scores = softmax(logits)[0, 1:-1]
        found = [(each.label, each.score) for each in result.entities]
        assert [label for label, _ in found] == [f"LABEL_{n}" for n in scores.argmax(axis=1)]
        assert [score for _, score in found] == pytest.approx(scores.max(axis=1), abs=CLOSE)


def test_answers_are_those_of_the_graphs_two_outputs(client: Client, folders: Path) -> None:
    task, question, context = "question-answering", "a prize", "win free cash now"
    found = client.ask(Answer(task, question=question, context=context, must_answer=True))
    start, end = (each[0] for each in run_alone(folders / task, graph_of(task), question, context))
    spans = {(i, j): start[i] + end[j] for i in range(4, 8) for j in range(i, 8)}
    first, last = max(spans, key=spans.__getitem__)
    assert found.answers[0].text == " ".join(context.split()[first - 4 : last - 3])
    scores = softmax(np.array([*spans.values(), start[0] + end[0]], np.float32))
    assert found.answers[0].score == pytest.approx(float(scores[:-1].max()), abs=CLOSE)


def test_masks_have_the_graphs_words(client: Client, folders: Path) -> None:
    task, text = "fill-mask", "win the [MASK] now"
    (result,) = client.ask(FillMask(task, texts=[text], top_k=3)).results
    (logits,) = run_alone(folders / task, graph_of(task), text)
    scores = softmax(logits)[0, 3]
    fills = result.masks[0].fills
    assert fills[0].score == pytest.approx(float(scores[fills[0].token_id]), abs=CLOSE)
    assert [each.token_id for each in fills] == scores.argsort()[::-1][:3].tolist()


def test_images_have_the_graphs_scores(client: Client, folders: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (8, 8, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    (result,) = client.ask(ClassifyImage(IMAGES, images=[file.getvalue()], all_scores=True)).results
    session = onnxruntime.InferenceSession(folders / IMAGES / "model.onnx")
    given = ((pixels / 255 - 0.5) / 0.5).astype(np.float32).transpose(2, 0, 1)[None]
    (logits,) = session.run(None, {"pixel_values": given})
    scores = {each.label: each.score for each in result.labels}
    assert [scores[f"LABEL_{n}"] for n in range(3)] == pytest.approx(
        softmax(logits)[0].tolist(), abs=CLOSE
    )
