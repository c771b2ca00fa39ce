"""A tokenizer's file may neither multiply a text nor hold up others; its panics are errors."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from attendant.v1 import generation_pb2 as pb
from grpc import StatusCode
from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import WordPiece

from service.errors import LoadError, ModelFailed
from service.serving.workers import Tokenizing
from service.text.tokenizer import PromptTokenizer, without_panics
from service.text.tokenizer_cost import KNOWN_PATTERNS, check_growth, has_known_time
from tests.fakes.sentencepiece import sentencepiece_tokenizer
from tests.fakes.serving import Served, refusal, serving, within_patience
from tests.fakes.sessions import generator_manifest, greedy_text, write_model
from tests.fakes.tiny_gpt import byte_tokenizer

ENDLESS = r"(a+)+$"  # tries 2^n ways to match n letters and another


def splitting(pattern: str) -> Tokenizer:
    tokenizer = byte_tokenizer()
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    steps = [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return tokenizer


def table_of(*replacements: str) -> normalizers.Normalizer:
    """A SentencePiece's table: the size of a trie, the trie, and texts that end with a zero."""
    texts = "".join(f"{each}\0" for each in replacements)
    return normalizers.Precompiled(b"\x04\0\0\0" + bytes(4) + texts.encode())


def test_published_patterns_have_a_known_time_and_others_have_not() -> None:
    assert has_known_time(byte_tokenizer())
    assert has_known_time(sentencepiece_tokenizer())
    assert all(has_known_time(splitting(pattern)) for pattern in KNOWN_PATTERNS)
    assert not has_known_time(splitting(ENDLESS))
    replacing = byte_tokenizer()
    replacing.normalizer = normalizers.Replace(Regex(ENDLESS), "b")
    assert not has_known_time(replacing)
    assert has_known_time(Tokenizer(WordPiece({"[UNK]": 0})))
    assert not has_known_time(Tokenizer(WordPiece({"[UNK]": 0}, max_input_chars_per_word=10**6)))


@pytest.mark.parametrize(
    ("part", "step"),
    [
        ("normalizer", normalizers.Replace("a", "a" * 41)),
        ("normalizer", normalizers.Sequence([normalizers.Replace("a", "aaaaaaa")] * 2)),
        ("normalizer", normalizers.Prepend("x" * 100)),
        (
            "normalizer",
            normalizers.Sequence([normalizers.Sequence([normalizers.Prepend("x" * 50)])]),
        ),
        ("normalizer", table_of("a", "b" * 41)),
        ("decoder", decoders.Replace("a", "a" * 41)),
    ],
)
def test_a_step_that_multiplies_texts_is_refused(tmp_path: Path, part: str, step: Any) -> None:
    tokenizer = byte_tokenizer()
    check_growth(tokenizer, "tokenizer.json")
    setattr(tokenizer, part, step)
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    with pytest.raises(
        LoadError, match=f"^tokenizer.json: its {part} may make a text .* at most 40"
    ):
        PromptTokenizer(path, 10, 10)


def test_a_table_whose_longest_text_is_short_is_taken() -> None:
    """Its texts together may be longer than what one character becomes."""
    tokenizer = byte_tokenizer()
    tokenizer.normalizer = table_of(*["b" * 40] * 3)
    check_growth(tokenizer, "tokenizer.json")


def test_a_table_has_no_place_for_an_id_that_a_file_made_up(tmp_path: Path) -> None:
    document = json.loads(byte_tokenizer().to_str())
    document["model"]["vocab"]["zz"] = 2**32 - 2
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document))
    with pytest.raises(LoadError, match=r"^tokenizer.json has the id 4294967294, the server takes"):
        PromptTokenizer(path, 10, 10)


class PanicException(BaseException):
    """As the library raises one."""


def test_a_panic_is_an_error_and_an_interrupt_is_not() -> None:
    with pytest.raises(ModelFailed, match="the tokenizer failed: over"), without_panics():
        raise PanicException("over")
    with pytest.raises(KeyboardInterrupt), without_panics():
        raise KeyboardInterrupt


@pytest.mark.asyncio
async def test_work_of_unknown_time_is_never_on_the_event_loop_nor_on_the_thread_of_others() -> (
    None
):
    with ThreadPoolExecutor(1, "shared") as shared:
        ours, theirs = Tokenizing(shared), Tokenizing(shared, has_known_time=False)
        here = threading.current_thread().name
        assert await ours.run(lambda: threading.current_thread().name, 1) == here
        assert (await theirs.run(lambda: threading.current_thread().name, 1)).startswith("own")
        theirs.close()


@pytest.mark.asyncio
async def test_a_tokenizer_that_fails_harms_no_other_request(tmp_path: Path) -> None:
    """24 letters and another take it some seconds; then the library gives up."""
    write_model(tmp_path, "tale", generator_manifest())
    folder = write_model(tmp_path, "wild", generator_manifest())
    splitting(ENDLESS).save(str(folder / "1" / "tokenizer.json"))
    async with serving(tmp_path) as served:
        failing = served.generation.GenerateUnary(request_of("wild", "a" * 24 + "b"))
        assert await text_of(served, "tale", "once") == greedy_text("once", 4)
        code, text = await refusal(failing)
        assert code == StatusCode.INTERNAL
        assert "the tokenizer failed" in text
        assert await text_of(served, "wild", "once")  # it goes on


def request_of(model: str, text: str) -> pb.GenerateRequest:
    params = pb.SamplingParams(temperature=0.0, max_tokens=4)
    return pb.GenerateRequest(model=model, text=text, sampling_params=params)


async def text_of(served: Served, model: str, text: str) -> str:
    answer = await within_patience(served.generation.GenerateUnary(request_of(model, text)))
    return str(answer.results[0].text)
