"""When a sequence that arrives now would have its first token, by the durations of past steps.

Pure: no clock or thread. The engine's thread records steps, ended and running sequences; the event
loop reads the estimate. Each number is written by one of them and read whole by the other.

A slot becomes free when a running sequence ends. Its remaining tokens are estimated as the share of
`max_tokens` that earlier sequences used, at the measured time per token. Waiting sequences take
free slots in their order.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from service.backlog import SPARE_SHARE
from service.errors import WaitTooLong
from service.generation.sequence import Sequence
from service.pace import Trust

GAIN = 0.1  # of what a step or sequence tells, towards what is expected of the next
MAX_SURPRISE = 1.0  # of what was expected, in either direction, that one may count for
MIN_STEPS = 8  # of decoding, until their pace is believed


@dataclass(frozen=True, slots=True)
class Slots:
    """Of the cache, between two steps."""

    num_free: int
    tokens_left: tuple[float, ...] = ()  # of those that run, least first


@dataclass(frozen=True, slots=True)
class Ahead:
    """What goes before a sequence that comes now."""

    num_sequences: int
    num_tokens: int  # of prompts


class Outlook:
    """The pace of one engine's steps."""

    def __init__(self, num_slots: int) -> None:
        self.slots = Slots(num_slots)
        self.trust = Trust()  # the event loop's
        self._num_steps = 0
        self._token_s = 0.0  # between two tokens of a sequence, prompts of others included
        self._prompt_token_s = 0.0
        self._output_tokens = 0.0  # of sequences
        self._said_share = 1.0  # of the tokens that they might have said

    def decoded(self, interval_s: float) -> None:
        """A decoding step ended so long after the one before it."""
        self._num_steps += 1
        self._token_s = _moved(self._token_s, interval_s)

    def read(self, num_tokens: int, took_s: float) -> None:
        """Count the prompt tokens that a step computed."""
        self._prompt_token_s = _moved(self._prompt_token_s, took_s / num_tokens)

    def ended(self, sequence: Sequence) -> None:
        """A sequence said all that it had to say."""
        said = sequence.num_output_tokens
        self._output_tokens = _moved(self._output_tokens, said)
        self._said_share = _moved(self._said_share, said / sequence.request.max_tokens)

    def look(self, num_free: int, running: Iterable[Sequence]) -> None:
        """Note the slots, between two steps."""
        share = self._said_share
        left = sorted(max(1.0, share * each.num_output_tokens_left) for each in running)
        self.slots = Slots(num_free, tuple(left))

    def prompt_s(self, num_tokens: int) -> float:
        """What computing a prompt takes."""
        return num_tokens * self._prompt_token_s

    def begins_s(self, ahead: Ahead) -> float:
        """Until a sequence that comes now has a slot, and the prompts ahead are computed."""
        return max(self._slot_s(ahead.num_sequences), self.prompt_s(ahead.num_tokens))

    def check(
        self,
        ahead: Ahead,
        num_prompt_tokens: int,
        now_s: float,
        deadline_s: float | None,
        max_wait_s: float,
    ) -> float:
        """Raise `WaitTooLong`, or return the seconds to the first token; 0: not known."""
        is_first = self.slots.num_free > 0 and not ahead.num_sequences
        if is_first or self._num_steps < MIN_STEPS:
            return 0.0
        begins_s = self.begins_s(ahead)
        wait_s = self.trust.factor * begins_s
        if wait_s > max_wait_s:
            raise WaitTooLong(wait_s, max_wait_s, "wait")
        # The step under way goes before it too.
        first_token_s = begins_s + self._token_s + self.prompt_s(num_prompt_tokens)
        if deadline_s is not None:
            left_s = deadline_s - now_s
            expected_s = self.trust.factor * first_token_s
            if expected_s > left_s * (1 - SPARE_SHARE):
                raise WaitTooLong(expected_s, left_s, "deadline")
        return first_token_s

    def _slot_s(self, num_ahead: int) -> float:
        slots = self.slots
        place = num_ahead - slots.num_free  # among those that take slots which get free
        if place < 0 or not slots.tokens_left:
            return 0.0
        num_rounds, place = divmod(place, len(slots.tokens_left))
        num_tokens = num_rounds * self._output_tokens + slots.tokens_left[place]
        return num_tokens * self._token_s


def _moved(before: float, told: float) -> float:
    """A mean that follows what is told, and jumps at nothing; the first is taken as it is."""
    if not before:
        return told
    most = MAX_SURPRISE * before
    return before + GAIN * min(most, max(-most, told - before))
