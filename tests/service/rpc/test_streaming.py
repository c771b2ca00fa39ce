"""`ModelStreamInfer` over the wire, by raw stubs."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grpc import StatusCode
from tritonclient.grpc import service_pb2 as pb

from service.settings import Settings
from tests.fakes.serving import (
    Served,
    eventually,
    refusal,
    serving,
    simple_request,
    text_request,
    within_patience,
)
from tests.fakes.sessions import greedy_text, text_values, token_ids
from tests.fakes.streams import (
    add_bool,
    answers,
    is_final,
    joined,
    open_stream,
    prompt_request,
    texts_of,
)

MAX_IN_FLIGHT = Settings().max_stream_requests
pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = {"max_queue_requests": 2}


async def test_every_model_may_be_asked_on_one_stream_and_each_answer_is_final(
    served: Served,
) -> None:
    spam, simple = text_request("spam", "lunch"), simple_request()
    spam.id, simple.id = "one", "two"
    first, second = await answers(open_stream(served, spam, simple))
    assert (first.infer_response.id, second.infer_response.id) == ("one", "two")
    assert is_final(first)
    assert is_final(second)
    logits = np.frombuffer(first.infer_response.raw_output_contents[-1], np.float32)
    assert logits.tolist() == text_values(token_ids("lunch"), 3).tolist()
    assert second.infer_response.model_version == "1"


async def test_single_answers_come_in_the_order_of_their_requests(served: Served) -> None:
    """The first model is held; the second's answer is ready, and waits for its turn."""
    running = await served.hold("spam")
    slow, quick = text_request("spam", "lunch"), simple_request()
    slow.id, quick.id = "slow", "quick"
    call = open_stream(served, slow, quick)
    await asyncio.to_thread(served.sessions["simple"].wait_for_runs, 1)
    reading = asyncio.create_task(answers(call))
    await asyncio.sleep(0.05)
    assert not reading.done()
    served.release("spam")
    found = await reading
    assert [response.infer_response.id for response in found] == ["slow", "quick"]
    await within_patience(running)


async def test_generated_text_does_not_wait_for_an_answer_before_it(served: Served) -> None:
    running = await served.hold("spam")
    slow = text_request("spam", "lunch")
    slow.id = "slow"
    call = open_stream(served, slow, prompt_request("once"))
    first = await within_patience(call.read())
    assert first.infer_response.id == "once"
    served.release("spam")
    rest = await answers(call)
    assert joined([first, *(r for r in rest if r.infer_response.id == "once")], "once") == (
        greedy_text("once", 10)
    )
    assert [r.infer_response.id for r in rest].count("slow") == 1
    await within_patience(running)


async def test_two_prompts_on_one_stream_interleave_and_are_matched_by_id(served: Served) -> None:
    """After five steps, which end neither, there is text of both."""
    decoder = served.decoders["tale"]
    decoder.hold()
    call = open_stream(served, prompt_request("once"), prompt_request("upon"))
    await asyncio.to_thread(decoder.wait_for_runs, 1)
    await eventually(lambda: served.num_running("tale") + served.num_waiting("tale") == 2)
    decoder.hold(after=4)
    found: list[pb.ModelStreamInferResponse] = []
    while {response.infer_response.id for response in found} != {"once", "upon"}:
        found.append(await within_patience(call.read()))
    decoder.release()
    found += await answers(call)
    for prompt in ("once", "upon"):
        assert joined(found, prompt) == greedy_text(prompt, 10)


async def test_the_last_piece_of_text_is_final(served: Served) -> None:
    """Unless an empty response is asked for, as a backend that ends with its last text."""
    decoder = served.decoders["tale"]
    decoder.hold(after=1)
    call = open_stream(served, prompt_request("once"))
    first = await within_patience(call.read())
    decoder.release()
    rest = await answers(call)
    assert joined([first, *rest], "once") == greedy_text("once", 10)
    assert [is_final(response) for response in rest] == [False] * (len(rest) - 1) + [True]
    assert not is_final(first)


