"""Server reflection: lists the services, for tools like `grpcurl`.

Clients ask `grpc.reflection.v1` first. The package grpcio-reflection has its forerunner v1alpha
only, whose messages are the same but for the name of their package: one servicer answers both.
"""

from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf import descriptor_pool, text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha import reflection_pb2 as pb

from service.api.services import REFLECT, REFLECTION_SERVICES


def add_reflection(service_names: Iterable[str], server: Any) -> None:  # noqa: ANN401
    """Register both versions; they list `service_names`."""
    _declare_v1()
    handler = grpc.stream_stream_rpc_method_handler(
        reflection.aio.ReflectionServicer(service_names).ServerReflectionInfo,
        request_deserializer=pb.ServerReflectionRequest.FromString,
        response_serializer=pb.ServerReflectionResponse.SerializeToString,
    )
    for name in REFLECTION_SERVICES:
        methods = grpc.method_handlers_generic_handler(name, {REFLECT: handler})
        server.add_generic_rpc_handlers((methods,))


def _declare_v1() -> None:
    """Let v1 be described, too: clients ask what every service that is listed looks like."""
    file = FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(file)
    text = text_format.MessageToString(file).replace("v1alpha", "v1")
    described = text_format.Parse(text, FileDescriptorProto())
    pool = descriptor_pool.Default()  # type: ignore[no-untyped-call]
    pool.AddSerializedFile(described.SerializeToString())
