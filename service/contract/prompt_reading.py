"""Reading of a prompt's text as tokens: with special tokens or not, whole or cut. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PromptReading:
    """A request's options for reading its prompt, and the number of tokens that the model takes."""

    omits_special: bool = False  # the tokenizer adds no special tokens to a text
    num_kept: int | None = None  # tokens that a longer prompt is cut to; None: it is not cut
    keeps_beginning: bool = False  # what is kept of a longer prompt: its beginning, or its end
    max_tokens: int = 2**31 - 1  # a longer prompt is refused, after what is cut of it

    @property
    def kept_tokens(self) -> int | None:
        """The tokens that are kept at most, which the model takes; None where none is cut."""
        return None if self.num_kept is None else min(self.num_kept, self.max_tokens)

    def cut(self, token_ids: Sequence[T]) -> Sequence[T]:
        """The token ids that are left of a prompt."""
        most = self.kept_tokens
        if most is None or len(token_ids) <= most:
            return token_ids
        return token_ids[:most] if self.keeps_beginning else token_ids[len(token_ids) - most :]
