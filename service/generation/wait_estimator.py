"""When a sequence that arrives now would begin and end, by the durations of past steps.

Pure: no clock or thread. The engine's thread records steps, ended and running sequences; the event
loop reads the estimate. Each number is written by one of them and read whole by the other.

A slot becomes free when a running sequence ends. Its remaining tokens are estimated as the share of
`max_tokens` that earlier sequences used, at the measured time per token. Waiting sequences take
free slots in their order. A step takes longer the more sequences run: an output's end is expected
at the pace of as many as will run beside it.

Prompts are read in their order too, also what is left of those that have a slot. A run takes so
many of their tokens, and between two runs there is a step of the sequences that generate: of those
that do already, and of those whose prompts are read meanwhile.

A request is refused for its deadline where other requests are what makes it late. One that could
not end in time on an idle server either is admitted: its stream delivers tokens until the deadline.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from service.errors import TooEarly, WaitTooLong
from service.generation.sequence import GenerationRequest, Sequence
from service.runtime.cost import CostCurve
from service.runtime.pace import (
    SPARE_SHARE,
    USUAL_LATE_SHARE,
    USUAL_RISE,
    Prices,
    Trust,
    Work,
)

GAIN = 0.1  # of what a step or sequence tells, towards what is expected of the next
MAX_SURPRISE = 1.0  # of what was expected, in either direction, that one may count for
MIN_STEPS = 8  # of decoding, until their pace is believed
END_RISE = 1.5  # of the trust in ends: all that run are late together, and few end in a second
STEP_ROWS = 16.0  # rows whose work takes as long as a step's overhead, until steps are measured
PROMPT_TOKENS = 16.0  # of prompts, likewise: short prompts must not price long ones by the token


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of the cache between two steps."""

    num_free: int
    tokens_left: tuple[float, ...] = ()  # of those that run, least first
    num_unread: int = 0  # tokens of their prompts that are to be computed


@dataclass(frozen=True, slots=True)
class Ahead:
    """The sequences and prompt tokens ahead of a new sequence."""

    num_sequences: int
    num_tokens: int  # of prompts


