"""Masks filled over the wire: the typed call, tensors, the command, and all ways to be refused."""

import asyncio
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attendant.v1 import reading_pb2 as pb
from attendant.v1 import reading_pb2_grpc, text_pb2
from grpc import StatusCode

from commands.ask.trials import try_models
from service.errors import SettingError
from service.serving.tasks import fill_mask
from tests.fakes.command_line import run
from tests.fakes.every_task import every_task
from tests.fakes.serving import Served, refusal, strings_of, text_request
from tests.fakes.sessions import (
    WORDS,
    token_ids,
)
from tests.fakes.tasks import (
    MASK_ID,
    MAX_TOKENS,
    NUM_TOKENS,
    logits_at,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
SERVE = every_task


def expected(text: str, top_k: int) -> list[list[tuple[str, float]]]:
    """Words and probabilities by hand, for each mask of a text."""
    ids = np.array([MASK_ID if i == 1 and w == "[MASK]" else i for i, w in ids_of(text)])
    found = []
    for place in np.flatnonzero(ids == MASK_ID):
        logits = logits_at(ids, int(place)).tolist()
        total = sum(map(math.exp, logits))
        best = sorted(range(NUM_TOKENS), key=lambda i: (-logits[i], i))[:top_k]
        spelt = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, "[MASK]")
        found.append([(spelt[i], math.exp(logits[i]) / total) for i in best])
    return found


def ids_of(text: str) -> Iterator[tuple[int, str]]:
    """Ids, which do not know the mask, and the words that they are of."""
    return zip(token_ids(text), ["", *text.split(), ""], strict=True)


@pytest.fixture
def reading(served: Served) -> Any:
    return reading_pb2_grpc.ReadingServiceStub(served.channel)


async def test_the_list_of_models_has_the_mask_as_the_vocabulary_spells_it(
    served: Served,
) -> None:
    listed = await served.text.ListModels(text_pb2.ListModelsRequest())
    masks = {model.name: model.mask_token for model in listed.models}
    assert masks["fills"] == "[MASK]"
    assert masks["spam"] == ""


def request(*texts: str, **fields: Any) -> pb.FillMaskRequest:
    return pb.FillMaskRequest(model="fills", texts=texts, **fields)


async def test_masks_are_filled_text_by_text_in_one_batch(reading: Any, served: Served) -> None:
    """Several masks in a text, and texts with different numbers of them."""
    texts = ["win the [MASK]", "[MASK] lunch [MASK] now the", "a free [MASK] later"]
    found = await reading.FillMask(request(*texts, top_k=3))
    assert (found.model, found.version) == ("fills", "1")
    assert [len(result.masks) for result in found.results] == [1, 2, 1]
    for text, result in zip(texts, found.results, strict=True):
        places = [(mask.start, mask.end) for mask in result.masks]
        assert all(text[start:end] == "[MASK]" for start, end in places)
        assert places == sorted(set(places))
        for mask, best in zip(result.masks, expected(text, 3), strict=True):
            assert [fill.token for fill in mask.fills] == [word for word, _ in best]
            assert [fill.score for fill in mask.fills] == pytest.approx([p for _, p in best])
            assert all(math.exp(f.logprob) == pytest.approx(f.score) for f in mask.fills)
            assert [fill.score for fill in mask.fills] == sorted(
                (fill.score for fill in mask.fills), reverse=True
            )
    assert found.num_tokens == sum(result.num_tokens for result in found.results) == 5 + 7 + 6
    (batch,) = served.sessions["fills"].batches
    assert batch["input_ids"].shape == (3, 7)


async def test_five_fills_come_by_default(reading: Any) -> None:
    (result,) = (await reading.FillMask(request("win the [MASK]"))).results
    assert len(result.masks[0].fills) == 5
    (result,) = (await reading.FillMask(request("win the [MASK]", top_k=NUM_TOKENS))).results
    assert sum(fill.score for fill in result.masks[0].fills) == pytest.approx(1.0)


async def test_candidates_alone_are_scored_as_among_all(reading: Any) -> None:
    text = "win the [MASK]"
    (all_fills,) = expected(text, NUM_TOKENS)
    chances = dict(all_fills)
    wanted = ["cash", "home", "lunch", "cash"]
    (result,) = (await reading.FillMask(request(text, candidates=wanted))).results
    found = [(fill.token, fill.score) for fill in result.masks[0].fills]
    assert [token for token, _ in found] == [w for w, _ in all_fills if w in wanted]
    assert dict(found) == pytest.approx({word: chances[word] for word in set(wanted)})


async def test_a_cut_text_has_the_masks_that_are_left(reading: Any) -> None:
    text = "the [MASK] " + "now " * MAX_TOKENS + "[MASK]"
    (result,) = (await reading.FillMask(request(text, truncate=True))).results
    assert result.is_truncated
    assert [(mask.start, mask.end) for mask in result.masks] == [(4, 10)]


