"""`ReadingService` over the wire: entities, answers, pairs, and every way to be refused."""

import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attendant.v1 import reading_pb2 as pb
from attendant.v1 import reading_pb2_grpc, text_pb2
from grpc import StatusCode
from tokenizers import Tokenizer
from typer.testing import CliRunner

from commands.main import app
from models.data.questions import Question, QuestionDataset
from models.recipes.answering import window_questions
from service.calls.reading import Entity
from service.contract.tensors import strings_from_raw
from service.errors import InvalidArgument, SettingError
from service.serving.tasks import entities as entities_task
from service.serving.tasks.task import TextReply, TextTaskModel
from service.serving.text_model import TextModel
from service.text import tokenizer as tokenizers
from service.text.tokenizer import Text, WindowTokenizer
from tests.fakes.command_line import run
from tests.fakes.every_task import every_task
from tests.fakes.serving import Served, inference, refusal, strings_of
from tests.fakes.sessions import (
    LAST_ID,
    PAD_ID,
    token_ids,
    write_tokenizer,
)
from tests.fakes.tasks import (
    MAX_TOKENS,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
MAX_TEXTS, MAX_CHARACTERS = 3, 1_000
SERVE, SETTINGS = every_task, {"max_texts": MAX_TEXTS}


@pytest.fixture
def reading(served: Served) -> Any:
    return reading_pb2_grpc.ReadingServiceStub(served.channel)


TEXTS = ["the win prize", "sorry", "😀 win, now a prize"]


async def test_entities_come_with_their_characters_text_by_text(reading: Any) -> None:
    """A comma is a word of its own; offsets count code points."""
    found = await reading.ClassifyTokens(pb.ClassifyTokensRequest(model="tags", texts=TEXTS))
    assert (found.model, found.version) == ("tags", "1")
    assert found.num_tokens == sum(result.num_tokens for result in found.results)
    assert [[(e.label, e.text, e.start, e.end) for e in r.entities] for r in found.results] == [
        [("prize", "win prize", 4, 13)],
        [],
        [("prize", "win", 2, 5), ("prize", "prize", 13, 18)],
    ]
    assert found.results[0].num_tokens == 5
    assert all(0.9 < e.score <= 1 for r in found.results for e in r.entities)
    assert not found.results[0].is_truncated


async def test_the_texts_of_a_request_share_a_batch_and_keep_their_rows(
    reading: Any, served: Served
) -> None:
    texts = ["win", "the the the win prize", "now"]
    found = await reading.ClassifyTokens(pb.ClassifyTokensRequest(model="tags", texts=texts))
    assert [[e.text for e in r.entities] for r in found.results] == [["win"], ["win prize"], []]
    (batch,) = served.sessions["tags"].batches
    assert batch["input_ids"].shape == (3, 7)


async def test_many_tokens_are_read_beside_the_event_loop(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = served.app.repository.find("tags")
    assert isinstance(model, TextModel)
    where = []

    def found(
        _: TextTaskModel, texts: Sequence[Text], __: TextReply, ___: str
    ) -> list[list[Entity]]:
        where.append(threading.current_thread() is threading.main_thread())
        return [[] for _ in texts]

    monkeypatch.setattr(entities_task, "_entities_by_text", found)
    reading = reading_pb2_grpc.ReadingServiceStub(served.channel)
    for inline_rows in (15, 14):
        monkeypatch.setattr(model, "task", replace(model.task, inline_rows=inline_rows))
        await reading.ClassifyTokens(pb.ClassifyTokensRequest(model="tags", texts=["now a a"] * 3))
    assert where == [True, False], "three texts of five tokens"


async def test_entities_are_joined_as_the_request_says(reading: Any) -> None:
    expected = {
        pb.AGGREGATION_NONE: [("B-prize", 0, 3), ("I-prize", 4, 9)],
        pb.AGGREGATION_SIMPLE: [("prize", 0, 9)],
        pb.AGGREGATION_MAX: [("prize", 0, 9)],
        pb.AGGREGATION_AVERAGE: [("prize", 0, 9)],
    }
    for aggregation, entities in expected.items():
        request = pb.ClassifyTokensRequest(
            model="tags", texts=["win prize"], aggregation=aggregation
        )
        (result,) = (await reading.ClassifyTokens(request)).results
        assert [(each.label, each.start, each.end) for each in result.entities] == entities


async def test_a_cut_text_has_the_entities_that_are_left(reading: Any) -> None:
    text = "win " + "now " * MAX_TOKENS + "win"
    request = pb.ClassifyTokensRequest(model="tags", texts=[text], truncate=True)
    (result,) = (await reading.ClassifyTokens(request)).results
    assert result.is_truncated
    assert [(e.start, e.end) for e in result.entities] == [(0, 3)]


async def test_an_answer_has_its_characters_and_a_probability(reading: Any) -> None:
    context = "😀 sorry, free lunch cash now"
    request = pb.AnswerRequest(model="asks", question="the prize", context=context)
    found = await reading.Answer(request)
    (answer,) = found.answers
    assert (answer.text, answer.start, answer.end) == ("free lunch cash", 9, 24)
    assert answer.text == context[answer.start : answer.end]
    assert answer.score > 0.9
    assert answer.score + found.no_answer_score <= 1.0
    assert found.num_windows == 1
    assert found.num_tokens == 2 + 7 + 3


async def test_no_answer_is_given_where_none_is_the_more_likely(reading: Any) -> None:
    request = pb.AnswerRequest(model="asks", question="win", context="lunch now")
    found = await reading.Answer(request)
    assert list(found.answers) == []
    assert found.no_answer_score > 0.9
    request.must_answer = True
    found = await reading.Answer(request)
    assert len(found.answers) == 1


async def test_a_long_context_is_read_in_windows(reading: Any, served: Served) -> None:
    """16 of 20 tokens are left of a window, 8 of them shared: each is an item of its own."""
    context = "now " * 40 + "free cash " + "later " * 20
    request = pb.AnswerRequest(model="asks", question="win", context=context)
    found = await reading.Answer(request)
    (answer,) = found.answers
    assert (answer.text, answer.start) == ("free cash", 160)
    assert found.num_windows == len(found.windows) == 7
    assert (found.windows[0].start, found.windows[-1].end) == (0, len(context.rstrip()))
    for window, following in zip(found.windows, found.windows[1:], strict=False):
        assert window.start < following.start < window.end < following.end, "they overlap"
    assert sum(len(batch["input_ids"]) for batch in served.sessions["asks"].batches) == 7


async def test_answers_are_as_long_and_as_many_as_asked(reading: Any) -> None:
    context = "free lunch cash and free cash"
    request = pb.AnswerRequest(model="asks", question="win", context=context, top_k=2)
    found = await reading.Answer(request)
    assert len(found.answers) == 2
    assert found.answers[0].score >= found.answers[1].score
    request.max_answer_tokens = 2
    request.top_k = 1
    found = await reading.Answer(request)
    assert [answer.text for answer in found.answers] == ["free cash"]


def tags(**fields: Any) -> tuple[str, Any]:
    return "ClassifyTokens", pb.ClassifyTokensRequest(**{"model": "tags", **fields})


def asks(**fields: Any) -> tuple[str, Any]:
    defaults = {"model": "asks", "question": "win", "context": "free cash"}
    return "Answer", pb.AnswerRequest(**{**defaults, **fields})


INVALID = StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("call", "code", "message"),
    [
        (asks(question=""), INVALID, "question 0 is empty"),
        (asks(context=" \n"), INVALID, "context 0 is empty"),
        (
            asks(question="now " * 10),
            INVALID,
            "question 0 has 10 tokens, the model takes at most 9",
        ),
        (asks(context="x" * 1_000), INVALID, "text 0 has 1003 characters, the server takes at"),
        (asks(top_k=21), INVALID, "top_k is 21, expected at most 20"),
        (asks(max_answer_tokens=21), INVALID, "max_answer_tokens is 21, the model takes 20"),
    ],
)
async def test_what_cannot_be_read_is_refused(
    reading: Any, call: tuple[str, Any], code: StatusCode, message: str
) -> None:
    method, request = call
    found, text = await refusal(getattr(reading, method)(request))
    assert found == code
    assert message in text


async def test_more_windows_than_the_bound_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizers, "MAX_WINDOWS", 2)
    write_tokenizer(tmp_path / "tokenizer.json")
    tokenizer = WindowTokenizer(tmp_path / "tokenizer.json", 12, 1_000, has_encodings=True)
    assert len(tokenizer.encode([("win", "now " * 12)], can_truncate=False)) == 2
    with pytest.raises(InvalidArgument, match="context 0 takes 3 windows, the server reads 2"):
        tokenizer.encode([("win", "now " * 13)], can_truncate=False)
    with pytest.raises(
        InvalidArgument, match=r"context 1 takes 1 windows.* those before it take 2"
    ):
        tokenizer.encode([("win", "now " * 12), ("win", "now")], can_truncate=False)


