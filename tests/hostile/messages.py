"""The bodies of the typed API's paths as messages, which gRPC's port takes.

A name that JSON has and the message lacks, or a value of another type, is no message: such a body
has no counterpart here.
"""

from typing import Any

import grpc
from google.protobuf import symbol_database
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message

from tests.fakes.every_task import SERVICES

PREFIX = "/api/"
TIMEOUT_S = 180.0
MAX_BYTES = 2**30


def message_of(path: str, values: Any) -> tuple[str, bytes] | None:
    """The method and the serialized message that a body of `/api` is; None where it is none."""
    method, file = SERVICES[path.removeprefix(PREFIX)]
    service = file.DESCRIPTOR.services_by_name[method.split("/")[1].rpartition(".")[2]]
    kind = service.methods_by_name[path.removeprefix(PREFIX)].input_type
    message: Message = symbol_database.Default().GetSymbol(kind.full_name)()
    try:
        return method, ParseDict(values, message).SerializeToString()
    except ParseError:
        return None


class Caller:
    """Sends messages to a server's gRPC port, and reads the first answer."""

    def __init__(self, address: str) -> None:
        options = [
            ("grpc.max_send_message_length", MAX_BYTES),
            ("grpc.max_receive_message_length", MAX_BYTES),
        ]
        self._channel = grpc.insecure_channel(address, options=options)

    def post(self, method: str, message: bytes) -> tuple[int, str]:
        """The number of gRPC's status, and the beginning of the error's text."""
        stub: Any = self._channel.unary_stream(method)
        call = stub(message, timeout=TIMEOUT_S)
        try:
            for _ in call:
                pass
        except grpc.RpcError:
            pass
        return call.code().value[0], str(call.details() or "")[:300]