REFUSED = {
    "no mask": ({"texts": ["a [MASK]", "the cash"]}, "text 1 has 0 [MASK], expected 1 to 16"),
    "the mask is cut off": (
        {"texts": ["now " * MAX_TOKENS + "[MASK]"], "truncate": True},
        "text 0 has 0 [MASK] in the part that was kept, expected 1 to 16",
    ),
    "too many masks": ({"texts": ["[MASK] " * 17]}, "text 0 has 17 [MASK], expected 1 to 16"),
    "too many masks in all": (
        {"texts": ["[MASK] " * 16] * 5},
        "the texts have 80 masks in all, expected at most 64",
    ),
    "more fills than words": (
        {"texts": ["[MASK]"], "top_k": NUM_TOKENS + 1},
        f"top_k is {NUM_TOKENS + 1}, the model has {NUM_TOKENS} tokens",
    ),
    "both": (
        {"texts": ["[MASK]"], "top_k": 2, "candidates": ["cash"]},
        "top_k is 2 and candidates are given: give one of them",
    ),
    "an unknown word": (
        {"texts": ["[MASK]"], "candidates": ["cash", "cattle"]},
        "candidate 'cattle' is no token of the vocabulary: its tokens are none",
    ),
    "too many candidates": (
        {"texts": ["[MASK]"], "candidates": ["cash"] * 2_049},
        "candidates are more than 2048, which is the limit",
    ),
    "a candidate as long as a book": (
        {"texts": ["[MASK]"], "candidates": ["cash", "free " * 100_000]},
        "a candidate has 500000 characters, the server takes at most 256",
    ),
    "two words": (
        {"texts": ["[MASK]"], "candidates": ["free cash"]},
        "candidate 'free cash' is no token of the vocabulary: its tokens are free, cash",
    ),
}


@pytest.mark.parametrize(("fields", "message"), REFUSED.values(), ids=REFUSED)
async def test_what_cannot_be_filled_is_refused_by_name(
    reading: Any, served: Served, fields: dict[str, Any], message: str
) -> None:
    """Before anything runs."""
    asked = pb.FillMaskRequest(model="fills", **fields)
    assert await refusal(reading.FillMask(asked)) == (StatusCode.INVALID_ARGUMENT, message)
    assert served.sessions["fills"].batches == []


async def test_an_answer_has_bounds(reading: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fill_mask, "MAX_FILLS_OF_REQUEST", 7)
    code, message = await refusal(reading.FillMask(request("[MASK] a [MASK]", top_k=4)))
    assert code == StatusCode.INVALID_ARGUMENT
    assert message == "2 masks with 4 fills each are 8, an answer has at most 7"


async def test_tensors_ask_the_same(reading: Any, served: Served) -> None:
    """JSON for each text; request parameters say how many fills, or which."""
    texts = ("win the [MASK]", "[MASK] lunch [MASK]")
    asked = text_request("fills", *texts)
    asked.parameters["top_k"].int64_param = 2
    reply = await served.inference.ModelInfer(asked)
    (output,) = reply.outputs
    assert (output.name, output.datatype, list(output.shape)) == ("fills", "BYTES", [2, 1])
    results = (await reading.FillMask(request(*texts, top_k=2))).results
    for found, result in zip(map(json.loads, strings_of(reply)), results, strict=True):
        assert [mask["start"] for mask in found] == [mask.start for mask in result.masks]
        for ours, theirs in zip(found, result.masks, strict=True):
            assert [f["token"] for f in ours["fills"]] == [f.token for f in theirs.fills]
            assert [f["logprob"] for f in ours["fills"]] == pytest.approx(
                [f.logprob for f in theirs.fills], abs=1e-5
            )
    del asked.parameters["top_k"]
    asked.parameters["candidates"].string_param = "cash home"
    (found, _) = map(json.loads, strings_of(await served.inference.ModelInfer(asked)))
    assert {fill["token"] for fill in found[0]["fills"]} == {"cash", "home"}
    asked.parameters["top_k"].string_param = "two"
    code, message = await refusal(served.inference.ModelInfer(asked))
    assert (code, message) == (
        StatusCode.INVALID_ARGUMENT,
        "the parameter top_k is 'two', expected a whole number",
    )


async def test_the_command_shows_fills_by_text(served: Served) -> None:
    result = await run(
        served, "fill-mask", "fills", "win the [MASK]", "[MASK] lunch", "--top-k", "2"
    )
    assert result.exit_code == 0, result.output
    for text in ("win the [MASK]", "[MASK] lunch"):
        ((first, second),) = expected(text, 2)
        assert f"{first[0]} {first[1]:.4f}  {second[0]} {second[1]:.4f}" in result.stdout
    shown = await run(
        served, "fill-mask", "fills", "win the [MASK]", "--json", "--candidate", "cash"
    )
    (found,) = json.loads(shown.stdout)["results"]
    assert [fill["token"] for fill in found["masks"][0]["fills"]] == ["cash"]