@pytest.mark.parametrize("num_words", [1, 16, 17, 24, 25, 60])
async def test_windows_are_those_that_were_learnt_from(tmp_path: Path, num_words: int) -> None:
    write_tokenizer(tmp_path / "tokenizer.json")
    context = " ".join(["now", "free", "cash", "later", "the"] * num_words).split()[:num_words]
    asked = Question(1, "win", " ".join(context), ())
    library = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    learnt = window_questions(QuestionDataset("a", (asked,)), (), library, MAX_TOKENS, PAD_ID)
    served = WindowTokenizer(tmp_path / "tokenizer.json", MAX_TOKENS, 1_000, has_encodings=True)
    rows = served.encode([(asked.question, asked.context)], can_truncate=False)
    assert [row.input_ids[0].tolist() for row in rows] == [list(w.ids) for w in learnt.windows]
    assert [row.token_type_ids[0].tolist() for row in rows] == [
        list(window.type_ids) for window in learnt.windows
    ]


# The Open Inference Protocol.


async def test_entities_are_json_in_the_inference_protocol(served: Served) -> None:
    found = await served.inference.ModelInfer(inference("tags", text=TEXTS))
    assert [(out.name, out.datatype, list(out.shape)) for out in found.outputs] == [
        ("entities", "BYTES", [3, 1])
    ]
    first, second, third = map(json.loads, strings_of(found))
    assert [(e["label"], e["text"], e["start"], e["end"]) for e in first] == [
        ("prize", "win prize", 4, 13)
    ]
    assert second == []
    assert [e["start"] for e in third] == [2, 13]


