"""An encoder and its decoder as one `Decoder`: slots, whole answers, and what a folder may say.

The graphs are computed by ONNX Runtime, and what they should give by numpy, without any cache.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from attendant.v1 import generation_pb2 as pb
from onnx import TensorProto
from tritonclient.grpc import service_pb2 as oip

from service.contract.files import ModelSource
from service.errors import LoadError
from service.generation.decoders.encoder_decoder import EncoderDecoder
from service.generation.steps.scheduler import SchedulerLimits
from service.repository.loading import Openers, load_model
from service.runtime.device_memory import DeviceMemory
from service.settings import Settings
from tests.fakes.encoder_decoder import (
    CROSS,
    MAX_OUTPUT,
    MAX_SOURCE,
    MAX_TOKENS,
    SLOT_BYTES,
    VOCAB_SIZE,
    decoder_graph,
    encoder_graph,
    greedy_output,
    logits_after,
    make_encoder_decoder,
    source_manifest,
    write_encoder_decoder,
)
from tests.fakes.generation import (
    RecordingObserver,
    ask_all,
    engine_on,
    request_of,
    within_patience,
)
from tests.fakes.serving import Served, refusal, serving
from tests.fakes.sessions import END_ID, write_model

SOURCES = [[1, 2, 3], [5], list(range(40, 40 + MAX_SOURCE)), [7, 7, 9, 10, 11, 200, 3]]
ENGINE: dict[str, Any] = {"can_reuse_prefixes": False, "has_whole_prompts": True}


def run(
    decoder: EncoderDecoder, first_slot: int, rows: Sequence[Sequence[int]], past: Sequence[int]
) -> np.ndarray:
    return decoder.run(first_slot, [np.array(row, np.int32) for row in rows], past).whole().copy()


def check(found: np.ndarray, sources: Sequence[Any], outputs: Sequence[Any]) -> None:
    wanted = [logits_after(*pair) for pair in zip(sources, outputs, strict=True)]
    np.testing.assert_allclose(found, np.stack(wanted), rtol=0, atol=2e-5)


in_both_memories = pytest.mark.parametrize(
    "memory", [None, DeviceMemory("cpu")], ids=["host", "device"]
)


# --- what a run computes --------------------------------------------------------------------------


@in_both_memories
def test_cached_decoding_equals_recomputing_whatever_the_lengths(
    memory: DeviceMemory | None,
) -> None:
    """Sources of 1 to 12 tokens as one padded batch, then 7 tokens of output each."""
    decoder = make_encoder_decoder(memory=memory)
    outputs: list[list[int]] = [[] for _ in SOURCES]
    check(run(decoder, 1, SOURCES, [0] * 4), SOURCES, outputs)
    for token in range(MAX_OUTPUT - 1):
        past = [len(s) + len(o) for s, o in zip(SOURCES, outputs, strict=True)]
        outputs = [[*output, 50 + token + row] for row, output in enumerate(outputs)]
        check(run(decoder, 1, [output[-1:] for output in outputs], past), SOURCES, outputs)


def test_a_row_of_a_batch_is_what_it_is_alone() -> None:
    together, alone = make_encoder_decoder(), make_encoder_decoder()
    found = run(together, 0, SOURCES, [0] * 4)
    for slot, source in enumerate(SOURCES):
        np.testing.assert_allclose(found[slot], run(alone, slot, [source], [0])[0], atol=2e-5)


@in_both_memories
def test_a_copy_goes_on_from_any_token(memory: DeviceMemory | None) -> None:
    """Of a source but its last token, with part of the output, and of what is new only."""
    decoder, source, output = make_encoder_decoder(memory=memory), SOURCES[3], [20, 21, 22]
    num = len(source)
    run(decoder, 4, [source], [0])
    for index, token in enumerate(output):
        run(decoder, 4, [[token]], [num + index])
    run(decoder, 0, [SOURCES[2]], [0])  # a longer source was there before
    decoder.copy(4, 0, num - 1)
    check(run(decoder, 0, [source[-1:]], [num - 1]), [source], [[]])
    decoder.copy(4, 1, num + 2)
    check(run(decoder, 1, [[99]], [num + 2]), [source], [[20, 21, 99]])
    decoder.copy(4, 1, num + 3, start=num + 2)
    check(run(decoder, 1, [[98]], [num + 3]), [source], [[*output, 98]])
    check(run(decoder, 4, [[97]], [num + 3]), [source], [[*output, 97]])


def test_steps_take_a_source_whole_and_share_no_part_of_it() -> None:
    """Neither drafts nor scores either: a run gives the logits of each row's last token."""
    decoder = make_encoder_decoder()
    asked = SchedulerLimits(max_prefill_tokens=4, max_draft_tokens=7)
    expected = SchedulerLimits(
        max_prefill_tokens=MAX_SOURCE, can_reuse_prefixes=False, has_whole_prompts=True
    )
    assert decoder.bounds(asked) == expected
    assert decoder.bounds(replace(asked, max_prefill_tokens=99)).max_prefill_tokens == 99
    assert decoder.adapters is None
    assert decoder.prefix_memory(2**30) is None


