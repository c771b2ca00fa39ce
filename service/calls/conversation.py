"""A conversation that a client sends. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages to answer, plain values as a template reads them."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()  # JSON schemas of functions
    variables: Mapping[str, Any] = field(default_factory=dict)  # more for the template
    needed_variables: Sequence[str] = ()  # of these, those that the template must read
    has_answer_prompt: bool = True  # the beginning of an answer follows the messages
    continues_last: bool = False  # the last message is to be continued, not answered

    def __post_init__(self) -> None:
        if not self.messages:
            raise InvalidArgument("messages is empty, expected at least one message", "messages")
        if self.continues_last and self.has_answer_prompt:
            raise InvalidArgument(
                "continue_final_message is true, expected no beginning of an answer behind it",
                "continue_final_message",
            )

    @property
    def num_characters(self) -> int:
        """The characters of all texts in it, names included."""
        return sum(map(_num_characters, (*self.messages, *self.tools, self.variables)))


def _num_characters(value: Any) -> int:  # noqa: ANN401 - plain values
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(map(_num_characters, value.keys())) + sum(map(_num_characters, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_num_characters, value))
    return 0