async def test_two_prompts_are_compared_word_by_word(served: Served, tmp_path: Path) -> None:
    """All words that either makes likely, with both log-likelihoods, by their difference."""
    prompts = "win the [MASK]", "win a [MASK]"
    picture = tmp_path / "words.png"
    result = await run(
        served,
        "fill-mask",
        "fills",
        prompts[0],
        "--against",
        prompts[1],
        "--top-k",
        "3",
        "--plot",
        str(picture),
    )
    assert result.exit_code == 0, result.output
    chances = [
        {word: math.log(chance) for word, chance in expected(prompt, NUM_TOKENS)[0]}
        for prompt in prompts
    ]
    words = {word for prompt in prompts for word, _ in expected(prompt, 3)[0]}
    ranked = sorted(words, key=lambda word: chances[1][word] - chances[0][word])
    rows = [line.split("│")[1:-1] for line in result.stdout.splitlines() if "│" in line]
    shown = [[cell.strip() for cell in row] for row in rows]
    assert sorted(row[0] for row in shown) == sorted(ranked)
    for word, first, second, difference in shown:
        assert float(first) == pytest.approx(chances[0][word], abs=1e-3)
        assert float(second) == pytest.approx(chances[1][word], abs=1e-3)
        assert float(difference) == pytest.approx(chances[0][word] - chances[1][word], abs=2e-3)
    differences = [float(row[3]) for row in shown]
    assert differences == sorted(differences, reverse=True)
    assert picture.read_bytes().startswith(b"\x89PNG")


async def test_several_prompts_are_compared_a_column_each(served: Served, tmp_path: Path) -> None:
    """Four that cross `win` or `claim` with `the` or `a`: both differences, and their change."""
    prompts = [f"{verb} {article} [MASK]" for verb in ("win", "claim") for article in ("the", "a")]
    picture = tmp_path / "words.png"
    result = await run(
        served, "fill-mask", "fills", *prompts, "--compare", "--top-k", "3", "--plot", str(picture)
    )
    assert result.exit_code == 0, result.output
    chances = [
        {word: math.log(chance) for word, chance in expected(prompt, NUM_TOKENS)[0]}
        for prompt in prompts
    ]
    words = {word for prompt in prompts for word, _ in expected(prompt, 3)[0]}
    heads = [line.split("┃")[1:-1] for line in result.stdout.splitlines() if "┃" in line]
    assert [cell.strip() for cell in heads[0][1:5]] == ["win the", "win a", "claim the", "claim a"]
    lines = [line.split("│")[1:-1] for line in result.stdout.splitlines() if "│" in line]
    shown = [[cell.strip() for cell in line] for line in lines]
    assert {row[0] for row in shown} == words
    for word, *figures in shown:
        a, b, c, d = wanted = [chance[word] for chance in chances]
        wanted += [a - b, c - d, (c - d) - (a - b)]
        assert [float(figure) for figure in figures] == pytest.approx(wanted, abs=4e-3)
    changes = [float(row[-1]) for row in shown]
    assert changes == sorted(changes, reverse=True)
    assert "win the: win the [MASK]" in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    three = await run(served, "fill-mask", "fills", *prompts[:3], "--compare", "--top-k", "2")
    assert three.exit_code == 0, three.output
    assert "spread" in three.stdout


async def test_candidates_alone_may_be_compared(served: Served) -> None:
    flags = ("--against", "a [MASK]", "--candidate", "cash", "--candidate", "home")
    result = await run(served, "fill-mask", "fills", "the [MASK]", *flags)
    assert result.exit_code == 0, result.output
    rows = [line for line in result.stdout.splitlines() if "│" in line]
    assert len(rows) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("[MASK]", "--plot", "x.png"), "expected --against or --compare"),
        (("[MASK]", "--compare"), "--compare is set with 1 texts, expected 2 to 8"),
        (("[MASK]",) * 9 + ("--compare",), "--compare is set with 9 texts, expected 2 to 8"),
        (("[MASK]", "--compare", "--against", "a [MASK]"), "expected one text beside it"),
        (("[MASK]", "a [MASK]", "--compare", "--json"), "--json is set, expected it without"),
        (("[MASK]", "a [MASK]", "--against", "the [MASK]"), "expected one text beside it"),
        (
            ("[MASK] [MASK]", "--against", "the [MASK]", "--top-k", "2"),
            "has 2 masks, a prompt to compare has one",
        ),
        (
            ("a [MASK]", "--against", "the [MASK]", "--top-k", "2", "--plot", "/no/such/x.png"),
            "--plot '/no/such/x.png' cannot be written: No such file or directory",
        ),
    ],
)
async def test_prompts_that_cannot_be_compared_are_refused_with_the_reason(
    served: Served, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SettingError) as refusal:
        await run(served, "fill-mask", "fills", *arguments)
    assert message in str(refusal.value)


async def test_a_refusal_reaches_the_command(served: Served) -> None:
    result = await run(served, "fill-mask", "fills", "no mask")
    assert result.exit_code == 1
    assert "text 1 has 0 [MASK]" in result.output


async def test_a_model_is_tried_with_its_example(served: Served) -> None:
    trials = await asyncio.to_thread(lambda: list(try_models(served.address, 20.0)))
    (answer,) = [trial.answer for trial in trials if trial.model.name == "fills"]
    (best,) = expected("win the [MASK]", 3)
    assert answer == ", ".join(f"{word} ({chance:.3f})" for word, chance in best)
