"""How one request's tokens are chosen, and when it stops.

Names and meanings are vLLM's, which others share, so that clients of its Triton backend
need no change; further ones are `banned_token_ids` and `no_repeat_ngram_size`
(transformers'). Knows nothing of models: `check_for` checks against the vocabulary, and the
engine against the room in a context or a batch.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from service.errors import InvalidArgument, invalid_field
from service.grammars.form import KINDS as GRAMMAR_KINDS
from service.grammars.form import Grammar, take_grammar

MAX_TEXT_CHARACTERS = 65_536  # of a request's parameters as JSON
MAX_NESTING = 100  # of lists and objects in it: those of a schema, and a few around it
MAX_SHOWN_CHARACTERS = 64  # of a wrong value, in the message about it
_MARKS = re.compile(r'\\.|["\[\]{}]', re.DOTALL)  # an escape is one, so no end of its string
GREEDY_BELOW = 1e-5  # vLLM's: below it, scaling by 1 / temperature tells nothing but the best

MAX_TOKEN_ID = 2**31 - 1  # before the vocabulary is known
MAX_TOKENS = 2**20
MAX_LOGPROBS = 50  # of an output token: as many as a reader looks at
MAX_PROMPT_LOGPROBS = 20  # of a prompt token: all of a prompt's are held at once
MAX_N = 64
MAX_BEAM_WIDTH = 16
MAX_LENGTH_PENALTY = 10.0
MAX_NGRAM = 32
MAX_STOPS = 16
MAX_STOP_CHARACTERS = 256  # of one
MAX_LOGIT_BIAS = 100.0
MAX_BIASED_TOKENS = 1_024
MAX_STOP_TOKEN_IDS = 64
MAX_BAD_WORDS = 64
MAX_BAD_WORD_CHARACTERS = 256  # of one
MAX_LISTED_TOKEN_IDS = 8_192  # allowed or banned
MAX_SALT_CHARACTERS = 256


@dataclass(frozen=True, slots=True)
class _Range:
    """The numbers a field may have; a whole number's bounds are whole numbers."""

    low: float
    high: float

    @property
    def is_whole(self) -> bool:
        return isinstance(self.low, int)

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        low, high = (str(end) if self.is_whole else f"{end:g}" for end in (self.low, self.high))
        return f"{low} to {high}"


