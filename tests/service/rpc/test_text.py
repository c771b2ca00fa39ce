"""`attendant.v1.TextService` over the wire: answers, and every way to be refused."""

import asyncio
import base64
import re
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from attendant.v1 import text_pb2 as pb
from grpc import StatusCode
from prometheus_client import generate_latest

from service.api.admission import Admission, Stay, current_stay
from service.api.typed import TypedCalls
from service.calls.tokens import Tokenize
from service.contract.manifest import Example
from service.contract.tensors import Arrays
from service.runtime.pace import MIN_RUNS
from service.serving.generative_model import GenerativeModel
from service.serving.model import Caller
from service.serving.tasks.task import softmax
from service.serving.text_model import TextModel
from service.settings import Settings
from tests.fakes.serving import Served, eventually, refusal, serving, within_patience, write_models
from tests.fakes.sessions import LABELS, SPECIAL, WORDS, classifier_manifest, text_values, token_ids

pytestmark = pytest.mark.asyncio(loop_scope="module")
MAX_TEXTS = 5
SETTINGS = {"max_texts": MAX_TEXTS, "max_queue_requests": 1}
TEXTS = ["win a prize", "", "sorry the cash now later"]
LONG = " ".join(["prize"] * 20)  # 22 tokens where the models take 12


def scores_of(text: str) -> np.ndarray:
    scores: np.ndarray = softmax(text_values(token_ids(text), len(LABELS)))
    return scores


async def test_classify_gives_the_best_label_of_each_text(served: Served) -> None:
    found = await served.text.Classify(pb.ClassifyRequest(model="spam", texts=TEXTS))
    assert (found.model, found.version) == ("spam", "1")
    assert found.num_tokens == sum(len(token_ids(text)) for text in TEXTS)
    assert len(found.results) == len(TEXTS)
    for text, result in zip(TEXTS, found.results, strict=True):
        (label,) = result.labels
        assert label.label == LABELS[int(scores_of(text).argmax())]
        assert label.score == pytest.approx(float(scores_of(text).max()))
        assert result.num_tokens == len(token_ids(text))
        assert not result.is_truncated


@pytest.mark.parametrize(
    ("options", "count"),
    [({}, 1), ({"top_k": 1}, 1), ({"top_k": 2}, 2), ({"top_k": 3}, 3), ({"all_scores": True}, 3)],
)
async def test_labels_come_best_first_and_as_many_as_asked(
    served: Served, options: dict[str, Any], count: int
) -> None:
    request = pb.ClassifyRequest(model="spam", texts=["lunch"], **options)
    (result,) = (await served.text.Classify(request)).results
    scores = scores_of("lunch")
    order = np.argsort(-scores, kind="stable")[:count]
    assert [label.label for label in result.labels] == [LABELS[index] for index in order]
    assert [label.score for label in result.labels] == pytest.approx(scores[order].tolist())


async def test_embed_gives_one_vector_per_text(served: Served) -> None:
    found = await served.text.Embed(pb.EmbedRequest(model="mini", version="1", texts=TEXTS))
    assert (found.model, found.version) == ("mini", "1")
    assert found.num_tokens == sum(len(token_ids(text)) for text in TEXTS)
    for text, result in zip(TEXTS, found.results, strict=True):
        assert list(result.values) == text_values(token_ids(text), 4).tolist()
        assert result.num_tokens == len(token_ids(text))
        assert not result.is_truncated


async def test_timings_add_up(served: Served) -> None:
    """Held for a moment: the wait of the one behind is in its queue time and its total."""
    running = await served.hold("spam")
    call = asyncio.create_task(within_patience(classify(served, "now")))
    await eventually(lambda: served.num_waiting("spam") == 1)
    await asyncio.sleep(0.02)
    served.release("spam")
    timings = (await call).timings
    await within_patience(running)
    assert timings.queue_seconds >= 0.02
    assert timings.compute_seconds > 0
    assert timings.total_seconds >= timings.queue_seconds + timings.compute_seconds


async def classify(served: Served, text: str) -> pb.ClassifyResponse:
    response: pb.ClassifyResponse = await served.text.Classify(
        pb.ClassifyRequest(model="spam", texts=[text])
    )
    return response


