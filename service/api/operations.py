"""The table of operations: every method of the server by its path, with its messages and its call.

A path is gRPC's, `/package.Service/Method`, at every front: access groups, methods for
administration, logs and traces use it as the operation's name. A front finds an operation here,
gives its call a message and its caller, and writes what comes back.
"""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from tritonclient.grpc import service_pb2

from service.api.admission import Admission
from service.api.calls import Calls
from service.api.codec import Codec, reader, writer
from service.api.generation import GenerationCalls
from service.api.generation_messages import own_fields
from service.api.inference import InferenceCalls
from service.api.long_work import LONG_BYTES, LONG_SCORES
from service.api.model_list import ModelList
from service.api.regions import SharedMemoryRegions, Transfer
from service.api.services import OWN_DESCRIPTORS
from service.api.typed import TypedCalls
from service.calls.generation import GenerateChunk
from service.calls.methods import RECORDS
from service.observe.trace_files import Tracing
from service.repository.repository import ModelRepository
from service.serving.model import Caller
from service.serving.tasks.table import METHODS
from service.settings import Settings

# unary: `call(message, caller)` gives a message; with a codec `call(record, caller, build)` gives
# what `build` makes of the answer's record, on the thread that made it, or without `build` that.
# writing: `call(message, caller, write)` writes several, and with a codec records of a record.
# exchange: `call(exchange)` reads and writes several, see `infer_stream.Exchange`.
Kind: TypeAlias = Literal["unary", "writing", "exchange"]
INFERENCE: ServiceDescriptor = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
TYPED_PREFIX = "/attendant."
RunLong: TypeAlias = Callable[[Callable[[], Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One method: its messages, and the call that answers it."""

    path: str
    kind: Kind
    request: type[Message]
    response: type[Message]
    call: Callable[..., Any]  # a coroutine function, see `Kind`
    run_long: RunLong  # on the thread of long messages
    codec: Codec | None = None  # of a method whose call takes a record

    async def answer(self, message: Message, caller: Caller) -> Message:
        """The message with which a unary method answers one."""
        if (codec := self.codec) is None:
            answer: Message = await self.call(message, caller)
        else:
            answer = await self.call(await self._read(codec, message), caller, codec.write)
        return answer

    async def stream(
        self, message: Message, caller: Caller, write: Callable[[Message], Awaitable[None]]
    ) -> None:
        """Answer a message by those that are written."""
        codec = self.codec
        assert codec is not None, "its answers are records"

        async def write_record(chunk: GenerateChunk) -> None:
            if chunk.num_scores <= LONG_SCORES:
                await write(codec.write(chunk))
            else:
                await write(await self.run_long(lambda: codec.write(chunk)))

        await self.call(await self._read(codec, message), caller, write_record)

    async def _read(self, codec: Codec, message: Message) -> object:
        if codec.has_own and message.ByteSize() > LONG_BYTES:
            return await self.run_long(lambda: codec.read(message))
        return codec.read(message)

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def is_typed(self) -> bool:
        """Whether it is of our own API; its errors then have statuses of their own."""
        return self.path.startswith(TYPED_PREFIX)


Operations: TypeAlias = dict[str, Operation]


def server_operations(
    settings: Settings,
    repository: ModelRepository,
    admission: Admission,
    tracing: Tracing,
    calls: Calls,
) -> Operations:
    """All operations of one server by their paths, services together."""
    inference = InferenceCalls(
        repository, admission, settings.server_name, _transfer(settings), tracing, calls
    )
    generation = GenerationCalls(repository, admission)
    typed = TypedCalls(repository, admission, settings.max_texts)
    holders = generation, typed, ModelList(repository, settings.max_texts)

    def call_of(service: ServiceDescriptor, method: MethodDescriptor) -> Callable[..., Any]:
        if service is INFERENCE:
            call: Callable[..., Any] = getattr(inference, method.name)
            return call
        if method.name in METHODS:
            return typed.of_task(METHODS[method.name])
        holder = next(each for each in holders if hasattr(each, method.name))
        found: Callable[..., Any] = getattr(holder, method.name)
        return found

    def all_of() -> Iterator[Operation]:
        for service in (INFERENCE, *OWN_DESCRIPTORS):
            for method in service.methods:
                yield Operation(
                    path=f"/{service.full_name}/{method.name}",
                    kind=_kind(method),
                    request=GetMessageClass(method.input_type),
                    response=GetMessageClass(method.output_type),
                    call=call_of(service, method),
                    run_long=admission.run_long,
                    codec=_codec_of(method) if service is not INFERENCE else None,
                )

    return {operation.path: operation for operation in all_of()}


def _transfer(settings: Settings) -> Transfer:
    regions = SharedMemoryRegions(
        is_allowed=settings.allow_client_shm,
        max_regions=settings.max_shm_regions,
        max_bytes=settings.max_shm_bytes,
    )
    return Transfer(regions, settings.max_message_bytes, settings.max_message_parts)


def _codec_of(method: MethodDescriptor) -> Codec | None:
    """Both ways between messages and records, of a method that has records."""
    records = RECORDS.get(method.name)
    if records is None:
        return None
    request, response = map(GetMessageClass, (method.input_type, method.output_type))
    own = own_fields(method.input_type)
    return Codec(reader(request, records[0], own), writer(response, records[1]), bool(own))


def _kind(method: MethodDescriptor) -> Kind:
    if method.client_streaming:
        return "exchange"
    return "writing" if method.server_streaming else "unary"
