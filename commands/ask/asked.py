"""A command line that was read: the request, its server, and how the answers are printed."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from commands.ask.client.client import Client
from commands.ask.files import Files
from commands.ask.options import Server, console


@dataclass(frozen=True, slots=True)
class Asked:
    """A command line that was read, as a command's body has it beside parameters of its own."""

    record: Any  # of a request, or None
    fields: Mapping[str, Any]  # of that record, without texts
    texts: Sequence[str] | None
    server: Server
    draw: Any  # answers, as a table
    draw_rows: Any
    files: Files | None
    as_json: bool = False
    as_ndjson: bool = False

    def call(self, **more: Any) -> Any:
        """The request, with further fields."""
        return self.record(**{**self.fields, **more})

    @property
    def is_json(self) -> bool:
        return self.as_json or self.as_ndjson

    @property
    def given(self) -> Sequence[str]:
        """The texts of a command that must be given some."""
        assert self.texts is not None, "an argument that must be given"
        return self.texts

    def client(self) -> Client:
        return Client(*self.server)

    def show(self, answer: Any, draw: Callable[[Any], Any]) -> None:
        """Print an answer as JSON, or as what `draw` returns."""
        from commands.ask.message_json import json_fields  # protobuf

        if self.as_json:
            print(json.dumps(json_fields(answer), ensure_ascii=False))  # noqa: T201
        else:
            console.print(draw(answer))
