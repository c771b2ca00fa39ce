"""A client has every method of the typed API, by its name and by its records."""

import pytest

from commands.ask.client.methods import message_of, method_named
from service.api.services import OWN_DESCRIPTORS
from service.calls.methods import RECORDS
from service.calls.record import Call

METHODS = {method.name: method for each in OWN_DESCRIPTORS for method in each.methods}


@pytest.mark.parametrize("name", METHODS)
def test_the_record_of_every_method_can_be_sent(name: str) -> None:
    kind, _ = RECORDS[name]
    call = kind(model="m") if issubclass(kind, Call) else kind()
    method, expected = method_named(name), METHODS[name]
    written = method.write(call)
    assert written == message_of(call)
    assert getattr(written, "model", "m") == "m"
    kinds = type(written).DESCRIPTOR, method.response.DESCRIPTOR
    assert kinds == (expected.input_type, expected.output_type)