@dataclass(frozen=True, slots=True)
class Demand:
    """A request's demand on the engine."""

    num_prompt_tokens: int = 1
    max_tokens: int = 1  # of output
    num_rows: int = 1  # of a step, while it runs

    @classmethod
    def of(cls, request: GenerationRequest) -> "Demand":
        params = request.params
        num_rows = params.beam_width if params.has_beams else params.n
        return cls(request.num_prompt_tokens, request.max_tokens, num_rows)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected times of an admitted request."""

    first_token_s: float = 0.0  # from its arrival; 0: not known
    ends_in_time: bool = False  # before its deadline; False: not known, or it has none


class WaitEstimator:
    """The pace of one engine's steps."""

    def __init__(self, num_slots: int, max_prefill_tokens: int = 256) -> None:
        """`max_prefill_tokens` of prompts are computed between two steps."""
        self._max_prefill_tokens = max_prefill_tokens
        self.slots = Slots(num_slots)
        self.first_token_trust = Trust()  # the event loop's, like the next two
        self.first_token_usual = Trust(USUAL_RISE, USUAL_LATE_SHARE)
        self.end_trust = Trust(END_RISE)
        self._num_slots = num_slots
        self._num_steps = 0
        self._steps = Prices(CostCurve(STEP_ROWS), GAIN)
        self._fewest_rows, self._fewest_s = num_slots, 0.0  # of a step, and what it took
        self._stretch = 1.0  # from one step's end to the next, by the step: prompts come between
        self._prompts = Prices(CostCurve(PROMPT_TOKENS))
        self._output_tokens = 0.0  # of sequences
        self._said_share = 1.0  # of the tokens that they might have said

    def decoded(self, num_rows: int, took_s: float, interval_s: float) -> None:
        """Count a decoding step by its rows; it ended `interval_s` after the previous one."""
        self._num_steps += 1
        self._steps.learn(Work(1, num_rows), took_s)
        if self._num_steps > MIN_STEPS and num_rows <= self._fewest_rows:
            is_same = num_rows == self._fewest_rows
            self._fewest_s = _moved(self._fewest_s, took_s) if is_same else took_s
            self._fewest_rows = num_rows
        elif self._fewest_s:  # once more: steps of one size would say nothing of others
            self._steps.learn(Work(1, self._fewest_rows), self._fewest_s)
        self._stretch = _moved(self._stretch, interval_s / took_s)

    def read(self, num_tokens: int, took_s: float) -> None:
        """Count the prompt tokens that a step computed."""
        self._prompts.learn(Work(1, num_tokens), took_s)

    def ended(self, sequence: Sequence) -> None:
        """Count the output tokens of a sequence that ended."""
        said = sequence.num_output_tokens
        self._output_tokens = _moved(self._output_tokens, said)
        self._said_share = _moved(self._said_share, said / sequence.request.max_tokens)

    def look(self, num_free: int, running: Iterable[Sequence]) -> None:
        """Note the slots, between two steps."""
        share, sequences = self._said_share, list(running)
        left = sorted(max(1.0, share * each.num_output_tokens_left) for each in sequences)
        num_unread = sum(each.num_prompt_tokens_left for each in sequences)
        self.slots = Slots(num_free, tuple(left), num_unread)

    def prompt_s(self, num_tokens: int) -> float:
        """The seconds of the runs that compute this number of prompt tokens; 0: not known."""
        if not num_tokens:
            return 0.0
        return self._prompts.price_s(Work(self._num_runs(num_tokens), num_tokens))

    def reading_s(self, num_tokens: int, num_prompts: int) -> float:
        """Seconds of the runs of prompts, with the steps between them."""
        num_steps = self._num_runs(num_tokens) - 1 if num_tokens else 0.0
        if num_steps <= 0:
            return self.prompt_s(num_tokens)
        num_rows = sum(min(left, num_steps) for left in self.slots.tokens_left)
        # Those whose prompts are read meanwhile begin one after the other, and end again.
        said = min(self._output_tokens or num_steps, num_steps)
        num_rows += num_prompts * (said - said**2 / (2 * num_steps))
        num_rows = min(num_rows, num_steps * self._num_slots)
        steps = Work(min(num_steps, num_rows), num_rows)
        return self.prompt_s(num_tokens) + self._steps.price_s(steps)

    def _num_runs(self, num_tokens: int) -> float:
        return max(1.0, num_tokens / self._max_prefill_tokens)

    def token_s(self, num_rows: int) -> float:
        """Seconds between two tokens of each of `num_rows` sequences, beside others' prompts."""
        return self._stretch * self._steps.price_s(Work(1, num_rows))

    def begins_s(self, ahead: Ahead) -> float:
        """Seconds until a new sequence has a slot, and the prompts ahead are computed."""
        num_tokens = self.slots.num_unread + ahead.num_tokens
        reading_s = self.reading_s(num_tokens, ahead.num_sequences)
        return max(self._slot_s(ahead.num_sequences), reading_s)

    def check(
        self,
        ahead: Ahead,
        demand: Demand,
        now_s: float,
        deadline_s: float | None,
        max_wait_s: float,
    ) -> Forecast:
        """Raise `WaitTooLong` or `TooEarly`, or return what is expected.

        Nothing is refused while nothing runs or waits. The first token is looked at where no slot
        is free, the end where the request would be in time if it were alone.
        """
        is_alone = not ahead.num_sequences and not self.slots.tokens_left
        if is_alone or self._num_steps < MIN_STEPS:
            return Forecast()
        begins_s = self.begins_s(ahead)
        # The step under way goes before it too.
        token_s = self.token_s(len(self.slots.tokens_left))
        first_token_s = begins_s + token_s + self.reading_s(demand.num_prompt_tokens, 0)
        must_wait = ahead.num_sequences > 0 or not self.slots.num_free
        left_s = None if deadline_s is None else deadline_s - now_s
        if must_wait:
            wait_s = self.first_token_usual.factor * begins_s
            if wait_s > max_wait_s:
                raise WaitTooLong(wait_s, max_wait_s)
            _check_end(self.first_token_trust.factor * first_token_s, left_s)
        first_s = first_token_s if must_wait else 0.0
        num_tokens = max(1.0, self._said_share * demand.max_tokens) - 1
        alone_s = self.prompt_s(demand.num_prompt_tokens)
        alone_s += self._steps.price_s(Work(num_tokens, num_tokens * demand.num_rows))
        if left_s is None or alone_s > left_s * (1 - SPARE_SHARE):
            return Forecast(first_s)
        ends_s = first_token_s + num_tokens * self.token_s(self._num_rows_with(ahead, demand))
        _check_end(self.end_trust.factor * ends_s, left_s)
        return Forecast(first_s, ends_in_time=True)

    def _num_rows_with(self, ahead: Ahead, demand: Demand) -> int:
        """The expected number of rows of a step while a new sequence runs."""
        num_rows = len(self.slots.tokens_left) + ahead.num_sequences + demand.num_rows
        return min(self._num_slots, num_rows)

    def _slot_s(self, num_ahead: int) -> float:
        slots = self.slots
        place = num_ahead - slots.num_free  # among those that take slots which get free
        if place < 0 or not slots.tokens_left:
            return 0.0
        num_rounds, place = divmod(place, len(slots.tokens_left))
        num_tokens = num_rounds * self._output_tokens + slots.tokens_left[place]
        return num_tokens * self.token_s(len(slots.tokens_left))


