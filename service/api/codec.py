"""Messages of protobuf to records and back, by the names of their fields; the .proto is published.

Both sides use it: a server reads requests and writes answers, a client writes requests and reads
answers. Made once per method, when the server starts or a client first asks: a name that one side
alone has stops the start. What is alike stays what it is: lists of a request's message are its
record's as they are; an answer's are copied, as its record is kept.

Rows of float32 are copied as bytes: a message's own list makes an object of each number. A repeated
float is written as its number, its size and its values in little-endian float32, so that a row of
NumPy's is a message's bytes but for the beginning. See
https://protobuf.dev/programming-guides/encoding/#packed
"""

from collections.abc import Callable, Collection, Mapping
from inspect import Parameter, signature
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, get_args, get_origin, get_type_hints

import msgspec
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from msgspec import to_builtins

from service.api.wire import bytes_prefix
from service.calls.answers import Values
from service.calls.record import Call

if TYPE_CHECKING:  # imported where there are rows: most commands have none, and start without it
    import numpy as np

Convert: TypeAlias = Callable[[Any], Any]
Record: TypeAlias = type[msgspec.Struct]


class Codec(NamedTuple):
    """Both ways between a method's messages and its records."""

    read: Convert  # a request's message to its record; raises what the record raises
    write: Convert  # an answer's record to its message, or that of a piece of it
    has_own: bool = False  # fields that take long to read where the message is long


class Own(NamedTuple):
    """Both ways of a record's field that the names of the message's fields do not give."""

    read: Convert  # the whole message to the field's value
    write: Convert  # the field's value to values of the message's fields, by their names


def reader(kind: type[Message], record: Record, own: Mapping[str, Own] = {}) -> Convert:
    """A function from messages to records. Raises `TypeError` where their fields differ.

    The record has the names of enumerated values: an empty text for the first of them, and an
    unknown number as it is. An optional field that the message leaves out is None. `own` has the
    ways of fields by their names.
    """
    descriptor: Any = kind.DESCRIPTOR
    return _reader(descriptor, record, own)


def _reader(message: Descriptor, record: Record, own: Mapping[str, Own] = {}) -> Convert:
    fields, hints = fields_of(message, record), get_type_hints(record)
    names = [name for name in record.__struct_fields__ if name not in own]
    get = attrgetter(*names) if len(names) > 1 else lambda each: [getattr(each, n) for n in names]
    optional = [
        (place, name)
        for place, name in enumerate(names)
        if fields[name].has_presence and type(None) in get_args(hints[name])
    ]
    further = [(place, own[n].read) for place, n in enumerate(record.__struct_fields__) if n in own]
    make, is_call = _by_place(record), issubclass(record, Call)

    def read(message: Message) -> msgspec.Struct:
        values = list(get(message))
        for place, how in converts:
            values[place] = how(values[place])
        for place, name in optional:
            if not message.HasField(name):
                values[place] = None
        for place, how in further:
            values.insert(place, how(message))
        made: msgspec.Struct = make(*values)
        return made

    def read_of(name: str) -> Convert | None:
        if _has_record(fields[name]) and _record_in(hints[name]) is record:  # in itself
            return lambda rows: [read(row) for row in rows]
        return _read(fields[name], hints[name], is_call=is_call)

    converts = [(place, how) for place, name in enumerate(names) if (how := read_of(name))]
    return read


def _by_place(record: Record) -> Callable[..., Any]:
    """The record's constructor by the places of its fields, also where it takes names alone."""
    kinds = {each.kind for each in signature(record).parameters.values()}
    if Parameter.KEYWORD_ONLY not in kinds:
        return record
    return lambda *values: record(**dict(zip(record.__struct_fields__, values, strict=True)))


def writer(kind: type[Message], record: Record, own: Mapping[str, Own] = {}) -> Convert:
    """A function from records to messages. Raises `TypeError` where their fields differ."""
    descriptor: Any = kind.DESCRIPTOR
    return _writer(descriptor, record, own)(kind)


def packed(number: int, values: "np.ndarray") -> bytes:
    """The bytes of a message that has values in the field of that number, and nothing else."""
    raw = values.astype("<f4", copy=False).tobytes()
    return bytes_prefix(number, len(raw)) + raw


def fields_of(
    message: Descriptor, record: Record, beside: Collection[str] = ()
) -> dict[str, FieldDescriptor]:
    """The fields of a message by the record's names: those of which one is set are one.

    Raises `TypeError` where the names differ; the record has those in `beside` for itself.
    """
    fields = {}
    for field in message.fields:
        group = field.containing_oneof
        fields[field.name if group is None or len(group.fields) < 2 else group.name] = field
    if differing := fields.keys() ^ set(record.__struct_fields__) - set(beside):
        raise TypeError(f"{record.__name__} and {message.name} differ in {sorted(differing)}")
    return fields


