"""The default model `gpt`: the same text by every way that asks for it."""

import asyncio
import json
import queue
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import numpy as np
import pytest
from attendant.v1 import generation_pb2 as pb
from attendant.v1 import generation_pb2_grpc
from tritonclient import grpc as triton

from tests.e2e.calls import LIMIT_S
from tests.e2e.conftest import ROOT
from tests.e2e.server import ServerProcess
from tests.e2e.test_commands import run_process

PROMPT = "The import statement"
VOCABULARY = 2_000  # fewer ids than the model knows
TIE = 1e-4


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """Only `gpt`, so that nothing else computes."""
    model = ROOT / "model_repository/gpt"
    if not (model / "1").is_dir():
        pytest.fail(f"{model} is missing: run `make models`")
    explicit = "--model-control-mode", "explicit", "--load-models", "gpt"
    waiting = "--max-queue-s", "0"  # 64 at once may wait longer on a busy machine
    with ServerProcess(model.parent, *explicit, *waiting) as process:
        yield process


def sampled(max_tokens: int = 40) -> dict[str, Any]:
    return {
        "temperature": 0.8,
        "top_p": 0.9,
        "seed": 11,
        "max_tokens": max_tokens,
        "min_tokens": 20,
    }


def test_the_terminal_the_stream_and_one_answer_give_the_same_text(server: ServerProcess) -> None:
    """One seed, 40 tokens: the command, tritonclient's stream and unary call, the typed API."""
    flags = [item for name, value in sampled().items() for item in _flag(name, value)]
    printed = run_process("generate", "gpt", PROMPT, *flags, "--address", server.address)
    assert printed.returncode == 0, printed.stderr
    pieces = _streamed(server, PROMPT, sampled())
    assert len(pieces) > 10, "it came in one piece"
    text = "".join(pieces)
    assert PROMPT not in text
    assert text.strip()
    assert printed.stdout.rstrip("\n").removeprefix(PROMPT) == text.rstrip("\n")
    assert _whole(server, PROMPT, sampled()) == text
    with grpc.insecure_channel(server.address) as channel:
        stub: Any = generation_pb2_grpc.GenerationServiceStub(channel)
        asked = pb.GenerateRequest(
            model="gpt", text=PROMPT, sampling_params=pb.SamplingParams(**sampled())
        )
        chunks = list(stub.Generate(asked, timeout=LIMIT_S))
    assert "".join(chunk.text for chunk in chunks) == text
    assert chunks[-1].usage.output_tokens == len([i for c in chunks for i in c.token_ids]) <= 40
    assert chunks[-1].timings.time_to_first_token_seconds > 0


def test_it_writes_words_that_its_corpus_has(server: ServerProcess) -> None:
    """Of 5 samples of 60 tokens at temperature 0.5 most words are words of the help topics."""
    from pydoc_data.topics import topics

    known = set(" ".join(topics.values()).split())
    params = {"temperature": 0.5, "max_tokens": 60}
    samples = [_whole(server, PROMPT, params | {"seed": seed}) for seed in range(5)]
    words = [word for sample in samples for word in sample.split()[:-1]]
    assert len(words) > 50
    assert sum(word in known for word in words) / len(words) > 0.7


async def test_64_requests_at_once_are_each_what_they_are_alone(server: ServerProcess) -> None:
    """Prompts of 8 to 400 random tokens, outputs of 1 to 200, greedy; ties within 1e-4 aside."""
    generator = np.random.default_rng(5)
    asked = [
        (
            generator.integers(1, VOCABULARY, generator.integers(8, 401)).tolist(),
            int(generator.integers(1, 201)),
        )
        for _ in range(64)
    ]
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub: Any = generation_pb2_grpc.GenerationServiceStub(channel)
        together = await asyncio.gather(*(_greedy(stub, *ask) for ask in asked))
        alone = [await _greedy(stub, *ask) for ask in asked[::4]]
    for (_, num_tokens), answer in zip(asked, together, strict=True):
        assert len(answer.token_ids) == num_tokens
    for one, other in zip(together[::4], alone, strict=True):
        assert _is_same_but_for_ties(one, other)


async def _greedy(stub: Any, prompt: list[int], n: int) -> pb.GeneratedText:
    params = pb.SamplingParams(temperature=0, max_tokens=n, ignore_eos=True, logprobs=2)
    request = pb.GenerateRequest(
        model="gpt", token_ids=pb.TokenIds(ids=prompt), sampling_params=params
    )
    response = await stub.GenerateUnary(request, timeout=LIMIT_S)
    result: pb.GeneratedText = response.results[0]
    return result


def _is_same_but_for_ties(one: pb.GeneratedText, other: pb.GeneratedText) -> bool:
    """Equal, or equal up to a place where the two best lie within `TIE` of each other."""
    pairs = enumerate(zip(one.token_ids, other.token_ids, strict=True))
    place = next((index for index, (a, b) in pairs if a != b), None)
    if place is None:
        return True
    best, second = one.logprobs[place].top[:2]
    return best.logprob - second.logprob < TIE


def _streamed(server: ServerProcess, prompt: str, params: dict[str, Any]) -> list[str]:
    """The pieces of text as tritonclient's stream hands them to its callback."""
    answers: queue.Queue[tuple[triton.InferResult, Exception | None]] = queue.Queue()
    pieces = []
    with triton.InferenceServerClient(server.address) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        inputs = _inputs(prompt, params, can_stream=True)
        client.async_stream_infer("gpt", inputs, enable_empty_final_response=True)
        while True:
            result, error = answers.get(timeout=LIMIT_S)
            assert error is None, error
            response = result.get_response()
            if response.parameters["triton_final_response"].bool_param:
                break
            pieces.append(result.as_numpy("text_output")[0].decode())
        client.stop_stream()
    return pieces


def _whole(server: ServerProcess, prompt: str, params: dict[str, Any]) -> str:
    with triton.InferenceServerClient(server.address) as client:
        inputs = _inputs(prompt, params, can_stream=False)
        result = client.infer("gpt", inputs, client_timeout=LIMIT_S)
    return str(result.as_numpy("text_output")[0].decode())


def _inputs(prompt: str, params: dict[str, Any], *, can_stream: bool) -> Sequence[object]:
    tensors = []
    for name, kind, value in (
        ("text_input", "BYTES", prompt.encode()),
        ("stream", "BOOL", can_stream),
        ("sampling_parameters", "BYTES", json.dumps(params).encode()),
        ("exclude_input_in_output", "BOOL", True),
    ):
        tensor = triton.InferInput(name, [1], kind)
        tensor.set_data_from_numpy(np.array([value], object if kind == "BYTES" else bool))
        tensors.append(tensor)
    return tensors


def _flag(name: str, value: float) -> tuple[str, str]:
    return f"--{name.replace('_', '-')}", str(value)
