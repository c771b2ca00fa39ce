"""Calls of a server as users of tritonclient write them, and its metrics."""

import json
import queue
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tritonclient import grpc as triton

from loadtests.measure.batching import read_samples

LIMIT_S = 60.0  # of every call: nothing may hang
POLL_S = 0.02


def connect(address: str) -> Any:
    """A client, to be used as a context."""
    return triton.InferenceServerClient(address)


def infer_texts(client: Any, model: str, texts: Sequence[str], output: str) -> np.ndarray:
    """An output [texts, values] of a text model."""
    values = np.array([text.encode() for text in texts], object).reshape(-1, 1)
    reply: np.ndarray = client.infer(
        model, [_tensor("text", "BYTES", values)], client_timeout=LIMIT_S
    ).as_numpy(output)
    return reply


def generate(client: Any, model: str, prompt: str, params: dict[str, Any]) -> str:
    """The text behind a prompt, in one answer."""
    inputs = _generation_inputs(prompt, params, can_stream=False)
    reply = client.infer(model, inputs, client_timeout=LIMIT_S)
    return str(reply.as_numpy("text_output")[0].decode())


class Streamed:
    """A text as it is generated: iterate over its pieces, or cancel it."""

    def __init__(self, client: Any, model: str, prompt: str, params: dict[str, Any]) -> None:
        self._client = client
        self._answers: queue.Queue[tuple[Any, Exception | None]] = queue.Queue()
        client.start_stream(lambda result, error: self._answers.put((result, error)))
        inputs = _generation_inputs(prompt, params, can_stream=True)
        client.async_stream_infer(model, inputs, enable_empty_final_response=True)

    def __iter__(self) -> Iterator[str]:
        """Pieces up to the end; raises what the server answers with."""
        while True:
            result, error = self._answers.get(timeout=LIMIT_S)
            if error is not None:
                raise error
            if result.get_response().parameters["triton_final_response"].bool_param:
                return
            yield result.as_numpy("text_output")[0].decode()

    def close(self, *, cancels: bool = False) -> None:
        self._client.stop_stream(cancel_requests=cancels)


def _generation_inputs(prompt: str, params: dict[str, Any], *, can_stream: bool) -> list[Any]:
    return [
        _tensor("text_input", "BYTES", np.array([prompt.encode()], object)),
        _tensor("stream", "BOOL", np.array([can_stream])),
        _tensor("sampling_parameters", "BYTES", np.array([json.dumps(params).encode()], object)),
        _tensor("exclude_input_in_output", "BOOL", np.array([True])),
    ]


def _tensor(name: str, datatype: str, values: np.ndarray) -> Any:
    tensor = triton.InferInput(name, list(values.shape), datatype)
    tensor.set_data_from_numpy(values)
    return tensor


def metric(url: str, name: str, model: str) -> float:
    """A metric of a model, its other labels summed over; `KeyError` where it has no samples."""
    samples = [each for each in read_samples(url) if each.name == name]
    values = [each.value for each in samples if each.labels.get("model") == model]
    if not values:
        raise KeyError(f"{name} of {model}")
    return float(sum(values))


def wait_for(url: str, name: str, model: str, value: float, limit_s: float) -> float:
    """Seconds until a metric has a value; infinite where it does not reach it in time."""
    started_s = time.monotonic()
    while metric(url, name, model) != value:
        if time.monotonic() - started_s > limit_s:
            return float("inf")
        time.sleep(POLL_S)
    return time.monotonic() - started_s
