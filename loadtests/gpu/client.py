"""Calls of a server as users of tritonclient write them, and its metrics."""

import json
import queue
import time
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from prometheus_client.parser import text_string_to_metric_families
from tritonclient import grpc as triton

LIMIT_S = 60.0  # of every call: nothing may hang
POLL_S = 0.02


def connect(address: str) -> Any:
    """A client, to be used as a context."""
    return triton.InferenceServerClient(address)


def infer_texts(client: Any, model: str, texts: Sequence[str], output: str) -> np.ndarray:
    """An output [texts, values] of a text model."""
    values = np.array([text.encode() for text in texts], object).reshape(-1, 1)
    tensor = triton.InferInput("text", list(values.shape), "BYTES")
    tensor.set_data_from_numpy(values)
    reply: np.ndarray = client.infer(model, [tensor], client_timeout=LIMIT_S).as_numpy(output)
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


def metric(url: str, name: str, model: str) -> float:
    """A metric of a model, its other labels summed over; `KeyError` where it has no samples."""
    with urllib.request.urlopen(url, timeout=10) as page:  # noqa: S310 - our own server
        families = text_string_to_metric_families(page.read().decode())
    values = [
        float(sample.value)
        for family in families
        for sample in family.samples
        if sample.name == name and sample.labels.get("model") == model
    ]
    if not values:
        raise KeyError(f"{name} of {model}")
    return sum(values)


def wait_for(url: str, name: str, model: str, value: float, limit_s: float) -> float:
    """Seconds until a metric has a value; infinite where it does not reach it in time."""
    started_s = time.monotonic()
    while metric(url, name, model) != value:
        if time.monotonic() - started_s > limit_s:
            return float("inf")
        time.sleep(POLL_S)
    return time.monotonic() - started_s