def _read(field: FieldDescriptor, hint: object, *, is_call: bool) -> Convert | None:
    """Function that makes a record's value of a message's; None where they are the same."""
    if field.enum_type is not None:
        names = names_of(field.enum_type)
        if field.is_repeated:
            return lambda numbers: [names.get(each, each) for each in numbers]
        return lambda number: names.get(number, number)
    if _is_row(field) and hint == Values:
        import numpy as np

        return lambda numbers: np.array(numbers, np.float32)
    if _has_ids(field):
        (only,) = field.message_type.fields
        return lambda rows: [getattr(row, only.name) for row in rows]
    if _has_record(field):
        read = _reader(field.message_type, _record_in(hint))
        return (lambda rows: [read(row) for row in rows]) if field.is_repeated else read
    if field.message_type is not None:
        return dict
    return list if field.is_repeated and not is_call else None


def names_of(kind: EnumDescriptor) -> dict[int, str | int]:
    """`LAYERS_SUM_ALL` is "sum_all"."""
    prefix = kind.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return {
        value.number: value.name.removeprefix(prefix).lower() if value.number else ""
        for value in kind.values
    }


def _writer(
    message: Descriptor, record: Record, own: Mapping[str, Own] = {}
) -> Callable[[Callable[..., Any]], Convert]:
    """Maker of a function from records to messages, given their class or a field's `add`."""
    every, hints = fields_of(message, record), get_type_hints(record)
    fields = {name: field for name, field in every.items() if name not in own}
    converts = [(name, how) for name, field in fields.items() if (how := _written(field))]
    if not own and _is_plain(message, record):
        return _plain_writer(converts)
    inner = {
        name: _writer(field.message_type, _record_in(hints[name]))
        for name, field in fields.items()
        if _has_record(field)
    }
    lists = [(name, of) for name, of in inner.items() if fields[name].is_repeated]
    alone = [
        (name, of(GetMessageClass(fields[name].message_type)))
        for name, of in inner.items()
        if not fields[name].is_repeated
    ]
    if arrays := [(name, field.number) for name, field in fields.items() if _is_row(field)]:
        import numpy as np
    apart = {name for name, _ in arrays} | inner.keys() | own.keys()
    plain = [name for name in record.__struct_fields__ if name not in apart]

    def of(make: Callable[..., Message]) -> Convert:
        def write(answer: msgspec.Struct) -> Message:
            values = {name: getattr(answer, name) for name in plain}
            for name, how in converts:
                values[name] = how(values[name])
            for name, written_of in alone:
                if (value := getattr(answer, name)) is not None:
                    values[name] = written_of(value)
            for name, (_, fields_in) in own.items():
                values |= fields_in(getattr(answer, name))
            written = make(**values)
            for name, number in arrays:
                if len(row := getattr(answer, name)):
                    written.MergeFromString(packed(number, np.asarray(row)))
            for name, writer_to in lists:
                if rows := getattr(answer, name):
                    write_row = writer_to(getattr(written, name).add)
                    for row in rows:
                        write_row(row)
            return written

        return write

    return of


def _plain_writer(converts: list[tuple[str, Convert]]) -> Callable[..., Convert]:
    """Maker of a function from records whose values are a message's, but for enumerations."""

    def of(make: Callable[..., Message]) -> Convert:
        def write(answer: msgspec.Struct) -> Message:
            values = to_builtins(answer, builtin_types=(bytes,), enc_hook=list)
            for name, how in converts:
                if name in values:  # records may leave out defaults, which are the message's
                    values[name] = how(values[name])
            return make(**values)

        return write

    return of


def _written(field: FieldDescriptor) -> Convert | None:
    """Function that makes a message's value of a record's; None where they are the same."""
    if field.enum_type is not None:
        numbers = {name: number for number, name in names_of(field.enum_type).items()}
        if field.is_repeated:
            return lambda names: [numbers.get(each, each) for each in names]
        return lambda name: numbers.get(name, name)
    if _has_ids(field):
        (only,) = field.message_type.fields
        return lambda rows: [{only.name: row} for row in rows]
    return None


def _is_plain(message: Descriptor, record: Record, around: tuple[Descriptor, ...] = ()) -> bool:
    """Whether values are as a message's constructor takes them, in records inside too.

    Enumerated values are not, but for those that are in no record inside.
    """
    if message in around:  # a record in itself
        return True
    hints = get_type_hints(record)
    return not any(
        (_written(field) and around)
        or _is_row(field)
        or get_origin(hints[field.name]) is Collection  # made as it is read
        or (
            _has_record(field)
            and not _is_plain(field.message_type, _record_in(hints[field.name]), (*around, message))
        )
        for field in message.fields
    )


def _has_record(field: FieldDescriptor) -> bool:
    """Whether a field is of messages that are records; a map's entries are messages to protobuf."""
    kind = field.message_type
    return kind is not None and not kind.GetOptions().map_entry and not _has_ids(field)


def _has_ids(field: FieldDescriptor) -> bool:
    """Whether a field is of lists of whole numbers, which protobuf needs a message for."""
    kind = field.message_type
    return kind is not None and [each.name for each in kind.fields] == ["ids"]


def _is_row(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated) and field.type == FieldDescriptor.TYPE_FLOAT


def _record_in(hint: object) -> Record:  # a type
    """The record that a field has, alone or in a list. Raises `TypeError` where it has none."""
    for each in (hint, *get_args(hint)):
        if isinstance(each, type) and issubclass(each, msgspec.Struct):
            return each
    raise TypeError(f"{hint} has no record: it needs ways of its own")
