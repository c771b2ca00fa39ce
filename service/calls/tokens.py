"""Calls about tokens: those of texts or of a conversation, and the text that tokens stand for."""

from collections.abc import Collection, Sequence
from typing import Annotated

import msgspec

from service.calls.answers import Answered, Token
from service.calls.conversation import Conversation
from service.calls.record import Call, Texts, said


class Tokenize(Call, frozen=True):
    """Texts, or a conversation, whose tokens are asked for."""

    texts: Annotated[Texts, said("Texts to read.", counted=True, also={"openai": "prompt"})] = ()
    omit_special_tokens: Annotated[bool, said("Leave out the special tokens around each text.")] = (
        False
    )
    conversation: Annotated[
        Conversation | None,
        said("In place of texts: the messages of a chat.", also={"openai": "messages"}),
    ] = None


class TokenizedText(msgspec.Struct, frozen=True):
    """The tokens of one text, each made as it is read."""

    tokens: Collection[Token]
    num_tokens: int
    is_too_long: bool


class Tokenized(Answered, frozen=True, kw_only=True):
    """The tokens of all texts, in their order."""

    num_tokens: int
    results: Sequence[TokenizedText]


class Detokenize(Call, frozen=True):
    """Tokens whose text is asked for."""

    token_ids: Annotated[
        Sequence[int], said("The tokens of one text.", also={"openai": "tokens"})
    ] = ()


class Detokenized(msgspec.Struct, frozen=True, kw_only=True):
    """The text that tokens stand for."""

    model: str
    version: str
    text: str