async def test_an_empty_final_response_is_sent_where_asked(served: Served) -> None:
    """It has id, model, version and flag; every response with data is not final."""
    request = prompt_request("once", wants_empty_final=True)
    *data, last = await answers(open_stream(served, request))
    assert joined(data, "once") == greedy_text("once", 10)
    assert not any(map(is_final, data))
    assert is_final(last)
    expected = pb.ModelInferResponse(model_name="tale", model_version="1", id="once")
    expected.parameters["triton_final_response"].bool_param = True
    assert last.infer_response == expected


@pytest.mark.parametrize("stream", [None, False])
async def test_without_stream_the_whole_text_comes_at_once_after_its_prompt(
    served: Served, stream: bool | None
) -> None:
    (only,) = await answers(open_stream(served, prompt_request("once", stream=stream)))
    assert texts_of(only) == ["once" + greedy_text("once", 10)]
    assert is_final(only)


async def test_samples_are_told_apart_by_their_place(served: Served) -> None:
    """Each response has a text for either, and one of them is empty."""
    sampling = '{"n": 2, "seed": 5, "max_tokens": 10}'
    found = await answers(open_stream(served, prompt_request("once", sampling=sampling)))
    parts = [texts_of(response) for response in found]
    assert all(len(texts) == 2 for texts in parts)
    streamed = ["".join(column) for column in zip(*parts, strict=True)]
    request = prompt_request("once", sampling=sampling, stream=False)
    add_bool(request, "exclude_input_in_output", True)
    (only,) = await answers(open_stream(served, request))
    assert texts_of(only) == streamed


async def test_unary_calls_of_a_generative_model_give_the_whole_text(served: Served) -> None:
    request = prompt_request("once", stream=None)
    response = await served.inference.ModelInfer(request)
    assert texts_of(pb.ModelStreamInferResponse(infer_response=response)) == [
        "once" + greedy_text("once", 10)
    ]
    assert "triton_final_response" not in response.parameters
    code, text = await refusal(served.inference.ModelInfer(prompt_request("once")))
    assert code is StatusCode.INVALID_ARGUMENT
    assert text == "stream is true, and only ModelStreamInfer and generate_stream stream"


@pytest.mark.parametrize("name", ["logprobs", "prompt_logprobs"])
async def test_log_probabilities_have_no_place_in_a_text(served: Served, name: str) -> None:
    request = prompt_request("once", stream=False, sampling=None)
    request.parameters[name].int64_param = 1
    code, text = await refusal(served.inference.ModelInfer(request))
    assert code is StatusCode.INVALID_ARGUMENT
    assert text == f"{name} is 1, and text_output has no place for them: the typed API has"


async def test_request_parameters_choose_where_no_tensor_does(served: Served) -> None:
    request = prompt_request("once", stream=False, sampling=None)
    request.parameters["temperature"].double_param = 0.0
    request.parameters["max_tokens"].int64_param = 4
    request.parameters["priority"].uint64_param = 3
    add_bool(request, "exclude_input_in_output", True)
    (only,) = await answers(open_stream(served, request))
    assert texts_of(only) == [greedy_text("once", 4)]


ERRORS: dict[str, tuple[pb.ModelInferRequest, str]] = {
    "model": (
        pb.ModelInferRequest(model_name="nope"),
        "Request for unknown model: 'nope' is not found",
    ),
    "version": (
        pb.ModelInferRequest(model_name="tale", model_version="abc"),
        "failed to get model version from specified version string 'abc' (details: stol), "
        "version should be an integral value > 0",
    ),
    "missing input": (
        pb.ModelInferRequest(model_name="tale"),
        "[request id: me] expected number of inputs between 1 and 4 but got 0 inputs for model "
        "'tale'. Got input(s) [], but missing required input(s) ['text_input']. Please provide all "
        "required input(s).",
    ),
    "sampling_parameters": (
        prompt_request("once", sampling="{"),
        "sampling_parameters is not JSON: ",
    ),
    "temperature": (
        prompt_request("once", sampling='{"temperature": -1}'),
        "temperature is -1.0, expected 0 to 100",
    ),
    "long prompt": (prompt_request("a" * 64), "the prompt has 64 tokens, the model takes 1 to 63"),
}