class Forecasts:
    """The expected times of admitted requests, compared with the actual ones.

    The event loop's. A first token is late where it took longer than expected. An end is late only
    after the deadline: how long an output takes depends on what comes after it, and within the
    deadline that does no harm.
    """

    def __init__(self, estimator: WaitEstimator) -> None:
        self._estimator = estimator
        # Seconds, and the usual factor when it was admitted.
        self._first_token_s: dict[GenerationRequest, tuple[float, float]] = {}
        self._ending: dict[GenerationRequest, float] = {}  # in time, as expected with this factor

    def add(self, request: GenerationRequest, forecast: Forecast) -> None:
        if forecast.first_token_s:
            usual = self._estimator.first_token_usual
            self._first_token_s[request] = forecast.first_token_s, usual.factor
        if forecast.ends_in_time:
            self._ending[request] = self._estimator.end_trust.factor

    def begun(self, request: GenerationRequest, took_s: float) -> None:
        """Its first token came so long after it; infinity: none came in time."""
        if expected := self._first_token_s.pop(request, None):
            expected_s, admitted_with = expected
            self._estimator.first_token_trust.answered(expected_s, took_s)
            usual = self._estimator.first_token_usual
            is_late = took_s > usual.factor * expected_s
            usual.add(is_late=is_late, admitted_with=admitted_with)

    def ended(self, request: GenerationRequest, *, is_late: bool) -> None:
        """All of its output is there, or its deadline has passed."""
        if admitted_with := self._ending.pop(request, 0.0):
            self._estimator.end_trust.add(is_late=is_late, admitted_with=admitted_with)

    def forget(self, request: GenerationRequest) -> None:
        self._first_token_s.pop(request, None)
        self._ending.pop(request, None)


def _check_end(expected_s: float, left_s: float | None) -> None:
    """Raise `TooEarly` where too little time is left."""
    if left_s is not None and (with_spare_s := expected_s / (1 - SPARE_SHARE)) > left_s:
        raise TooEarly(with_spare_s, max(0.0, left_s))


def _moved(before: float, value: float) -> float:
    """A moving mean with bounded steps; the first value is taken as it is."""
    if not before:
        return value
    most = MAX_SURPRISE * before
    return before + GAIN * min(most, max(-most, value - before))
