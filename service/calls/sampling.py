"""Sampling parameters: the choice of tokens and the end of an output, one field in one place.

Names and meanings are vLLM's, which others share, so that clients of its Triton backend need no
change; further ones are `banned_token_ids` and `no_repeat_ngram_size` (transformers'). Knows
nothing of models: `check_vocabulary` (choosing/vocabulary.py) checks ids, and the engine the room
in a context or a batch.

A field says its bounds (`low`, `high`; of a list `most` elements of the kind `unit`; of a text
`longest` characters), its names in the dialects that have it (`also`), other spellings of a value
(`aka`), and whether a beam search does without it (`off_with_beams`). Commands have a flag for each
field of which it does not say `flag=False`.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Annotated, Any, Self

import msgspec

from service.calls.record import About, abouts, check_bounds, said, shown
from service.errors import invalid_field
from service.grammars.form import Grammar

GREEDY_BELOW = 1e-5  # vLLM's: below it, scaling by 1 / temperature tells nothing but the best
MAX_TOKEN_ID = 2**31 - 1  # before the vocabulary is known
MAX_TOKENS = 2**20
MAX_LISTED_TOKEN_IDS = 8_192  # allowed or banned
MAX_LOGIT_BIAS = 100.0
IDS, STRINGS = "token ids", "strings"
OPENAI = {"openai": ""}
SHARED = {"openai": "", "tgi": ""}


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of one request. Raises `InvalidArgument` for values out of bounds."""

    temperature: Annotated[
        float,
        said(
            "Divisor of the logits: below 1 for more likely tokens, above 1 for more varied ones. "
            "0 always takes the most likely token; the default is 1.",
            low=0.0,
            high=100.0,
            also=SHARED,
        ),
    ] = 1.0
    top_k: Annotated[
        int,
        said(
            "Sample from the K most likely tokens; 0 means no limit.",
            low=0,
            high=MAX_TOKEN_ID,
            aka={-1: 0},
            also=SHARED,
            off_with_beams=True,
        ),
    ] = 0
    top_p: Annotated[
        float,
        said(
            "Nucleus sampling: the smallest set of tokens whose probability sums to this; 0 takes "
            "the most likely token alone.",
            low=0.0,
            high=1.0,
            also=SHARED,
            off_with_beams=True,
        ),
    ] = 1.0
    min_p: Annotated[
        float,
        said(
            "Drop tokens less likely than this fraction of the best one.",
            low=0.0,
            high=1.0,
            also=OPENAI,
            off_with_beams=True,
        ),
    ] = 0.0
    repetition_penalty: Annotated[
        float,
        said(
            "Above 1, makes tokens that occur in the prompt or the output less likely.",
            low=0.01,
            high=100.0,
            also=SHARED,
            off_with_beams=True,
        ),
    ] = 1.0
    presence_penalty: Annotated[
        float,
        said(
            "Above 0, makes tokens that occur in the output less likely.",
            low=-2.0,  # OpenAI's
            high=2.0,
            also=OPENAI,
            off_with_beams=True,
        ),
    ] = 0.0
    frequency_penalty: Annotated[
        float,
        said(
            "Above 0, makes tokens less likely for each time that they occur in the output.",
            low=-2.0,
            high=2.0,
            also=SHARED,
            off_with_beams=True,
        ),
    ] = 0.0
    no_repeat_ngram_size: Annotated[
        int,
        said(
            "Never repeat a sequence of this number of tokens, the prompt included; 0 means off.",
            low=0,
            high=32,
            also={"tgi": ""},
        ),
    ] = 0
    logit_bias: Annotated[
        Mapping[int, float],
        said(
            "Number added to the logit of a token, by its id.",
            most=1_024,
            unit=IDS,
            also=OPENAI,
            off_with_beams=True,
            flag=False,
        ),
    ] = {}
    allowed_token_ids: Annotated[
        tuple[int, ...],
        said(
            "Only tokens that may be chosen; none given allows all.",
            most=MAX_LISTED_TOKEN_IDS,
            unit=IDS,
            also=OPENAI,
            flag=False,
        ),
    ] = ()
    banned_token_ids: Annotated[
        tuple[int, ...],
        said(
            "Tokens that are never chosen.",
            most=MAX_LISTED_TOKEN_IDS,
            unit=IDS,
            flag=False,
        ),
    ] = ()
    min_tokens: Annotated[
        int,
        said(
            "Smallest number of output tokens: the text does not end before.",
            low=0,
            high=MAX_TOKENS,
            also=OPENAI,
        ),
    ] = 0
    max_tokens: Annotated[
        int | None,
        said(
            "Largest number of output tokens; 0 only scores the prompt, with prompt_logprobs.",
            low=0,
            high=MAX_TOKENS,
            also={"openai": "", "tgi": "max_new_tokens"},
        ),
    ] = None  # what fits, up to the server's default
    stop: Annotated[
        tuple[str, ...],
        said(
            "Text that ends the output.",
            most=16,
            unit=STRINGS,
            longest=256,
            also=SHARED,
            off_with_beams=True,
        ),
    ] = ()
    stop_token_ids: Annotated[
        tuple[int, ...],
        said(
            "Tokens that end the output, beside the model's own.",
            most=64,
            unit=IDS,
            also=OPENAI,
            flag=False,
        ),
    ] = ()
    ignore_eos: Annotated[
        bool, said("Continue after the model's end of text.", also=OPENAI, flag=False)
    ] = False
    logprobs: Annotated[
        int | None,
        said(
            "Log-probability of each token of the output, and of this number of most likely ones "
            "at its place.",
            low=0,
            high=50,  # as many as a reader looks at
            also={"tgi": "top_n_tokens"},
            flag=False,
        ),
    ] = None
    n: Annotated[
        int, said("Number of samples.", low=1, high=64, also={"openai": "", "tgi": "best_of"})
    ] = 1  # of a beam search: its n best
    seed: Annotated[
        int | None,
        said(
            "Seed of the random numbers; the same seed gives the same text.",
            low=0,
            high=2**63 - 1,
            aka={-1: None},
            also=SHARED,
        ),
    ] = None
    beam_width: Annotated[
        int,
        said(
            "Number of beams of a beam search, in place of sampling, whose n best are the "
            "outputs; 0 and 1 mean no search.",
            low=0,
            high=16,
            also={"tgi": "num_beams"},
        ),
    ] = 0
    length_penalty: Annotated[
        float,
        said(
            "Beam search: exponent of the length by which a beam's log-probability is divided; "
            "larger values prefer longer texts. The default is 1.",
            low=0.0,
            high=10.0,
            also=SHARED,
        ),
    ] = 1.0
    fit_max_tokens: Annotated[
        bool, said("Lower max_tokens to what fits behind the prompt.", flag=False)
    ] = False
    prompt_logprobs: Annotated[
        int | None,
        said(
            "Log-probability of each token of the prompt, and of this number of most likely "
            "tokens at its place.",
            low=0,
            high=20,  # fewer than of an output: all of a prompt's are held at once
            also=OPENAI,
        ),
    ] = None
    cache_salt: Annotated[
        str,
        said(
            "Prompts share what was computed of them with those of the same salt only.",
            longest=256,
            also=OPENAI,
            flag=False,
        ),
    ] = ""
    grammar: Annotated[Grammar | None, said("Form of the output.", flag=False)] = None
    bad_words: Annotated[
        tuple[str, ...],
        said(
            "Texts that no output has, by their tokens.",
            most=64,
            unit=STRINGS,
            longest=256,
            also=OPENAI,
            flag=False,
        ),
    ] = ()
    skip_special_tokens: Annotated[
        bool,
        said(
            "Leave special tokens out of the text, in place of spelling them.",
            also=OPENAI,
            flag=False,
        ),
    ] = True
    include_stop_str_in_output: Annotated[
        bool,
        said("End the text with what ended it.", also=OPENAI, off_with_beams=True, flag=False),
    ] = False
    open_max_tokens: Annotated[
        bool,
        said("Without max_tokens take what fits, unless the server has a default.", flag=False),
    ] = False

    max_reasoning_tokens: Annotated[
        int | None,
        said(
            "Largest number of tokens of thoughts before an answer; the end of thoughts follows "
            "them. 0 means no thoughts. Only of conversations.",
            low=0,
            high=MAX_TOKENS,
        ),
    ] = None

    named: frozenset[str] = frozenset()  # that the request has; a model may default others

    def __post_init__(self) -> None:
        check_bounds(self)
        for each in _counted():
            if (values := getattr(self, each.name)) or each.says.get("longest"):
                _check_elements(each, values)
        self._check_together()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The parameters that a request names, of the fields' types."""
        return cls(**values, named=frozenset(values))

    def over(self, defaults: Mapping[str, float]) -> Self:
        """The parameters, with a model's defaults for those that the request does not name.

        A beam search takes no defaults, as it does not sample; several samples take no temperature
        of 0, with which they would be equal.
        """
        if not defaults or self.has_beams:
            return self
        used = {
            name: value
            for name, value in defaults.items()
            if name not in self.named
            and not (name == "temperature" and value < GREEDY_BELOW and self.n > 1)
        }
        return msgspec.structs.replace(self, **used)

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
        for each in abouts(Sampling):
            value = getattr(self, each.name)
            if each.says.get("off_with_beams") and value != each.default:
                expected = each.default if isinstance(each.default, int | float) else "none"
                raise invalid_field(
                    each.name,
                    f"is {shown(value)}, expected {expected} where beam_width is "
                    f"{self.beam_width}: beam search ranks by the model's own probabilities",
                )


