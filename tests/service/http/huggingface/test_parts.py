"""What the pipelines are made of: spellings, vectors, and the operations that they perform."""

import msgspec
import pytest

from service.api.access import PROTOCOLS
from service.calls.generation import GeneratedText, TokenLogprob
from service.calls.reading import Fill, FilledMask
from service.http.huggingface import generation, reading, texts
from service.http.shared.token_parts import TokenParts

SMILE = "\U0001f600".encode()


@pytest.mark.parametrize(
    ("spelled", "written", "sequence"),
    [
        ("##ing", "##ing", "go away runing."),
        ("\u0120cat", " cat", "go away run cat."),
        ("\u2581cat", " cat", "go away run cat."),
        ("cat", "cat", "go away run cat."),
    ],
)
def test_a_fill_stands_in_its_text_as_its_vocabulary_means_it(
    spelled: str, written: str, sequence: str
) -> None:
    text = "go away run [MASK]."
    fills = [Fill(1, spelled, 0.5, -1.0)]
    fill = reading._fill(text, FilledMask(12, 18, fills), fills[0])
    assert (fill["token_str"], fill["sequence"]) == (written, sequence)


def test_all_operations_of_pipelines_are_in_the_group_by_which_access_is_decided() -> None:
    paths = {
        value
        for module in (generation, reading, texts)
        for value in vars(module).values()
        if isinstance(value, str) and value.startswith("/attendant.")
    }
    assert len(paths) == 11
    assert paths <= set(PROTOCOLS["inference"])


def test_vectors_that_are_zero_stay_so() -> None:
    asked = texts.FeatureRequest(inputs=msgspec.Raw(b'""'), normalize=True)
    assert texts._vector([0.0, 0.0], asked) == [0, 0]


def test_the_texts_of_tokens_are_together_the_text() -> None:
    """A smile of two tokens, then a letter, then the end of the text."""
    tokens = [SMILE[:2], SMILE[2:], b"a", b"[SEP]"]
    logprobs = [
        TokenLogprob(id=place, token=token, logprob=-float(place))
        for place, token in enumerate(tokens)
    ]
    chunk = GeneratedText(
        text=SMILE.decode() + "a",
        token_ids=[*range(4)],
        logprobs=logprobs,
        finish_reason="stop",
    )
    written = [token for token, _ in generation.tokens_of(chunk, TokenParts())]
    assert "".join(token["text"] for token in written) == chunk.text
    assert [token["special"] for token in written] == [False, False, False, True]
    assert [token["logprob"] for token in written] == [0, -1, -2, -3]
    assert generation.reason_of(chunk) == "eos_token"