@pytest.mark.parametrize("case", ERRORS)
async def test_an_error_is_an_answer_and_the_stream_goes_on(served: Served, case: str) -> None:
    """It has the request's id; another request on the same stream is answered after it."""
    wrong, text = ERRORS[case]
    wrong.id = "me"
    found = await answers(open_stream(served, wrong, simple_request()))
    (error,) = [response for response in found if response.error_message]
    assert error.error_message.startswith(text)
    assert error.infer_response.id == "me"
    assert is_final(error)
    (other,) = [response for response in found if not response.error_message]
    assert len(other.infer_response.outputs) == 2


async def test_an_error_after_the_first_text_carries_its_id_too(served: Served) -> None:
    decoder = served.decoders["tale"]
    decoder.hold(after=2)
    call = open_stream(served, prompt_request("once"))
    await within_patience(call.read())
    await asyncio.to_thread(decoder.wait_for_runs, 3)
    decoder.error = ValueError("out of order")
    decoder.release()
    *_, last = await answers(call)
    assert last.error_message == "ValueError: out of order"
    assert last.infer_response.id == "once"


async def test_a_request_that_never_started_ends_no_stream_even_then(served: Served) -> None:
    metadata = (("triton_grpc_error", "true"),)
    wrong = pb.ModelInferRequest(model_name="nope")
    first, second = await answers(open_stream(served, wrong, simple_request(), metadata=metadata))
    assert first.error_message == "Request for unknown model: 'nope' is not found"
    assert second.infer_response.outputs


async def test_a_full_queue_is_an_error_in_triton_s_words(served: Served) -> None:
    """One runs in a step that does not end, two wait."""
    decoder = served.decoders["tale"]
    decoder.hold()
    running = open_stream(served, prompt_request("once"))
    await asyncio.to_thread(decoder.wait_for_runs, 1)
    waiting = open_stream(served, prompt_request("upon"), prompt_request("a"))
    await eventually(lambda: served.num_waiting("tale") == 2)
    (error,) = await answers(open_stream(served, prompt_request("time")))
    assert error.error_message == "Exceeds maximum queue size"
    unary = served.inference.ModelInfer(prompt_request("time", stream=False))
    assert await refusal(unary) == (StatusCode.UNAVAILABLE, "Exceeds maximum queue size")
    decoder.release()
    assert joined(await answers(running), "once") == greedy_text("once", 10)
    assert joined(await answers(waiting), "a") == greedy_text("a", 10)


async def test_cancelling_a_stream_ends_all_its_requests_within_one_step(served: Served) -> None:
    decoder = served.decoders["tale"]
    decoder.hold()
    call = open_stream(served, prompt_request("once"), prompt_request("upon"))
    await asyncio.to_thread(decoder.wait_for_runs, 1)
    await eventually(lambda: served.num_running("tale") + served.num_waiting("tale") == 2)
    call.cancel()
    await eventually(lambda: served.app._admission.num_inside == 0)
    decoder.release()
    await eventually(lambda: served.num_running("tale") == served.num_waiting("tale") == 0)
    assert len(decoder.calls) == 1


async def test_a_stream_s_deadline_ends_its_requests(served: Served) -> None:
    served.decoders["tale"].hold()
    call = open_stream(served, prompt_request("once"), timeout=0.2)
    code, _ = await refusal(answers(call))
    assert code is StatusCode.DEADLINE_EXCEEDED
    await eventually(lambda: served.app._admission.num_inside == 0)


async def test_a_client_that_closes_its_side_is_still_answered(served: Served) -> None:
    decoder = served.decoders["tale"]
    decoder.hold()
    call = served.inference.ModelStreamInfer()
    await call.write(prompt_request("once"))
    await call.done_writing()
    decoder.release()
    assert joined(await answers(call), "once") == greedy_text("once", 10)
    assert await call.code() is StatusCode.OK


async def test_requests_beyond_the_bound_are_read_as_others_are_answered(served: Served) -> None:
    """With one model held, 256 of 300 requests are in flight; the others are not read yet."""
    running = await served.hold("spam")
    count = MAX_IN_FLIGHT + 44
    wrong = [pb.ModelInferRequest(model_name="nope", id=str(index)) for index in range(count)]
    call = open_stream(served, text_request("spam", "lunch"), *wrong)
    reading = asyncio.create_task(answers(call))
    await eventually(lambda: served.app._admission.num_inside == MAX_IN_FLIGHT + 1)
    await asyncio.sleep(0.05)
    assert served.app._admission.num_inside == MAX_IN_FLIGHT + 1
    served.release("spam")
    _, *found = await reading
    assert [response.infer_response.id for response in found] == [w.id for w in wrong]
    await within_patience(running)


