"""Log probabilities in the form of completions: lists by token, and a text for each.

A token may be a part of a character. It is then spelled by its bytes, as OpenAI does.
"""

import codecs
from collections.abc import Iterable
from typing import Any

from attendant.v1 import generation_pb2 as pb

LOWEST = -9999.0  # JSON has no infinity


class TokenTexts:
    """Writes the tokens of one output, in order; a stream writes them piece by piece."""

    def __init__(self, offset: int, *, as_ids: bool) -> None:
        self._offset = offset  # characters before the next token
        self._as_ids = as_ids
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def written(self, found: Iterable[pb.TokenLogprob]) -> dict[str, Any]:
        """The object of these tokens, which follow those before."""
        written: dict[str, list[Any]] = {
            name: [] for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")
        }
        for token in found:
            text, logprob = self._text(token), max(token.logprob, LOWEST)
            top = {self._text(each): max(each.logprob, LOWEST) for each in token.top}
            top.setdefault(text, logprob)
            written["tokens"].append(text)
            written["token_logprobs"].append(logprob)
            written["top_logprobs"].append(top)
            written["text_offset"].append(self._offset)
            self._offset += len(self._decoder.decode(token.token))
        return written

    def _text(self, token: pb.TokenLogprob) -> str:
        if self._as_ids:
            return f"token_id:{token.id}"
        try:
            return token.token.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.token)
