"""Conversations: what is refused, and how much of them is counted."""

import pytest

from service.calls.conversation import Conversation
from service.errors import InvalidArgument

ASKED = {"role": "user", "content": "hello"}


def test_a_conversation_has_a_message() -> None:
    with pytest.raises(InvalidArgument, match=r"^messages is empty") as caught:
        Conversation([])
    assert caught.value.field == "messages"


def test_what_goes_on_with_a_message_begins_no_answer_behind_it() -> None:
    with pytest.raises(InvalidArgument, match=r"^continue_final_message is true") as caught:
        Conversation([ASKED], continues_last=True)
    assert caught.value.field == "continue_final_message"
    assert Conversation([ASKED], continues_last=True, has_answer_prompt=False).continues_last
    assert Conversation([ASKED]).has_answer_prompt


def test_every_text_and_every_name_counts() -> None:
    """A message has 4 + 4 + 7 + 5 characters, a tool 4 + 2 + 1 + 2, a variable 1 + 3."""
    tools = [{"name": ["ab", {"c": "de"}], "strict": True, "n": 7}]
    conversation = Conversation([ASKED], tools, {"v": "wxy"})
    assert Conversation([ASKED]).num_characters == 20
    assert conversation.num_characters == 20 + (9 + len("strict") + len("n")) + 4
