"""Requests and answers of `ModelStreamInfer`, of a generative model above all."""

from typing import Any

import grpc
from tritonclient.grpc import service_pb2 as pb

from tests.fakes.serving import (
    Served,
    add_strings,
    strings_of,
    within_patience,
)

GREEDY = '{"temperature": 0, "max_tokens": 10}'


def prompt_request(
    prompt: str,
    *,
    id: str = "",  # noqa: A002 - the message's name for it
    stream: bool | None = True,
    sampling: str | None = GREEDY,
    wants_empty_final: bool = False,
) -> pb.ModelInferRequest:
    """A prompt as Triton's generative backends take it."""
    request = pb.ModelInferRequest(model_name="tale", id=id or prompt)
    add_strings(request, "text_input", prompt)
    if stream is not None:
        tensor = request.inputs.add(name="stream", datatype="BOOL", shape=[1])
        tensor.contents.bool_contents.append(stream)
    if sampling is not None:
        add_strings(request, "sampling_parameters", sampling)
    if wants_empty_final:
        request.parameters["triton_enable_empty_final_response"].bool_param = True
    return request


def open_stream(served: Served, *requests: pb.ModelInferRequest, **options: Any) -> Any:
    """A stream whose requests are all sent, and whose client sends no more."""
    return served.inference.ModelStreamInfer(iter(requests), **options)


async def answers(call: Any) -> list[pb.ModelStreamInferResponse]:
    """All responses until the stream ends well."""
    found = []
    while (response := await within_patience(call.read())) is not grpc.aio.EOF:
        found.append(response)
    return found


def is_final(response: pb.ModelStreamInferResponse) -> bool:
    value: bool = response.infer_response.parameters["triton_final_response"].bool_param
    return value


def texts_of(response: pb.ModelStreamInferResponse) -> list[str]:
    (output,) = response.infer_response.outputs
    assert (output.name, output.datatype) == ("text_output", "BYTES")
    return strings_of(response.infer_response)


def joined(responses: list[pb.ModelStreamInferResponse], id: str) -> str:  # noqa: A002
    own = [response for response in responses if response.infer_response.id == id]
    return "".join(texts_of(response)[0] for response in own if response.infer_response.outputs)


def add_bool(request: pb.ModelInferRequest, name: str, value: bool) -> None:
    tensor = request.inputs.add(name=name, datatype="BOOL", shape=[1])
    tensor.contents.bool_contents.append(value)