async def test_a_command_reads_more_lines_than_the_server_takes_at_once(served: Served) -> None:
    """Ten, where this server takes three texts in a request."""
    result = await run(served, "classify-tokens", "tags", "-", "--json", stdin="win prize\n" * 10)
    results = json.loads(result.stdout)["results"]
    assert [each["line"] for each in results] == [*range(1, 11)]
    assert all(len(each["entities"]) == 1 for each in results)


async def test_answers_are_tensors_in_the_inference_protocol(served: Served) -> None:
    """The second context takes two windows, and the third has no answer."""
    contexts = ["a free cash", "now " * 20 + "free cash", "lunch"]
    found = await served.inference.ModelInfer(
        inference("asks", question=["win"] * 3, context=contexts)
    )
    raw = dict(zip((out.name for out in found.outputs), found.raw_output_contents, strict=True))
    assert strings_from_raw(raw["answer"], 3, "answer", "asks") == [b"free cash"] * 2 + [b""]
    assert np.frombuffer(raw["start"], "<i4").tolist() == [2, 80, 0]
    assert np.frombuffer(raw["end"], "<i4").tolist() == [11, 89, 0]
    assert (np.frombuffer(raw["score"], "<f4") > 0.9).all()


# Pairs.


async def test_a_context_that_is_no_text_is_refused_by_the_command(tmp_path: Path) -> None:
    context = tmp_path / "context.txt"
    context.write_bytes(b"\xff")
    result = CliRunner().invoke(app, ["answer", "spans", "who?", "--context", str(context)])
    assert isinstance(result.exception, SettingError)
    assert f"--context '{context}' cannot be read" in str(result.exception)