RANGES = {
    "temperature": _Range(0.0, 100.0),
    "top_k": _Range(0, MAX_TOKEN_ID),
    "top_p": _Range(0.0, 1.0),  # 0: the likeliest token alone
    "min_p": _Range(0.0, 1.0),
    "repetition_penalty": _Range(0.01, 100.0),
    "presence_penalty": _Range(-2.0, 2.0),  # OpenAI's
    "frequency_penalty": _Range(-2.0, 2.0),
    "no_repeat_ngram_size": _Range(0, MAX_NGRAM),
    "min_tokens": _Range(0, MAX_TOKENS),
    "max_tokens": _Range(0, MAX_TOKENS),  # 0 where only the prompt is scored
    "logprobs": _Range(0, MAX_LOGPROBS),
    "prompt_logprobs": _Range(0, MAX_PROMPT_LOGPROBS),
    "n": _Range(1, MAX_N),
    "beam_width": _Range(0, MAX_BEAM_WIDTH),
    "length_penalty": _Range(0.0, MAX_LENGTH_PENALTY),
    "seed": _Range(0, 2**63 - 1),
}
SWITCHES = (
    *("ignore_eos", "fit_max_tokens"),
    *("skip_special_tokens", "include_stop_str_in_output", "open_max_tokens"),
)
OPTIONAL = ("max_tokens", "logprobs", "prompt_logprobs", "seed")
ID_LISTS = {
    "allowed_token_ids": MAX_LISTED_TOKEN_IDS,
    "banned_token_ids": MAX_LISTED_TOKEN_IDS,
    "stop_token_ids": MAX_STOP_TOKEN_IDS,
}
# What a search does without, and the value that says so: it draws nothing, and its scores are the
# model's own probabilities.
OFF_WITH_BEAMS: dict[str, object] = {
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "logit_bias": {},
    "stop": (),
    "include_stop_str_in_output": False,
}
# Other spellings of a value, as vLLM takes them: off and none.
ALIASES: dict[str, dict[object, object]] = {"top_k": {-1: 0}, "seed": {-1: None}}


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Checked when made: every value is within the bounds above."""

    temperature: float = 1.0  # 0: greedy. 1, as in vLLM: what the model says, as it says it
    top_k: int = 0  # 0: off
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    no_repeat_ngram_size: int = 0  # 0: off
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed_token_ids: tuple[int, ...] = ()  # empty: all
    banned_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    max_tokens: int | None = None  # None: what fits, up to the server's default
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None  # 0: the chosen token's; n: with the n most likely
    n: int = 1  # samples, or the n best of a search
    seed: int | None = None
    beam_width: int = 0  # beginnings that are searched on from at once; 0 or 1: no search
    length_penalty: float = 1.0  # the best have the largest log probability / tokens ** this
    fit_max_tokens: bool = False  # max_tokens is lowered to what fits behind the prompt
    prompt_logprobs: int | None = None  # as `logprobs`, of the prompt's tokens
    cache_salt: str = ""  # prompts share what was computed with those of the same one only
    grammar: Grammar | None = None  # the form of the output; None: any text
    bad_words: tuple[str, ...] = ()  # texts that no output has, by their tokens
    skip_special_tokens: bool = True  # False: the text has them as the vocabulary spells them
    include_stop_str_in_output: bool = False  # the text ends with what ended it
    open_max_tokens: bool = False  # max_tokens None: what fits, unless the server has a default

    def __post_init__(self) -> None:
        for name, allowed in RANGES.items():
            value = getattr(self, name)
            if value is not None or name not in OPTIONAL:
                object.__setattr__(self, name, _number(name, value, allowed))
        for name, limit in ID_LISTS.items():
            object.__setattr__(self, name, _token_ids(name, getattr(self, name), limit))
        object.__setattr__(self, "stop", _texts("stop", self.stop, MAX_STOPS, MAX_STOP_CHARACTERS))
        bad_words = _texts("bad_words", self.bad_words, MAX_BAD_WORDS, MAX_BAD_WORD_CHARACTERS)
        object.__setattr__(self, "bad_words", bad_words)
        object.__setattr__(self, "logit_bias", _biases(self.logit_bias))
        for name in SWITCHES:
            if not isinstance(value := getattr(self, name), bool):
                raise invalid_field(name, f"is {_shown(value)}, expected true or false")
        _check_salt(self.cache_salt)
        self._check_together()

    def _check_together(self) -> None:
        if self.max_tokens == 0:
            self._check_without_output()
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise invalid_field(
                "min_tokens",
                f"is {self.min_tokens}, expected at most max_tokens, which is {self.max_tokens}",
            )
        if self.grammar is not None:
            self._check_grammar(self.grammar.kind)
        if self.has_beams:
            self._check_beams()

    def _check_grammar(self, kind: str) -> None:
        """When the output ends is the grammar's to say."""
        if self.min_tokens:
            raise invalid_field("min_tokens", f"is {self.min_tokens}, expected 0 beside {kind}")
        if self.ignore_eos:
            raise invalid_field("ignore_eos", f"is true, expected false beside {kind}")
        if self.max_tokens == 0:
            raise invalid_field("max_tokens", f"is 0, expected 1 or more beside {kind}")

    def _check_without_output(self) -> None:
        if self.prompt_logprobs is None:
            raise invalid_field(
                "max_tokens", f"is 0, expected 1 to {MAX_TOKENS} where prompt_logprobs is not set"
            )
        if self.has_beams:
            raise invalid_field(
                "beam_width",
                f"is {self.beam_width}, expected 0 where max_tokens is 0: there is "
                "nothing to search",
            )

    def _check_beams(self) -> None:
        if self.n > self.beam_width:
            raise invalid_field(
                "n", f"is {self.n}, expected at most beam_width, which is {self.beam_width}"
            )
        if self.temperature != 1.0 and not self.is_greedy:
            raise invalid_field(
                "temperature",
                f"is {self.temperature:g}, expected 0 or 1 where beam_width is "
                f"{self.beam_width}: beam search does not sample",
            )
        for name, off in OFF_WITH_BEAMS.items():
            if (value := getattr(self, name)) != off:
                expected = off if isinstance(off, int | float) else "none"
                raise invalid_field(
                    name,
                    f"is {_shown(value)}, expected {expected} where beam_width is "
                    f"{self.beam_width}: beam search ranks by the model's own probabilities",
                )

    @property
    def has_beams(self) -> bool:
        return self.beam_width > 1

    @property
    def is_greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    @property
    def is_unfiltered(self) -> bool:
        """Whether every token may be chosen, with the probability that temperature gives it."""
        has_filter = self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0
        return not has_filter and not self.is_greedy

    def check_for(
        self,
        vocab_size: int,
        eos_token_ids: tuple[int, ...] = (),
        banned_token_ids: tuple[int, ...] = (),
    ) -> None:
        """Raise `InvalidArgument` for what a vocabulary of this size and these ends cannot do.

        Neither can one whose model bans tokens itself.
        """
        named: dict[str, Collection[int]] = {name: getattr(self, name) for name in ID_LISTS}
        for name, ids in (named | {"logit_bias": self.logit_bias}).items():
            if ids and max(ids) >= vocab_size:
                raise invalid_field(
                    name, f"has the token id {max(ids)}, expected 0 to {vocab_size - 1}"
                )
        banned = {*self.banned_token_ids, *banned_token_ids}
        if banned and banned.issuperset(self.allowed_token_ids or range(vocab_size)):
            if not self.banned_token_ids:
                raise invalid_field("allowed_token_ids", "has only tokens that the model bans")
            raise invalid_field(
                "banned_token_ids", "has every token that may be chosen, expected one left"
            )
        ends = {*self.stop_token_ids, *(() if self.ignore_eos else eos_token_ids)}
        if self.min_tokens and (banned | ends).issuperset(
            self.allowed_token_ids or range(vocab_size)
        ):
            raise invalid_field(
                "min_tokens",
                f"is {self.min_tokens}, expected 0 where every token that may be chosen "
                "ends the text",
            )

    @classmethod
    def from_mapping(
        cls, values: Mapping[str, object], defaults: Mapping[str, float] = {}
    ) -> "SamplingParams":
        """Parameters from names and values; numbers and booleans also as text, None if absent.

        `defaults` are a model's, as `with_defaults` takes them.
        """
        known = [each.name for each in fields(cls) if each.name != "grammar"]
        known += GRAMMAR_KINDS
        left = dict(values)
        grammar = take_grammar(left)
        for name in left:
            if name not in known:
                raise InvalidArgument(
                    f"{_shown(name)} is not a sampling parameter, known are {', '.join(known)}"
                )
        values_by_name: dict[str, Any] = {
            name: converted
            for name, value in left.items()
            if (converted := _converted(name, value)) is not None
        }
        return cls(**with_defaults(values_by_name, defaults), grammar=grammar)

    @classmethod
    def from_json(cls, text: str, defaults: Mapping[str, float] = {}) -> "SamplingParams":
        """Parameters from a JSON object, as in Triton's input `sampling_parameters`."""
        if len(text) > MAX_TEXT_CHARACTERS:
            raise invalid_field(
                "sampling_parameters",
                f"has {len(text)} characters, the server takes at most {MAX_TEXT_CHARACTERS}",
            )
        if (nesting := _nesting(text)) > MAX_NESTING:  # else the parser's stack would tell
            raise invalid_field(
                "sampling_parameters", f"is nested {nesting} deep, expected at most {MAX_NESTING}"
            )
        try:
            values = json.loads(text, object_pairs_hook=_without_duplicates)
        except ValueError as error:  # also a number of thousands of digits
            raise invalid_field("sampling_parameters", f"is not JSON: {error}") from error
        if not isinstance(values, dict):
            raise invalid_field("sampling_parameters", f"is {_shown(values)}, expected an object")
        return cls.from_mapping(values, defaults)


