"""A model that takes tensors and gives tensors, as its graph does."""

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from service.batching.engine import BatchEngine
from service.batching.request import Item, Request
from service.contract.interface import ModelInterface
from service.contract.tensors import Arrays, Signature, reshaped
from service.errors import (
    ModelFailed,
)
from service.records import EndedRequest, Timings, current_call
from service.serving.model import Host, InferReply, InferRequest, ServedModel
from service.serving.tasks.task import decode

T = TypeVar("T")


class BatchedModel(ServedModel):
    """A model whose requests are batches' items. Subclasses implement `_compute_reply`.

    With a cache, repeated requests are answered from it without waiting. Two
    alike at one time may both be computed.
    """

    def __init__(self, host: Host, interface: ModelInterface, engine: BatchEngine) -> None:
        super().__init__(host, interface, engine)
        self._batches = engine
        self._cache = host.cache_for(interface)
        self._has_rows = interface.has_rows
        self._output_names = [spec.name for spec in self.signature.outputs]

    async def infer(self, request: InferRequest) -> InferReply:
        if self._cache is None:
            return await self._compute_reply(request)
        began_s = time.monotonic()
        parameters = {**request.parameters, "truncate": request.can_truncate}
        key = self._cache.key_of(request.inputs, parameters)
        outputs = self._cache.get(key) if key else None
        now_s = time.monotonic()
        lookup_s = now_s - began_s
        if outputs is not None:
            timings = Timings.without_batch(request.caller.received_s, now_s)
            if (call := current_call.get()) is not None:
                call.is_cached, call.version = True, str(self.version)
            self._report(EndedRequest(timings, 0, request.caller.request_id, lookup_s))
            return InferReply(outputs, timings)
        reply = await self._compute_reply(request)
        computed_s = time.monotonic()
        if key:
            self._cache.put(key, reply.outputs)
        self._metrics.missed_cache(lookup_s + time.monotonic() - computed_s)
        return reply

    async def _compute_reply(self, request: InferRequest) -> InferReply:
        raise NotImplementedError

    async def _run(
        self, request: Request, request_id: str, read: Callable[[list[list[np.ndarray]]], T]
    ) -> T:
        """Run and count one request; `read` makes of its items' outputs what is answered.

        The caller counts failures.
        """
        self._note_call(request)
        num_rows = request.num_rows
        answer = read(await self._batches.run(request))
        self._report(EndedRequest(request.timings, num_rows, request_id))
        return answer

    def _note_call(self, request: Request) -> None:
        """Let the record of the current call know its request's times."""
        call = current_call.get()
        if call is not None:
            request.call = call
            call.timings, call.version = request.timings, str(self.version)


class TensorModel(BatchedModel):
    """Any graph: the inputs of one call are concatenated with others of equal shape."""

    async def _compute_reply(self, request: InferRequest) -> InferReply:
        running = request.caller.new_request()
        with self.counted_failures(request.caller.received_s):
            inputs = to_graph(request.inputs, self.signature, self._has_rows)
            if not request.num_rows:
                return self._empty_reply(request)
            shapes = tuple(
                [  # None: an optional input that is left to the graph
                    inputs[spec.name].shape[1:] if spec.name in inputs else None
                    for spec in self.signature.inputs
                ]
            )
            item = Item(running, inputs, request.num_rows, 1, shapes)
            running.items = (item,)
            outputs = await self._run(running, request.caller.request_id, self._outputs_of)
        return InferReply(outputs, running.timings)

    def _outputs_of(self, results: list[list[np.ndarray]]) -> dict[str, np.ndarray]:
        (outputs,) = results
        named = dict(zip(self._output_names, outputs, strict=True))
        return from_graph(named, self.signature, self._has_rows)

    def _empty_reply(self, request: InferRequest) -> InferReply:
        """The answer to no rows, without a run; dimensions that only a run could tell are 0."""
        outputs = {
            spec.name: np.empty((0, *(max(0, dim) for dim in spec.dims)), spec.datatype.dtype)
            for spec in self.signature.outputs
        }
        now_s = time.monotonic()
        timings = Timings.without_batch(request.caller.received_s, now_s)
        self._report(EndedRequest(timings, 0, request.caller.request_id))
        return InferReply(outputs, timings)


def to_graph(inputs: Arrays, signature: Signature, has_rows: bool) -> dict[str, np.ndarray]:
    """A client's checked arrays as the session takes them."""
    specs = {spec.name: spec for spec in signature.inputs}
    return {
        name: _to_session_array(
            array
            if (shape := specs[name].reshape) is None
            else reshaped(array, specs[name].dims, shape, has_rows)
        )
        for name, array in inputs.items()
    }


def from_graph(outputs: Arrays, signature: Signature, has_rows: bool) -> dict[str, np.ndarray]:
    """A session's arrays as clients see them, or `ModelFailed` where one cannot be that."""
    tensors = dict(outputs)
    for spec in signature.outputs:
        if spec.reshape is not None:
            try:
                tensors[spec.name] = reshaped(tensors[spec.name], spec.reshape, spec.dims, has_rows)
            except ValueError as error:
                raise ModelFailed(f"output '{spec.name}' of the graph {error}") from error
    return tensors


def _to_session_array(array: np.ndarray) -> np.ndarray:
    """ONNX Runtime's Python API takes strings as `str` objects only."""
    if array.dtype != object:
        return array
    return np.array(decode(array), object).reshape(array.shape)
