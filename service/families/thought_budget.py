"""The number of tokens that a model may think: behind them, the end of thoughts must come next.

Pure and of one sequence. Tokens are counted from the one behind the first marker on; markers are
not counted, nor are the tokens of an end marker that the model begins, unless it goes on otherwise.
Whatever the model was about to say, the tokens of the end marker follow the last token of the
budget, and then the answer.
"""

import codecs
import copy
from collections.abc import Callable, Sequence

from service.families.thoughts import ThoughtReader, Thoughts


class ThoughtBudget:
    """Follows one output, and says which token must come next, if one must."""

    def __init__(
        self,
        thoughts: Thoughts,
        num_tokens: int,
        end_ids: Sequence[int],
        bytes_of: Callable[[int], bytes],
    ) -> None:
        """`end_ids` are the tokens of the end marker; `bytes_of` spells special tokens too."""
        self._reader: ThoughtReader | None = ThoughtReader(thoughts)
        self._num_left, self._end_ids, self._bytes_of = num_tokens, end_ids, bytes_of
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._open: tuple[int, ...] = ()  # characters of each token that may be of an end marker
        self._forced: tuple[int, ...] = ()
        self._force_end()

    @property
    def forced(self) -> int | None:
        """The next token, whatever the model says; None where it is free."""
        return self._forced[0] if self._forced else None

    def take(self, token_id: int) -> None:
        """Count the output's next token."""
        self._forced = self._forced[1:]
        if self._reader is None:
            return
        was_inside = self._reader.is_inside
        text = self._decoder.decode(self._bytes_of(token_id))
        self._reader.read(text)
        if was_inside:
            self._open += (len(text),)
        while self._open and sum(self._open[1:]) >= self._reader.num_open:
            self._open, self._num_left = self._open[1:], self._num_left - 1
        if self._reader.is_over:
            self._reader = None
        else:
            self._force_end()

    def fork(self) -> "ThoughtBudget":
        """One that has counted the same, and goes on by itself."""
        other = copy.copy(self)
        other._reader = copy.copy(self._reader)  # noqa: SLF001 - of its own class
        other._decoder = copy.deepcopy(self._decoder)  # noqa: SLF001 - the same
        return other

    def _force_end(self) -> None:
        if self._reader is None or not self._reader.is_inside:
            return
        if self._num_left < 0 or not (self._num_left or self._open):
            self._forced, self._reader = tuple(self._end_ids), None