def with_defaults(values: Mapping[str, Any], defaults: Mapping[str, float]) -> dict[str, Any]:
    """A request's values, and a model's own for those that it does not name.

    A beam search has none of them, as it does not sample; nor is a text of several samples greedy.
    """
    if _is_above(values.get("beam_width"), 1):
        return dict(values)
    is_several = _is_above(values.get("n"), 1)
    used = {
        name: value
        for name, value in defaults.items()
        if not (name == "temperature" and value < GREEDY_BELOW and is_several)
    }
    return used | dict(values)


def _is_above(value: object, limit: int) -> bool:
    return isinstance(value, int) and value > limit


def _nesting(text: str) -> int:
    """The nesting depth of JSON's brackets, without those in strings."""
    depth = deepest = 0
    is_in_string = False
    for mark in _MARKS.findall(text):
        if mark == '"':
            is_in_string = not is_in_string
        elif not is_in_string:
            depth += (mark in "[{") - (mark in "]}")
            deepest = max(deepest, depth)
    return deepest


def _number(name: str, value: object, allowed: _Range, of: str = "") -> float:
    kinds = (int,) if allowed.is_whole else (int, float)
    shown = f"{of} is {_shown(value)}".lstrip()
    if isinstance(value, bool) or not isinstance(value, kinds):
        kind = "a whole number" if allowed.is_whole else "a number"
        raise invalid_field(name, f"{shown}, expected {kind}, {allowed}")
    if value not in allowed:  # nor is NaN
        raise invalid_field(name, f"{shown}, expected {allowed}")
    return value if allowed.is_whole else float(value)


