"""Tokens and the text that they are parts of: characters of several tokens, spaces, special tokens.

Texts of emoji, joined families, Han and Latin, by three kinds of vocabularies, whole and streamed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from service.calls.generation import GeneratedText, Reason, TokenLogprob
from service.generation.text_stream import TextStream
from service.http.huggingface.generation import tokens_of
from service.http.shared.logprobs import OutputTokens, TokenTexts
from service.http.shared.token_parts import TokenParts
from tests.fakes.sentencepiece import sentencepiece_tokenizer
from tests.fakes.tiny_gpt import byte_tokenizer
from tests.service.text.test_token_bytes import table

VOCABULARIES: dict[str, Tokenizer] = {
    "SentencePiece": sentencepiece_tokenizer(),
    "bytes": byte_tokenizer(),
}
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
PIECES = [
    "\U0001f600",
    FAMILY,
    "\u4e2d\u6587",
    "the cat",
    " sat",
    "é",
    "e\u0301",
    " ",
    "\n",
    "猫",
    "a",
]
texts = st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join)
SPECIAL = b"</s>"  # as it is spelled; no text has it


@dataclass(frozen=True)
class Output:
    """What the typed API gives of one output."""

    whole: GeneratedText
    chunks: list[GeneratedText]


def output_of(
    spelled: Sequence[bytes], stop: str = "", *, cuts: Sequence[bool] = (), is_ended: bool = False
) -> Output:
    """The output of these tokens; a cut ends a chunk. A special token ends it, or a stop text."""
    stream = TextStream([*spelled, b""], (stop,) if stop else ())
    chunks: list[GeneratedText] = []
    ids = [*range(len(spelled)), *([len(spelled)] if is_ended else [])]
    text, tokens = "", list[TokenLogprob]()
    for place in ids:
        text += stream.push(place)
        token = SPECIAL if place == len(spelled) else spelled[place]
        tokens.append(TokenLogprob(place, -1.0, token=token))
        is_last = stream.matched_stop is not None or place == ids[-1]
        reason: Reason = ""
        if is_last:
            text += stream.finish()
            is_stop = stream.matched_stop is not None or is_ended
            reason = "stop" if is_stop else "length"
        if is_last or (place < len(cuts) and cuts[place]):
            stopped_by = (stream.matched_stop or "") if is_last else ""
            chunks.append(output_with(text, tokens, reason, stopped_by))
            text, tokens = "", []
        if is_last:
            break
    whole = output_with(
        "".join(each.text for each in chunks),
        [token for each in chunks for token in each.logprobs],
        chunks[-1].finish_reason,
        chunks[-1].stop_reason,
    )
    return Output(whole, chunks)


def output_with(
    text: str, tokens: Sequence[TokenLogprob], reason: Reason, stop_reason: str = ""
) -> GeneratedText:
    return GeneratedText(
        text=text,
        token_ids=[token.id for token in tokens],
        logprobs=tokens,
        finish_reason=reason,
        stop_reason=stop_reason,
    )


@st.composite
def outputs(draw: st.DrawFn, name: str) -> Output:
    tokenizer = VOCABULARIES[name]
    text = draw(texts)
    spelled = [
        table(tokenizer)[each] for each in tokenizer.encode(text, add_special_tokens=False).ids
    ]
    spelled = spelled[: draw(st.integers(1, len(spelled)))]  # within a character too
    start = draw(st.integers(0, len(text)))
    stop = draw(st.sampled_from(["", "", text[start : start + 3], "cat sat"]))
    cuts = draw(st.lists(st.booleans(), max_size=len(spelled)))
    return output_of(spelled, stop, cuts=cuts, is_ended=draw(st.booleans()))


@pytest.mark.parametrize("name", VOCABULARIES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_texts_of_tokens_that_are_not_special_are_the_text(name: str, data: st.DataObject) -> None:
    """Hugging Face's route, whole and streamed."""
    output = data.draw(outputs(name))
    whole = [token for token, _ in tokens_of(output.whole, TokenParts())]
    parts: TokenParts[Any] = TokenParts()
    streamed = [token for chunk in output.chunks for token, _ in tokens_of(chunk, parts)]
    assert streamed == whole
    assert [token["id"] for token in whole] == list(output.whole.token_ids)
    assert "".join(token["text"] for token in whole if not token["special"]) == output.whole.text
    assert not any(token["text"] for token in whole if token["special"])


@pytest.mark.parametrize("name", VOCABULARIES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_text_s_offsets_are_where_its_tokens_begin(name: str, data: st.DataObject) -> None:
    """OpenAI's log probabilities, whole and streamed; none of tokens that a stop text cut off."""
    output = data.draw(outputs(name))
    whole = TokenTexts(as_ids=False).written(output.whole)
    writer = TokenTexts(as_ids=False)
    parts = [writer.written(chunk) for chunk in output.chunks]
    assert {key: [value for part in parts for value in part[key]] for key in whole} == whole
    text = output.whole.text
    is_stopped = bool(output.whole.stop_reason)
    for place, (token, offset) in enumerate(
        zip(whole["tokens"], whole["text_offset"], strict=True)
    ):
        if token.startswith("bytes:") or token == SPECIAL.decode():
            assert offset <= len(text)
        elif is_stopped and place == len(whole["tokens"]) - 1:
            assert token.startswith(text[offset:]) or text[offset:].startswith(token)
            assert offset < len(text), "a token of nothing but what was cut off is left out"
        else:
            assert text[offset:].startswith(token)
    if not is_stopped:
        assert len(whole["tokens"]) == len(output.whole.token_ids)


def scored(*spelled: bytes) -> list[TokenLogprob]:
    return [TokenLogprob(id=place, token=each) for place, each in enumerate(spelled)]


def test_offsets_of_an_echo_count_the_text_that_is_given() -> None:
    """Behind a token that no text has, and a first space that the tokenizer put there."""
    output = GeneratedText(text=" mat", finish_reason="length", logprobs=scored(b" mat"))
    prompt = scored(b"<s>", b" the", b" cat", b" s", b"at")
    written = TokenTexts(as_ids=False, echoed="the cat sat").written(output, prompt=prompt)
    assert written["tokens"] == ["<s>", "the", " cat", " s", "at", " mat"]
    assert written["text_offset"] == [0, 0, 3, 7, 9, 11]
    assert all(
        token in top
        for token, top in zip(written["tokens"][1:], written["top_logprobs"][1:], strict=True)
    )
    spelled = TokenTexts(as_ids=False, echoed="<s> the").written(output, prompt=prompt[:2])
    assert spelled["text_offset"] == [0, 3, 7]


def test_offsets_of_a_prompt_that_a_normalizer_changed_are_its_own() -> None:
    output = GeneratedText(finish_reason="length")
    prompt = scored(b"<s>", b" cafe", b" the", b" \xc3\xa9", b"x")
    written = TokenTexts(as_ids=False, echoed="CAFE\u0301 The e\u0301x").written(
        output, prompt=prompt
    )
    assert written["text_offset"] == [0, 0, 5, 9, 12]


def test_a_stop_text_leaves_tokens_behind_it_out() -> None:
    output = output_of([b" the", b" cat", b" s", b"at", b" m", b"at"], " mat").whole
    assert output.text == " the cat sat"
    tokens = [part.token.token for part in OutputTokens().read(output)]
    assert tokens == [b" the", b" cat", b" s", b"at"]
