"""Streams as Triton's clients and its performance tools use them."""

import asyncio
import queue
import time
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio

from service.api.infer import to_infer_request
from service.serving.generative_model import GenerativeModel
from service.serving.model import Caller
from tests.fakes.serving import (
    NO_SHARING,
    Served,
    eventually,
    within_patience,
)
from tests.fakes.sessions import PATIENCE_S, greedy_text
from tests.fakes.streams import (
    GREEDY,
    answers,
    is_final,
    joined,
    open_stream,
    prompt_request,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


def triton_inputs(module: Any, prompt: str) -> list[Any]:
    """The four tensors as Triton's own examples of generation send them."""
    values: dict[str, np.ndarray] = {
        "text_input": np.array([prompt.encode()], object),
        "stream": np.array([True]),
        "sampling_parameters": np.array([GREEDY.encode()], object),
        "exclude_input_in_output": np.array([True]),
    }
    inputs = []
    for name, value in values.items():
        tensor = module.InferInput(name, [1], "BOOL" if value.dtype == bool else "BYTES")
        tensor.set_data_from_numpy(value)
        inputs.append(tensor)
    return inputs


async def test_the_synchronous_triton_client_streams(served: Served) -> None:
    """`start_stream`, `async_stream_infer`, `stop_stream`, unmodified; blocking, so on a thread."""

    def use() -> dict[str, str]:
        found: queue.Queue[Any] = queue.Queue()
        texts = dict.fromkeys(("once", "upon"), "")
        with triton.InferenceServerClient(served.address) as client:
            client.start_stream(lambda result, error: found.put((result, error)))
            for prompt in texts:
                client.async_stream_infer(
                    "tale",
                    triton_inputs(triton, prompt),
                    request_id=prompt,
                    enable_empty_final_response=True,
                )
            num_left = len(texts)
            while num_left:
                result, error = found.get(timeout=PATIENCE_S)
                assert error is None
                response = result.get_response()
                if response.parameters["triton_final_response"].bool_param:
                    num_left -= 1
                else:
                    texts[response.id] += result.as_numpy("text_output")[0].decode()
            client.stop_stream()
        return texts

    found = await within_patience(asyncio.to_thread(use))
    assert found == {prompt: greedy_text(prompt, 10) for prompt in ("once", "upon")}


async def test_the_synchronous_triton_client_cancels(served: Served) -> None:
    def use() -> Any:
        found: queue.Queue[Any] = queue.Queue()
        with triton.InferenceServerClient(served.address) as client:
            client.start_stream(lambda result, error: found.put((result, error)))
            client.async_stream_infer("tale", triton_inputs(triton, "once"))
            served.decoders["tale"].wait_for_runs(1)
            client.stop_stream(cancel_requests=True)
        return found.get(timeout=PATIENCE_S)

    served.decoders["tale"].hold()
    result, error = await within_patience(asyncio.to_thread(use))
    assert result is None
    assert error.status() == "StatusCode.CANCELLED"
    await eventually(lambda: served.app._admission.num_inside == 0)


async def test_the_asynchronous_triton_client_streams(served: Served) -> None:
    async def requests() -> AsyncIterator[dict[str, Any]]:
        inputs = triton_inputs(triton_aio, "once")
        yield {"model_name": "tale", "inputs": inputs, "request_id": "once"}

    text = ""
    async with triton_aio.InferenceServerClient(served.address) as client:
        async for result, error in client.stream_infer(requests()):
            assert error is None
            text += result.as_numpy("text_output")[0].decode()
    assert text == greedy_text("once", 10)


async def test_a_message_per_token_comes_however_late_the_reader_is(served: Served) -> None:
    """Of 10 tokens, all of which are there before the second message is read."""
    for message_per_token in (False, True):
        request = prompt_request("once")
        request.parameters["message_per_token"].bool_param = message_per_token
        model = served.app.repository.find("tale")
        assert isinstance(model, GenerativeModel)
        asked = to_infer_request(request, model, NO_SHARING, Caller(time.monotonic()))
        texts: list[str] = []
        async for reply in model.infer_stream(asked):
            texts.append(reply.outputs["text_output"][0].decode())
            await eventually(lambda: served.num_running("tale") == 0)
        assert "".join(texts) == greedy_text("once", 10)
        assert len(texts) == 10 if message_per_token else len(texts) <= 2


async def test_perf_tools_may_count_messages_as_tokens(served: Served) -> None:
    request = prompt_request("once")
    request.parameters["message_per_token"].bool_param = True
    found = await answers(open_stream(served, request))
    assert len(found) == 10
    assert [is_final(each) for each in found] == [*[False] * 9, True]
    assert joined(found, "once") == greedy_text("once", 10)


@pytest.mark.parametrize(
    ("stream", "value", "text"),
    [
        (False, True, "message_per_token is true, expected the input 'stream' to be true with it"),
        (True, 1, "message_per_token is 1, expected a bool"),
        (True, "true", "message_per_token is true, expected a bool"),
    ],
)
async def test_a_message_per_token_is_of_streams_and_a_bool(
    served: Served, stream: bool, value: bool | int | str, text: str
) -> None:
    request = prompt_request("once", stream=stream)
    kind = {bool: "bool_param", int: "int64_param", str: "string_param"}[type(value)]
    setattr(request.parameters["message_per_token"], kind, value)
    (answer,) = await answers(open_stream(served, request))
    assert answer.error_message == text