async def test_tokenize_shows_pieces_with_their_places(served: Served) -> None:
    """Offsets count code points, special tokens have none; too long is said, not refused."""
    text = "\N{PARTY POPPER} free prize"
    found = await served.text.Tokenize(pb.TokenizeRequest(model="spam", texts=[text, LONG]))
    first, second = found.results
    vocabulary = SPECIAL + WORDS
    assert [token.piece for token in first.tokens] == ["[CLS]", "[UNK]", "free", "prize", "[SEP]"]
    assert [vocabulary[token.id] for token in first.tokens] == [
        token.piece for token in first.tokens
    ]
    assert [(token.start, token.end) for token in first.tokens] == [
        (0, 0),
        (0, 1),
        (2, 6),
        (7, 12),
        (0, 0),
    ]
    assert [token.is_special for token in first.tokens] == [True, False, False, False, True]
    assert [token.is_unknown for token in first.tokens] == [False, True, False, False, False]
    assert not any(token.token_bytes for token in first.tokens), "its tokens are words"
    assert (first.num_tokens, first.is_too_long) == (5, False)
    assert (second.num_tokens, second.is_too_long) == (22, True)
    assert found.num_tokens == 27
    assert (found.model, found.version) == ("spam", "1")
    assert found.timings.total_seconds > 0


async def test_tokenize_works_for_every_text_model(served: Served) -> None:
    found = await served.text.Tokenize(pb.TokenizeRequest(model="mini", texts=["lunch"]))
    assert [token.id for token in found.results[0].tokens] == token_ids("lunch")


@pytest.mark.parametrize("name", ["spam", "tale"])
async def test_many_tokens_are_told_where_they_are_found(served: Served, name: str) -> None:
    """A million of them are a message of 19 MB, and would hold the event loop for 3.6 s."""
    model = served.app.repository.find(name)
    assert isinstance(model, TextModel | GenerativeModel)
    calls = TypedCalls(served.app.repository, Admission(Settings()), 4)

    async def thread_of(text: str) -> str:
        current_stay.set(Stay())
        call = Tokenize(model=name, texts=[text])
        found = await calls.Tokenize(call, Caller(0.0), lambda _: threading.current_thread().name)
        return str(found)

    here = threading.current_thread().name
    assert await thread_of("lunch") == here
    there = await thread_of("lunch " * 1_000)
    assert there.startswith("tokenizer")


async def test_tokenize_never_waits_behind_inference(served: Served) -> None:
    running = await served.hold("spam")
    await served.text.Tokenize(pb.TokenizeRequest(model="spam", texts=["now"]), timeout=5)
    served.release("spam")
    await within_patience(running)


async def test_every_served_model_is_listed_with_what_its_manifest_says(served: Served) -> None:
    listed = await served.text.ListModels(pb.ListModelsRequest())
    mini, simple, spam, strings, tale = listed.models
    assert spam == pb.Model(
        name="spam",
        version="1",
        task="text-classification",
        precision="fp32",
        max_tokens=12,
        labels=LABELS,
        score_function="softmax",
        example=classifier_manifest().example,
        examples=[pb.Example(text=classifier_manifest().example)],  # it has no others
        max_batch_size=64,
        vocabulary_size=len(SPECIAL + WORDS),
    )
    assert (mini.task, mini.embedding_size, mini.pooling) == ("embedding", 4, "mean, normalised")
    assert mini.origin == "here"
    assert simple == pb.Model(name="simple", version="1", task="tensors", max_batch_size=8)
    assert (strings.name, tale.name) == ("strings", "tale")


async def test_the_examples_of_a_manifest_are_listed(tmp_path: Path) -> None:
    """At most 32 of them, each with its second part."""
    image = Example("a cat", image=base64.b64encode(b"content").decode())
    texts = (Example(f"text {n}") for n in range(40))
    examples = (Example("Where?", context="Here."), image, *texts)
    write_models(tmp_path)
    manifest = classifier_manifest(examples=examples)
    (tmp_path / "spam/1/manifest.json").write_text(manifest.to_json(), encoding="utf-8")
    async with serving(tmp_path) as served:
        listed = await served.text.ListModels(pb.ListModelsRequest())
    (model,) = (each for each in listed.models if each.name == "spam")
    assert listed.max_texts == Settings().max_texts
    assert model.examples[0] == pb.Example(text="Where?", context="Here.")
    assert model.examples[1] == pb.Example(text="a cat", image=b"content")
    assert len(model.examples) == 32


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"top_k": 1, "all_scores": True}, "top_k is 1 and all_scores is set: give one of them"),
        ({"top_k": 4}, "top_k is 4, the model has 3 labels"),
    ],
)
async def test_a_request_that_cannot_succeed_says_why(
    served: Served, fields: dict[str, Any], text: str
) -> None:
    request = pb.ClassifyRequest(model="spam", texts=["lunch"], **fields)
    assert await refusal(served.text.Classify(request)) == (StatusCode.INVALID_ARGUMENT, text)
    assert served.sessions["spam"].batches == []