def test_a_source_that_spoiled_its_slot_does_not_spoil_the_next() -> None:
    """What attention masks is multiplied by 0, which does not help with what is not finite."""
    decoder = make_encoder_decoder()
    run(decoder, 0, [SOURCES[2]], [0])
    for kept in decoder._cross.values():
        kept[0, :, : len(SOURCES[2])] = np.nan
    check(run(decoder, 0, [SOURCES[0]], [0]), [SOURCES[0]], [[]])
    run(decoder, 1, [SOURCES[2]], [0])
    for kept in decoder._cross.values():
        kept[1, :, : len(SOURCES[2])] = np.inf
    decoder.copy(0, 1, len(SOURCES[0]))
    check(run(decoder, 1, [[5]], [len(SOURCES[0])]), [SOURCES[0]], [[5]])


def test_steps_read_sources_where_they_are() -> None:
    """The addresses that a step is given are those of the slots; nothing else is written."""
    decoder = make_encoder_decoder()
    run(decoder, 2, SOURCES[:2], [0, 0])
    before = [kept.tobytes() for kept in decoder._cross.values()]
    run(decoder, 2, [[9], [8]], [3, 1])
    (bound,) = decoder._decoder._bound.values()
    taken = bound.binding._bound
    for name, kept in decoder._cross.items():
        there = taken[name]
        assert isinstance(there, np.ndarray)
        assert there.ctypes.data == kept[2:].ctypes.data
    assert [kept.tobytes() for kept in decoder._cross.values()] == before


# --- in the engine --------------------------------------------------------------------------------


async def test_every_request_gets_what_it_gets_alone() -> None:
    """40 sources of 1 to 12 tokens, outputs of 1 to 8, 4 slots, arriving while others decode."""
    random = np.random.default_rng(3)
    sources = [random.integers(256, size=random.integers(1, 13)).tolist() for _ in range(40)]
    counts = random.integers(1, MAX_OUTPUT + 1, size=40).tolist()
    observer = RecordingObserver()

    async def ask(source: list[int], count: int, delay: int) -> list[int]:
        for _ in range(delay):
            await asyncio.sleep(0)
        request = request_of(source, max_tokens=count, received_s=time.monotonic())
        (answer,) = await ask_all(engine, request)
        return answer.token_ids

    async with engine_on(make_encoder_decoder(4), observer=observer, **ENGINE) as engine:
        asked = zip(sources, counts, range(40), strict=True)
        found = await within_patience(asyncio.gather(*(ask(*each) for each in asked)))
    assert found == [greedy_output(*pair) for pair in zip(sources, counts, strict=True)]
    assert max(step.num_rows for step in observer.steps) == 4
    assert any(step.phase == "prefill" and step.num_rows > 1 for step in observer.steps)