async def test_a_stream_that_is_not_read_holds_up_no_other(served: Served) -> None:
    """64 answers of 1 MiB wait for a client that reads none; others generate meanwhile."""
    big = pb.ModelInferRequest(model_name="strings")
    big.inputs.add(name="IN", datatype="BYTES", shape=[1, 1])
    big.inputs[0].contents.bytes_contents.append(b"x" * 2**20)
    unread = open_stream(served, *[big] * 64, prompt_request("once"))
    await eventually(lambda: served.app._admission.num_inside > 30)
    for prompt in ("quick", "brown"):
        found = await answers(open_stream(served, prompt_request(prompt)))
        assert joined(found, prompt) == greedy_text(prompt, 10)
    assert served.app._admission.num_inside > 30
    found = await answers(unread)
    assert joined([r for r in found if r.infer_response.id == "once"], "once") == (
        greedy_text("once", 10)
    )
    assert len([r for r in found if r.infer_response.model_name == "strings"]) == 64


SHUTTING_DOWN = "GRPC server is shutting down and has stopped accepting new requests."


async def test_drain_answers_what_an_open_stream_asked_and_then_ends_it_with_a_status(
    models: Path,
) -> None:
    async with serving(models) as served:
        decoder = served.decoders["tale"]
        decoder.hold()
        call = served.inference.ModelStreamInfer()
        await call.write(prompt_request("once"))
        await asyncio.to_thread(decoder.wait_for_runs, 1)
        stopping = asyncio.create_task(served.app.stop())
        await eventually(lambda: served.app._admission.is_draining)
        await call.write(prompt_request("late"))
        decoder.release()
        found: list[Any] = []

        async def read_all() -> None:
            while True:
                found.append(await call.read())

        assert await refusal(read_all()) == (StatusCode.UNAVAILABLE, SHUTTING_DOWN)
        assert {answer.infer_response.id for answer in found} == {"once"}
        assert joined(found, "once") == greedy_text("once", 10)
        await within_patience(stopping)


async def test_a_stream_whose_client_has_closed_its_side_ends_well_in_a_drain(models: Path) -> None:
    async with serving(models) as served:
        decoder = served.decoders["tale"]
        decoder.hold()
        call = open_stream(served, prompt_request("once"))
        await asyncio.to_thread(decoder.wait_for_runs, 1)
        stopping = asyncio.create_task(served.app.stop())
        await eventually(lambda: served.app._admission.is_draining)
        decoder.release()
        assert joined(await answers(call), "once") == greedy_text("once", 10)
        await within_patience(stopping)


async def test_an_open_stream_without_requests_does_not_keep_the_server(models: Path) -> None:
    """Its limit for draining is 30 s; it stops at once."""
    async with serving(models) as served:
        call = served.inference.ModelStreamInfer()
        await call.write(simple_request())
        assert (await within_patience(call.read())).infer_response.outputs
        await asyncio.wait_for(served.app.stop(), 5.0)
        assert await refusal(call.read()) == (StatusCode.UNAVAILABLE, SHUTTING_DOWN)


async def test_metadata_and_configuration_say_how_to_ask(served: Served) -> None:
    found = await served.inference.ModelMetadata(pb.ModelMetadataRequest(name="tale"))
    tensors = [(t.name, t.datatype, list(t.shape)) for t in [*found.inputs, *found.outputs]]
    assert tensors == [
        ("text_input", "BYTES", [1]),
        ("stream", "BOOL", [1]),
        ("sampling_parameters", "BYTES", [1]),
        ("exclude_input_in_output", "BOOL", [1]),
        ("text_output", "BYTES", [-1]),
    ]
    config = (await served.inference.ModelConfig(pb.ModelConfigRequest(name="tale"))).config
    assert [tensor.optional for tensor in config.input] == [False, True, True, True]
    assert config.model_transaction_policy.decoupled
    assert config.max_batch_size == 0