@pytest.mark.parametrize("is_typed", [True, False])
async def test_a_request_that_cannot_be_answered_in_time_is_refused_at_once_by_both_apis(
    models: Path, is_typed: bool
) -> None:
    """Runs of 0.4 s are learned; one runs and one waits when one comes that has 0.3 s."""
    async with serving(models) as served:
        session = served.sessions["spam"]
        compute = session.compute

        def compute_slowly(inputs: Arrays) -> dict[str, np.ndarray]:
            time.sleep(0.4)
            return compute(inputs)

        session.compute = compute_slowly
        for _ in range(MIN_RUNS):
            await classify(served, "now")
        running = await served.hold("spam")
        waiting = asyncio.create_task(classify(served, "now"))
        await eventually(lambda: served.num_waiting("spam") == 1)
        asked = pb.ClassifyRequest(model="spam", texts=["free"])
        refused = (
            served.text.Classify(asked, timeout=0.3)
            if is_typed
            else served.infer_text("spam", "free", timeout=0.3)
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await refused
        served.release("spam")
        await within_patience(asyncio.gather(running, waiting))
        assert caught.value.code() is StatusCode.DEADLINE_EXCEEDED
        text = r"The deadline is too early: the answer is expected in \d\.\d+ s, 0\.\d+ s are left"
        assert re.fullmatch(text, caught.value.details() or "")
        trailers = dict(caught.value.trailing_metadata() or ())
        assert int(trailers["grpc-retry-pushback-ms"]) >= 100
        page = generate_latest(served.app._metrics.registry).decode()
        name = 'attendant_requests_refused_total{model="spam",reason="deadline",version="1"} 1.0'
        assert name in page


async def test_texts_of_one_request_share_a_batch(served: Served) -> None:
    """Five texts, one run: rows in the batch by length, results in the request's order."""
    texts = ["now", "a prize", "lunch later", "win", "the cash"]
    found = await served.text.Embed(pb.EmbedRequest(model="mini", texts=texts))
    assert [len(batch["input_ids"]) for batch in served.sessions["mini"].batches] == [5]
    for text, result in zip(texts, found.results, strict=True):
        assert list(result.values) == text_values(token_ids(text), 4).tolist()


@pytest.mark.parametrize("name", ["spam", "tale"])
async def test_tokens_are_the_text_again(served: Served, name: str) -> None:
    """Special tokens of the text classifier are left out on request, and else spelled."""
    plain = pb.TokenizeRequest(model=name, texts=["free lunch"], omit_special_tokens=True)
    (found,) = (await served.text.Tokenize(plain)).results
    ids = [token.id for token in found.tokens]
    answer = await served.text.Detokenize(pb.DetokenizeRequest(model=name, token_ids=ids))
    assert (answer.model, answer.version, answer.text) == (name, "1", "free lunch")
    in_bytes = b"".join(token.token_bytes for token in found.tokens)
    assert in_bytes == (b"free lunch" if name == "tale" else b"")
    if name == "spam":
        whole = await served.text.Tokenize(pb.TokenizeRequest(model=name, texts=["free lunch"]))
        ids = [token.id for token in whole.results[0].tokens]
        answer = await served.text.Detokenize(pb.DetokenizeRequest(model=name, token_ids=ids))
        assert answer.text == "[CLS] free lunch [SEP]"


async def test_tokens_that_no_vocabulary_has_are_refused(served: Served) -> None:
    request = pb.DetokenizeRequest(model="spam", token_ids=[1, 10**6])
    code, text = await refusal(served.text.Detokenize(request))
    assert code is StatusCode.INVALID_ARGUMENT
    assert text == "token_ids has 1000000, which the vocabulary lacks"
