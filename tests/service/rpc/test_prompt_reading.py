"""How a prompt is read over the typed API: special tokens, cuts, and the ids that were read."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from attendant.v1 import generation_pb2 as pb
from grpc import StatusCode
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from tests.fakes.chats import rendered, write_chat_model
from tests.fakes.serving import Served, refusal, serving, within_patience
from tests.fakes.sessions import END_ID, greedy_ids, prompt_ids

pytestmark = pytest.mark.asyncio(loop_scope="module")
END = "<|endoftext|>"  # which begins every prompt of these models


def begin_with_end(folder: Path) -> None:
    path = folder / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.post_processor = TemplateProcessing(
        single=f"{END} $A", special_tokens=[(END, END_ID)]
    )
    tokenizer.save(str(path))


@asynccontextmanager
async def serve(repository: Path, **settings: Any) -> AsyncIterator[Served]:
    begin_with_end(write_chat_model(repository))
    async with serving(repository, **settings) as served:
        yield served


SERVE = serve


async def ids_of(served: Served, params: dict[str, Any] | None = None, **fields: Any) -> list[int]:
    """The tokens of a prompt, which both methods read alike."""
    sampling = pb.SamplingParams(**{"max_tokens": 2, "temperature": 0.0} | (params or {}))
    request = pb.GenerateRequest(
        model="talks", sampling_params=sampling, return_prompt_token_ids=True, **fields
    )
    answer = await within_patience(served.generation.GenerateUnary(request))
    chunk = await within_patience(served.generation.Generate(request).read())
    read = list(answer.prompt_token_ids)
    assert (list(chunk.prompt_token_ids), chunk.num_prompt_tokens) == (read, len(read))
    assert answer.usage.prompt_tokens == len(read)
    if sampling.max_tokens:
        assert list(answer.results[0].token_ids) == greedy_ids(read, sampling.max_tokens)
    return read


async def test_special_tokens_are_added_unless_they_are_omitted(served: Served) -> None:
    assert await ids_of(served, text="once") == [END_ID, *prompt_ids("once")]
    assert await ids_of(served, text="once", omit_special_tokens=True) == prompt_ids("once")
    # What a text spells is its own.
    assert await ids_of(served, text=f"{END}once", omit_special_tokens=True) == [
        END_ID,
        *prompt_ids("once"),
    ]


async def test_a_cut_prompt_keeps_its_end_or_its_beginning_and_the_special_tokens(
    served: Served,
) -> None:
    cut: dict[str, Any] = {"text": "once upon", "truncate_prompt_tokens": 5}
    assert await ids_of(served, **cut) == [END_ID, *prompt_ids("upon")]
    assert await ids_of(served, **cut, truncate_prompt_end=True) == [END_ID, *prompt_ids("once")]
    assert await ids_of(served, **cut, omit_special_tokens=True) == prompt_ids(" upon")
    ids = pb.TokenIds(ids=prompt_ids("once upon"))
    assert await ids_of(served, token_ids=ids, truncate_prompt_tokens=4) == prompt_ids("upon")
    chat = pb.Conversation(messages=[pb.ChatMessage(role="user", content="hi")])
    whole = prompt_ids(rendered(("user", "hi")))
    assert await ids_of(served, conversation=chat, truncate_prompt_tokens=6) == whole[-6:]


async def test_a_prompt_is_cut_to_what_leaves_room_for_the_output(served: Served) -> None:
    """The context has 64 tokens."""
    long: dict[str, Any] = {"text": "ab" * 100, "truncate_prompt_tokens": 2**32 - 1}
    assert len(await ids_of(served, **long)) == 62
    assert len(await ids_of(served, {"max_tokens": 60}, **long)) == 4


async def test_a_prompt_that_is_only_scored_takes_the_whole_context(served: Served) -> None:
    scored: dict[str, Any] = {"max_tokens": 0, "prompt_logprobs": 0}
    ids = [*range(97, 97 + 26), *range(97, 97 + 26), *range(97, 97 + 12)]
    assert await ids_of(served, scored, token_ids=pb.TokenIds(ids=ids)) == ids
    request = pb.GenerateRequest(
        model="talks", text="a" * 64, sampling_params=pb.SamplingParams(**scored)
    )
    assert await refusal(served.generation.GenerateUnary(request)) == (
        StatusCode.INVALID_ARGUMENT,
        "the prompt has 65 tokens, the model takes 1 to 64",
    )


async def test_a_cut_to_nothing_is_refused(served: Served) -> None:
    request = pb.GenerateRequest(model="talks", text="a", truncate_prompt_tokens=0)
    assert await refusal(served.generation.GenerateUnary(request)) == (
        StatusCode.INVALID_ARGUMENT,
        "truncate_prompt_tokens is 0, expected 1 or more",
    )


async def test_what_ended_a_text_is_in_it_where_that_is_requested(served: Served) -> None:
    async def result(**params: Any) -> pb.GeneratedText:
        sampling = pb.SamplingParams(temperature=0, max_tokens=20, **params)
        request = pb.GenerateRequest(model="talks", text="once", sampling_params=sampling)
        answer = await within_patience(served.generation.GenerateUnary(request))
        return pb.GeneratedText.FromString(answer.results[0].SerializeToString())

    whole = (await result()).text
    stop = whole[3:6]
    for includes in (False, True):
        stopped = await result(stop=[stop], include_stop_str_in_output=includes)
        assert stopped.text == whole[: 6 if includes else 3]
        assert (stopped.stop_reason, stopped.HasField("stop_token_id")) == (stop, False)
        place = next(place for place in range(2, 20) if whole.index(whole[place]) == place)
        token_id = ord(whole[place])
        ended = await result(stop_token_ids=[token_id], include_stop_str_in_output=includes)
        assert ended.text == whole[: place + includes]
        assert (ended.stop_reason, ended.stop_token_id) == (str(token_id), token_id)
    full_stop = {"allowed_token_ids": [END_ID, ord(".")], "logit_bias": {ord("."): 20.0}}
    assert (await result(**full_stop)).text == "."
    shown = {"include_stop_str_in_output": True, "skip_special_tokens": False}
    assert (await result(**full_stop, **shown)).text == f".{END}"
    assert (await result(**full_stop, ignore_eos=True, skip_special_tokens=False)).text.count(END)
