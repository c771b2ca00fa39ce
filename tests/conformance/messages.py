"""Requests as raw messages, and what came of them, by either method."""

from collections.abc import Callable
from typing import TypeAlias

import grpc
import numpy as np
import pytest
from tritonclient import grpc as triton
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

LIMIT_S = 30.0  # of every call: nothing may hang
SERVICE = "/inference.GRPCInferenceService/"
Stub: TypeAlias = service_pb2_grpc.GRPCInferenceServiceStub


def simple(num_rows: int = 1, model: str = "simple") -> pb.ModelInferRequest:
    """Two raw inputs of INT32: 0 to 15 in each row, and ones."""
    request = pb.ModelInferRequest(model_name=model)
    counting = np.tile(np.arange(16, dtype="<i4"), (num_rows, 1))
    for name, array in (("INPUT0", counting), ("INPUT1", np.ones_like(counting))):
        request.inputs.add(name=name, datatype="INT32", shape=array.shape)
        request.raw_input_contents.append(array.tobytes())
    return request


def identity(datatype: str, shape: list[int], raw: bytes) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name=f"identity_{datatype.lower()}")
    request.inputs.add(name="INPUT0", datatype=datatype, shape=shape)
    request.raw_input_contents.append(raw)
    return request


def refusal(stub: Stub, request: pb.ModelInferRequest) -> tuple[str, str]:
    """Status and text of a unary call that must fail."""
    try:
        answer = stub.ModelInfer(request, timeout=LIMIT_S)
    except grpc.RpcError as error:
        return error.code().name, error.details() or ""
    raise AssertionError(f"answered, with {[tensor.name for tensor in answer.outputs]}")


def call_raw(channel: grpc.Channel, method: str, message: bytes) -> bytes:
    """A unary call whose messages are neither encoded nor decoded."""
    call: Callable[..., bytes] = channel.unary_unary(SERVICE + method)
    return call(message, timeout=LIMIT_S)


def streamed(stub: Stub, *requests: pb.ModelInferRequest) -> list[pb.ModelStreamInferResponse]:
    """Everything that one stream answers; its status must be OK."""
    return list(stub.ModelStreamInfer(iter(requests), timeout=LIMIT_S))


def refused(code: str, text: str = "") -> "pytest.RaisesExc[triton.InferenceServerException]":
    """A context in which a tritonclient must be refused."""
    return pytest.raises(
        triton.InferenceServerException,
        check=lambda error: error.status() == f"StatusCode.{code}" and text in error.message(),
    )