@pytest.mark.parametrize("given", ["typo.txt", "./notes", "data/context.md", "..\\\\c.text"])
async def test_a_context_that_looks_like_a_missing_file_is_refused_by_the_command(
    given: str,
) -> None:
    """Its name is no text to find answers in; the error says how such characters are passed."""
    result = CliRunner().invoke(app, ["answer", "spans", "who?", "--context", given])
    assert isinstance(result.exception, SettingError)
    assert f"--context '{given}' looks like a file's name" in str(result.exception)
    assert "--context @-" in str(result.exception)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "neither is given, expected --context TEXT or --context-file FILE"),
        (("--context", "a", "--context-file", "b"), "both are given"),
        (("--context", "@nowhere"), "--context 'nowhere' cannot be read"),
        (("--context", "@alice says no"), "a text that begins with '@' is piped to --context @-"),
        (("--context-file", "nowhere"), "--context 'nowhere' cannot be read"),
    ],
)
async def test_a_context_that_cannot_be_read_is_refused_by_the_command(
    flags: tuple[str, ...], message: str
) -> None:
    result = CliRunner().invoke(app, ["answer", "spans", "who?", *flags])
    assert isinstance(result.exception, SettingError)
    assert message in str(result.exception)


async def test_a_context_is_given_as_text_as_file_or_piped(served: Served, tmp_path: Path) -> None:

    file = tmp_path / "context.txt"
    file.write_text("free cash")
    for flags in (
        ("--context", "free cash"),
        ("--context", f"@{file}"),
        ("--context-file", str(file)),
        ("--context", "@-"),
        ("--context-file", "-"),
    ):
        result = await run(served, "answer", "asks", "win", *flags, "--json", stdin="free cash")
        assert json.loads(result.stdout)["answers"][0]["text"] == "free cash", flags


async def test_pairs_are_classified_together(served: Served) -> None:
    """Both calls read [CLS] win prize [SEP] now [SEP]."""
    await served.text.Classify(
        text_pb2.ClassifyRequest(model="spam", texts=["win prize"], text_pairs=["now"])
    )
    await served.inference.ModelInfer(inference("spam", text=["win prize"], text_pair=["now"]))
    expected = [*token_ids("win prize"), *token_ids("now")[1:]]
    assert expected.count(LAST_ID) == 2
    for batch in served.sessions["spam"].batches:
        assert batch["input_ids"].tolist() == [expected]
    assert len(served.sessions["spam"].batches) == 2


async def test_a_long_pair_is_cut_where_asked(served: Served) -> None:
    request = text_pb2.ClassifyRequest(model="spam", texts=["win"], text_pairs=["now " * 20])
    code, message = await refusal(served.text.Classify(request))
    assert (code, "text 0 has 24 tokens" in message) == (INVALID, True)
    request.truncate = True
    (result,) = (await served.text.Classify(request)).results
    assert (result.num_tokens, result.is_truncated) == (12, True)


async def test_each_text_of_pairs_has_a_second(served: Served) -> None:
    request = text_pb2.ClassifyRequest(model="spam", texts=["a", "a"], text_pairs=["a"])
    code, message = await refusal(served.text.Classify(request))
    assert code == INVALID
    assert message == "text_pairs has 1 elements, expected none, or 2 as texts has"


@pytest.mark.parametrize(
    "inputs",
    [
        {"model": "spam", "text": ["a", "a"], "text_pair": ["a"]},
        {"model": "asks", "question": ["a"], "context": ["a", "a"]},
        {"model": "asks", "question": ["a"]},
        {"model": "asks", "question": [""], "context": ["a"]},
    ],
)
async def test_tensors_that_do_not_fit_together_are_refused(
    served: Served, inputs: dict[str, Any]
) -> None:
    code, _ = await refusal(served.inference.ModelInfer(inference(**inputs)))
    assert code == INVALID