@cache
def _counted() -> tuple[About, ...]:
    """The fields that are texts, or have several values."""
    return tuple(each for each in abouts(Sampling) if {"most", "longest"} & each.says.keys())


def _check_elements(about: About, values: Collection[Any]) -> None:
    """Raise `InvalidArgument` for values that are too many or too long, or out of bounds."""
    name, unit, longest = about.name, about.says.get("unit"), about.says.get("longest", 0)
    if unit is None:
        if len(values) > longest:
            raise invalid_field(
                name,
                f"has {len(values)} characters, expected at most {longest}, such as a hash of a "
                "longer one",
            )
        return
    if len(values) > about.says["most"]:
        raise invalid_field(
            name, f"has {len(values)} {unit}, expected at most {about.says['most']}"
        )
    if unit == STRINGS:
        _check_strings(name, values, longest)
        return
    _check_ids(name, values)
    if isinstance(values, Mapping):
        for token_id, bias in values.items():
            if not -MAX_LOGIT_BIAS <= bias <= MAX_LOGIT_BIAS:  # nor is NaN
                raise invalid_field(
                    name,
                    f"of {token_id} is {shown(bias)}, expected {-MAX_LOGIT_BIAS:g} to "
                    f"{MAX_LOGIT_BIAS:g}",
                )


def _check_ids(name: str, ids: Collection[int]) -> None:
    if ids and not (min(ids) >= 0 and max(ids) <= MAX_TOKEN_ID):
        wrong = next(each for each in ids if not 0 <= each <= MAX_TOKEN_ID)
        raise invalid_field(name, f"has the token id {shown(wrong)}, expected 0 to {MAX_TOKEN_ID}")


def _check_strings(name: str, texts: Iterable[str], longest: int) -> None:
    for text in texts:
        if not 1 <= len(text) <= longest:
            raise invalid_field(
                name, f"has a string of {len(text)} characters, expected 1 to {longest}"
            )
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise invalid_field(name, f"has {shown(text)}, expected Unicode: no text holds it")
