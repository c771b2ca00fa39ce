"""Log probabilities in the forms of completions, lists by token, and of chats, an object for each.

A token may be a part of a character. It is then spelled by its bytes, as OpenAI does.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from service.calls.generation import GeneratedText, TokenLogprob
from service.http.shared.token_parts import Part, TokenParts

LOWEST = -9999.0  # JSON has no infinity


class OutputTokens:
    """The tokens of one output, in order, as soon as their part of its text is certain.

    Those that a stop text cut off, with all of their text, are left out, as OpenAI does.
    """

    def __init__(self, offset: int = 0) -> None:
        self._parts: TokenParts[TokenLogprob] = TokenParts(offset)

    def read(self, output: GeneratedText) -> list[Part[TokenLogprob]]:
        """Log probabilities of a whole output, or of the next part of one that is streamed."""
        is_end = bool(output.finish_reason)
        parts = self._parts.read(_with_bytes(output.logprobs), output.text, is_end=is_end)
        if is_end and output.stop_reason and output.stop_token_id is None:
            while parts and not parts[-1].text:
                parts.pop()
        return parts


class TokenTexts:
    """Writes the tokens of one output, in order; a stream writes them piece by piece."""

    def __init__(self, *, as_ids: bool, echoed: str = "") -> None:
        """An output that stands behind a text that is `echoed`."""
        self._as_ids, self._echoed = as_ids, echoed
        self._output = OutputTokens(len(echoed))

    def written(
        self,
        output: GeneratedText,
        *,
        prompt: Sequence[TokenLogprob] = (),
        num_top: int = 0,
    ) -> dict[str, Any]:
        """The object of the tokens that are certain with this output, or with this part of it.

        Those of a prompt come first, each with its `num_top` likeliest; nothing precedes the first
        of them, so it has no probability.
        """
        written: dict[str, list[Any]] = {
            name: [] for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")
        }
        before: TokenParts[TokenLogprob] = TokenParts()
        for place, part in enumerate(before.read(_with_bytes(prompt), self._echoed, is_end=True)):
            if place:
                self._write(written, part, part.token.top[:num_top])
            else:
                self._append(written, part, None, None)
        for part in self._output.read(output):
            self._write(written, part, part.token.top)
        return written

    def _write(
        self,
        written: dict[str, list[Any]],
        part: Part[TokenLogprob],
        likeliest: Iterable[TokenLogprob],
    ) -> None:
        # Clients compare a token's number with the largest of its `top`, so they must be the same.
        token, text = part.token, self._text_in(part)
        logprob = max(token.logprob, LOWEST)
        top: dict[str, float] = {}
        for each in likeliest:  # best first: of tokens with the same text the likeliest counts
            spelled = text if each.id == token.id else self._text(each)
            top.setdefault(spelled, max(each.logprob, LOWEST))
        top.setdefault(text, logprob)
        self._append(written, part, logprob, top)

    def _append(
        self,
        written: dict[str, list[Any]],
        part: Part[TokenLogprob],
        logprob: float | None,
        top: dict[str, float] | None,
    ) -> None:
        written["tokens"].append(self._text_in(part))
        written["token_logprobs"].append(logprob)
        written["top_logprobs"].append(top)
        written["text_offset"].append(part.offset)

    def _text_in(self, part: Part[TokenLogprob]) -> str:
        """The token as its text has it: the first one's space may not be there."""
        text = self._text(part.token)
        return part.text if part.text and text == f" {part.text}" else text

    def _text(self, token: TokenLogprob) -> str:
        if self._as_ids:
            return f"token_id:{token.id}"
        try:
            return token.token.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.token)


def _with_bytes(
    tokens: Iterable[TokenLogprob],
) -> Iterator[tuple[TokenLogprob, bytes]]:
    return ((token, token.token) for token in tokens)


def by_id(prompt: Iterable[TokenLogprob], num_top: int) -> list[dict[str, Any] | None]:
    """The log probabilities of a prompt as vLLM writes them; none of its first token.

    The rank of a token is known where it is among the likeliest.
    """

    def one(token: TokenLogprob, rank: int | None) -> dict[str, Any]:
        text = token.token.decode(errors="replace")
        return {"logprob": max(token.logprob, LOWEST), "rank": rank, "decoded_token": text}

    written: list[dict[str, Any] | None] = []
    for place, token in enumerate(prompt):
        top = {str(each.id): one(each, rank) for rank, each in enumerate(token.top[:num_top], 1)}
        top.setdefault(str(token.id), one(token, None))
        written.append(top if place else None)
    return written


def in_chat(tokens: Iterable[TokenLogprob], *, as_ids: bool = False) -> dict[str, Any]:
    """The log probabilities of an output as chats have them: texts, and the bytes they are of.

    With `as_ids` a token is told by its id in place of its text, as in vLLM.
    """

    def one(token: TokenLogprob) -> dict[str, Any]:
        return {
            "token": f"token_id:{token.id}" if as_ids else token.token.decode(errors="replace"),
            "logprob": max(token.logprob, LOWEST),
            "bytes": list(token.token),
        }

    content = [{**one(token), "top_logprobs": list(map(one, token.top))} for token in tokens]
    return {"content": content, "refusal": None}