def _check_salt(salt: object) -> None:
    if not isinstance(salt, str):
        raise invalid_field("cache_salt", f"is {_shown(salt)}, expected a text")
    if len(salt) > MAX_SALT_CHARACTERS:
        raise invalid_field(
            "cache_salt",
            f"has {len(salt)} characters, expected at most {MAX_SALT_CHARACTERS}, such as a hash "
            "of a longer one",
        )


def _token_ids(name: str, ids: object, limit: int) -> tuple[int, ...]:
    if not isinstance(ids, list | tuple):
        raise invalid_field(name, f"is {_shown(ids)}, expected a list of token ids")
    if len(ids) > limit:
        raise invalid_field(name, f"has {len(ids)} token ids, expected at most {limit}")
    for token_id in ids:
        _check_token_id(name, token_id)
    return tuple(ids)


def _check_token_id(name: str, token_id: object) -> None:
    is_bool = isinstance(token_id, bool)
    if is_bool or not isinstance(token_id, int) or not 0 <= token_id <= MAX_TOKEN_ID:
        raise invalid_field(
            name, f"has the token id {_shown(token_id)}, expected 0 to {MAX_TOKEN_ID}"
        )


def _texts(name: str, texts: object, most: int, most_characters: int) -> tuple[str, ...]:
    if not isinstance(texts, list | tuple):
        raise invalid_field(name, f"is {_shown(texts)}, expected a list of strings")
    if len(texts) > most:
        raise invalid_field(name, f"has {len(texts)} strings, expected at most {most}")
    for text in texts:
        if not isinstance(text, str):
            raise invalid_field(name, f"has {_shown(text)}, expected strings")
        if not 1 <= len(text) <= most_characters:
            raise invalid_field(
                name, f"has a string of {len(text)} characters, expected 1 to {most_characters}"
            )
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise invalid_field(name, f"has {_shown(text)}, expected Unicode: no text holds it")
    return tuple(texts)


def _biases(biases: object) -> dict[int, float]:
    if not isinstance(biases, Mapping):
        raise invalid_field(
            "logit_bias", f"is {_shown(biases)}, expected a mapping of token ids to numbers"
        )
    if len(biases) > MAX_BIASED_TOKENS:
        raise invalid_field(
            "logit_bias", f"has {len(biases)} token ids, expected at most {MAX_BIASED_TOKENS}"
        )
    allowed = _Range(-MAX_LOGIT_BIAS, MAX_LOGIT_BIAS)
    for token_id in biases:
        _check_token_id("logit_bias", token_id)
    return {
        token_id: _number("logit_bias", bias, allowed, f" of {token_id}")
        for token_id, bias in biases.items()
    }


def _converted(name: str, value: object) -> object:
    """A value in the type of its field where it is spelled otherwise; else as it is."""
    if name in RANGES:
        number = _parsed(value, RANGES[name].is_whole)
        is_alias = isinstance(number, int) and number in ALIASES.get(name, {})
        return ALIASES[name][number] if is_alias else number
    if name in ("stop", "bad_words") and isinstance(value, str):
        return (value,)
    if name in SWITCHES and isinstance(value, str):
        return {"true": True, "false": False}.get(value.lower(), value)
    if name == "logit_bias" and isinstance(value, Mapping):
        return _without_duplicates(
            [(_parsed(key, True), _parsed(bias, False)) for key, bias in value.items()]
        )
    return value


def _parsed(value: object, is_whole: bool) -> object:
    """The number that a text spells; whatever else it is stays and is refused with its name."""
    if not isinstance(value, str):
        return value
    try:
        return int(value) if is_whole else float(value)
    except ValueError:
        return value


def _without_duplicates(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    pairs_by_key: dict[Any, Any] = {}
    for name, value in pairs:
        if name in pairs_by_key:
            raise InvalidArgument(f"{_shown(name)} is given twice, expected once")
        pairs_by_key[name] = value
    return pairs_by_key


def _shown(value: object) -> str:
    """A wrong value in a message, whatever it is: short, and of no cost to write."""
    if isinstance(value, int) and abs(value) >= 2**64:
        return f"a whole number of {value.bit_length()} bits"
    if isinstance(value, str):
        cut = value[:MAX_SHOWN_CHARACTERS]
        return repr(cut) if cut == value else f"{cut!r}..."
    if value is None or isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "a list"
    return "an object" if isinstance(value, Mapping) else f"of type {type(value).__name__}"