async def test_samples_copy_their_source_and_no_other_s() -> None:
    """Sources that differ in their last token only, and one that is the other's beginning."""
    base = [10, 11, 12, 13, 14]
    sources = [[*base, 15], [*base, 16], base, base[:1]]
    observer = RecordingObserver()
    async with engine_on(make_encoder_decoder(6), observer=observer, **ENGINE) as engine:
        requests = [request_of(ids, max_tokens=6, n=3, temperature=1.0, top_k=1) for ids in sources]
        answers = await within_patience(asyncio.gather(*(ask_all(engine, r) for r in requests)))
    for source, samples in zip(sources, answers, strict=True):
        assert [sample.token_ids for sample in samples] == [greedy_output(source, 6)] * 3
    reused = [s.num_reused_tokens for s in observer.ended if s.request is requests[0]]
    assert sorted(reused) == [0, len(base), len(base)]


# --- served ---------------------------------------------------------------------------------------


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    write_encoder_decoder(tmp_path, "dates")
    async with serving(tmp_path) as running:
        yield running


async def test_a_text_is_a_source_with_the_tokenizer_s_special_tokens(served: Served) -> None:
    """Typed as text or as ids, and over the Open Inference Protocol without the source in front."""
    expected = greedy_output([*b"March", END_ID], 5)
    params = pb.SamplingParams(temperature=0.0, max_tokens=5)
    for prompt in ({"text": "March"}, {"token_ids": pb.TokenIds(ids=[*b"March", END_ID])}):
        response = await served.generation.GenerateUnary(
            pb.GenerateRequest(model="dates", sampling_params=params, **prompt)
        )
        assert list(response.results[0].token_ids) == expected
        assert response.usage.prompt_tokens == 6
    for excluded, beginning in ((None, b""), (True, b""), (False, b"March")):
        text = (await served.inference.ModelInfer(tensors(excluded))).raw_output_contents[0][4:]
        assert text == beginning + response.results[0].text.encode()


def tensors(excluded: bool | None) -> oip.ModelInferRequest:
    request = oip.ModelInferRequest(model_name="dates")
    text = request.inputs.add(name="text_input", datatype="BYTES", shape=[1])
    text.contents.bytes_contents.append(b"March")
    if excluded is not None:
        flag = request.inputs.add(name="exclude_input_in_output", datatype="BOOL", shape=[1])
        flag.contents.bool_contents.append(excluded)
    request.parameters["temperature"].double_param = 0.0
    request.parameters["max_tokens"].int64_param = 5
    return request


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "message"),
    [
        ({"text": "a" * 12}, 5, "the prompt has 13 tokens, the model takes 1 to 12"),
        ({"token_ids": pb.TokenIds(ids=[1] * 13)}, 5, "has 13 tokens, the model takes 1 to 12"),
        ({"token_ids": pb.TokenIds()}, 5, "the prompt has 0 tokens, the model takes 1 to 12"),
        (
            {"text": "a"},
            9,
            "max_tokens is 9, expected at most 8: outputs of this model have at most 8 tokens",
        ),
    ],
)
async def test_what_does_not_fit_is_refused_with_both_numbers(
    served: Served, prompt: dict[str, Any], max_tokens: int, message: str
) -> None:
    params = pb.SamplingParams(max_tokens=max_tokens)
    request = pb.GenerateRequest(model="dates", sampling_params=params, **prompt)
    code, text = await refusal(served.generation.GenerateUnary(request))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert message in text


async def test_an_output_without_a_limit_ends_where_the_model_s_room_does(served: Served) -> None:
    """8 of 20 tokens are the output's, though the source has 2 of its 12."""
    params = pb.SamplingParams(temperature=0.0, ignore_eos=True)
    request = pb.GenerateRequest(model="dates", text="a", sampling_params=params)
    response = await served.generation.GenerateUnary(request)
    assert response.usage.output_tokens == MAX_OUTPUT


