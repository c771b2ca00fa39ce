"""Log probabilities in the forms of completions, lists by token, and of chats, an object for each.

A token may be a part of a character. It is then spelled by its bytes, as OpenAI does.
"""

import codecs
from collections.abc import Iterable, Sequence
from typing import Any

from attendant.v1 import generation_pb2 as pb

LOWEST = -9999.0  # JSON has no infinity


class TokenTexts:
    """Writes the tokens of one output, in order; a stream writes them piece by piece."""

    def __init__(self, *, as_ids: bool) -> None:
        self._offset = 0  # characters before the next token
        self._as_ids = as_ids
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def written(
        self,
        found: Iterable[pb.TokenLogprob],
        *,
        prompt: Sequence[pb.TokenLogprob] = (),
        num_top: int = 0,
    ) -> dict[str, Any]:
        """The object of these tokens, which follow those before.

        Those of a prompt come first, each with its `num_top` likeliest; nothing precedes the first
        of them, so it has no probability.
        """
        written: dict[str, list[Any]] = {
            name: [] for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")
        }
        for place, token in enumerate(prompt):
            if place:
                self._write(written, token, token.top[:num_top])
            else:
                self._append(written, token, None, None)
        for token in found:
            self._write(written, token, token.top)
        return written

    def _write(
        self,
        written: dict[str, list[Any]],
        token: pb.TokenLogprob,
        likeliest: Iterable[pb.TokenLogprob],
    ) -> None:
        # Clients compare a token's number with the largest of its `top`, so they must be the same.
        logprob = max(token.logprob, LOWEST)
        top: dict[str, float] = {}
        for each in likeliest:  # best first: of tokens with the same text the likeliest counts
            top.setdefault(self._text(each), max(each.logprob, LOWEST))
        top.setdefault(self._text(token), logprob)
        self._append(written, token, logprob, top)

    def _append(
        self,
        written: dict[str, list[Any]],
        token: pb.TokenLogprob,
        logprob: float | None,
        top: dict[str, float] | None,
    ) -> None:
        written["tokens"].append(self._text(token))
        written["token_logprobs"].append(logprob)
        written["top_logprobs"].append(top)
        written["text_offset"].append(self._offset)
        self._offset += len(self._decoder.decode(token.token))

    def _text(self, token: pb.TokenLogprob) -> str:
        if self._as_ids:
            return f"token_id:{token.id}"
        try:
            return token.token.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.token)


def by_id(prompt: Iterable[pb.TokenLogprob], num_top: int) -> list[dict[str, Any] | None]:
    """The log probabilities of a prompt as vLLM writes them; none of its first token.

    The rank of a token is known where it is among the likeliest.
    """

    def one(token: pb.TokenLogprob, rank: int | None) -> dict[str, Any]:
        text = token.token.decode(errors="replace")
        return {"logprob": max(token.logprob, LOWEST), "rank": rank, "decoded_token": text}

    written: list[dict[str, Any] | None] = []
    for place, token in enumerate(prompt):
        top = {str(each.id): one(each, rank) for rank, each in enumerate(token.top[:num_top], 1)}
        top.setdefault(str(token.id), one(token, None))
        written.append(top if place else None)
    return written


def in_chat(tokens: Iterable[pb.TokenLogprob], *, as_ids: bool = False) -> dict[str, Any]:
    """The log probabilities of an output as chats have them: texts, and the bytes they are of.

    With `as_ids` a token is told by its id in place of its text, as in vLLM.
    """

    def one(token: pb.TokenLogprob) -> dict[str, Any]:
        return {
            "token": f"token_id:{token.id}" if as_ids else token.token.decode(errors="replace"),
            "logprob": max(token.logprob, LOWEST),
            "bytes": list(token.token),
        }

    content = [{**one(token), "top_logprobs": list(map(one, token.top))} for token in tokens]
    return {"content": content, "refusal": None}