# --- loading --------------------------------------------------------------------------------------


def load(folder: Path, **settings: Any) -> Any:
    source = ModelSource.of(folder.parent, folder.name)
    (version,) = load_model(source, Settings(**settings), Openers()).versions
    return version.decoder


def test_slots_are_what_the_memory_holds_of_caches_and_sources(tmp_path: Path) -> None:
    """Three and a half of them; a shorter context takes from the output."""
    folder = write_encoder_decoder(tmp_path, "dates")
    loaded = load(folder, kv_cache_bytes=SLOT_BYTES * 7 // 2)
    assert loaded.decoder.num_slots == 3
    kept = [*loaded.decoder._cross.values(), *loaded.decoder._decoder._buffers]
    assert sum(array.nbytes for array in kept) == 3 * SLOT_BYTES
    assert (loaded.room.max_prompt_tokens, loaded.room.max_output_tokens) == (12, 8)
    assert load(folder, max_context_tokens=15).room.max_output_tokens == 3


async def test_a_source_is_never_cut_into_chunks(tmp_path: Path) -> None:
    """Chunks of 4 tokens are asked for, and a source of 12 is computed at once."""
    write_encoder_decoder(tmp_path, "dates")
    async with serving(tmp_path, max_prefill_tokens=4) as served:
        params = pb.SamplingParams(temperature=0.0, max_tokens=3)
        request = pb.GenerateRequest(model="dates", text="a" * 11, sampling_params=params)
        response = await served.generation.GenerateUnary(request)
    assert list(response.results[0].token_ids) == greedy_output([*b"a" * 11, END_ID], 3)


@pytest.mark.parametrize(
    ("manifest", "graphs", "settings", "message"),
    [
        ({"max_source_tokens": 0}, {}, {}, "max_source_tokens is 0, expected 1 to 19"),
        ({"max_source_tokens": 20}, {}, {}, "max_source_tokens is 20, expected 1 to 19"),
        (
            {"decoder_start_token_id": VOCAB_SIZE},
            {},
            {},
            "decoder_start_token_id has 257, expected 0 to 256",
        ),
        ({}, {}, {"max_context_tokens": 12}, "max_context_tokens is 12, expected more than the 12"),
        ({}, {}, {"kv_cache_bytes": SLOT_BYTES - 1}, f"of {MAX_TOKENS} tokens, 12 of them"),
        ({}, {"encoder.onnx": b""}, {}, r"encoder.onnx: "),
        (
            {},
            {"encoder.onnx": encoder_graph(["cross.0.key", "cross.1.key"])},
            {},
            r"encoder.onnx gives \['cross.0.key', 'cross.1.key'\], and the decoder takes",
        ),
        (
            {},
            {"encoder.onnx": encoder_graph(CROSS, TensorProto.FLOAT16)},
            {},
            r"'cross.0.key' of encoder.onnx is TYPE_FP16 \[-1, 2, -1, 8\], expected",
        ),
        ({}, {"encoder.onnx": decoder_graph()}, {}, "encoder.onnx takes .*'source_lengths'.*, exp"),
        ({}, {"model.onnx": encoder_graph()}, {}, "the decoder of an encoder takes source_lengths"),
    ],
)
def test_what_cannot_be_served_is_refused_when_it_is_loaded(
    manifest: dict[str, Any],
    graphs: dict[str, bytes],
    settings: dict[str, int],
    message: str,
    tmp_path: Path,
) -> None:
    folder = write_encoder_decoder(tmp_path, "dates", source_manifest(**manifest), "", graphs)
    with pytest.raises(LoadError, match=message):
        load(folder, **settings)


def test_a_decoder_without_its_encoder_is_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "dates", source_manifest())
    with pytest.raises(LoadError, match=r"encoder\.onnx is missing"):
        load(folder)
