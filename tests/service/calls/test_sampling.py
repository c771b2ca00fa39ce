"""Every field's bounds with the message that names them; JSON as clients of vLLM write it."""

import json
import math
import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.calls.record import abouts, bounds_of
from service.calls.sampling import Sampling
from service.calls.sampling_values import MAX_TEXT_CHARACTERS, sampling_in, sampling_of
from service.errors import InvalidArgument
from service.generation.choosing.vocabulary import check_vocabulary
from service.grammars.form import KINDS

NUMBERS: list[
    tuple[str, float, float, list[float], str]
] = [  # field, least, greatest, their neighbours outside, the range as the message names it
    ("temperature", 0.0, 100.0, [-1.0, 100.5], "0 to 100"),
    ("top_k", 0, 2**31 - 1, [-2, 2**31], "0 to 2147483647"),
    ("top_p", 0.0, 1.0, [-0.1, 1.001], "0 to 1"),
    ("min_p", 0.0, 1.0, [-0.001, 1.001], "0 to 1"),
    ("repetition_penalty", 0.01, 100.0, [0.0, -1.0, 101.0], "0.01 to 100"),
    ("presence_penalty", -2.0, 2.0, [-2.1, 2.1], "-2 to 2"),
    ("frequency_penalty", -2.0, 2.0, [-2.1, 2.1], "-2 to 2"),
    ("no_repeat_ngram_size", 0, 32, [-1, 33], "0 to 32"),
    ("min_tokens", 0, 2**20, [-1, 2**20 + 1], "0 to 1048576"),
    ("max_tokens", 1, 2**20, [-1, 2**20 + 1], "0 to 1048576"),  # 0: see below
    ("logprobs", 0, 50, [-1, 51], "0 to 50"),
    ("prompt_logprobs", 0, 20, [-1, 21], "0 to 20"),
    ("n", 1, 64, [0, -1, 65], "1 to 64"),
    ("seed", 0, 2**63 - 1, [-2, 2**63], "0 to 9223372036854775807"),
    ("beam_width", 0, 16, [-1, 17], "0 to 16"),
    ("length_penalty", 0.0, 10.0, [-0.1, 10.5], "0 to 10"),
    ("max_reasoning_tokens", 0, 2**20, [-1, 2**20 + 1], "0 to 1048576"),
]
BAD = [(name, value, shown) for name, _, _, values, shown in NUMBERS for value in values]
OWN = [each.name for each in abouts(Sampling) if each.name not in ("grammar", "named")]
FIELDS = [*OWN, *KINDS]


def make(**values: Any) -> Sampling:
    return Sampling(**values)


def refusal_of(**values: Any) -> str:
    with pytest.raises(InvalidArgument) as caught:
        sampling_of(values)
    return str(caught.value)


def nested(depth: int) -> str:
    return '{"n": ' + "[" * depth + "1" + "]" * depth + "}"


def test_the_defaults_are_vllms_and_change_nothing() -> None:
    params = Sampling()
    assert (params.temperature, params.top_k, params.top_p, params.min_p) == (1.0, 0, 1.0, 0.0)
    assert (params.repetition_penalty, params.n, params.max_tokens) == (1.0, 1, None)
    assert not params.is_greedy


def test_every_number_has_its_range_tested_here() -> None:
    assert {name for name, *_ in NUMBERS} == {each.name for each in bounds_of(Sampling)}


@pytest.mark.parametrize(("name", "least", "greatest"), [row[:3] for row in NUMBERS])
def test_both_ends_of_a_range_are_taken(name: str, least: float, greatest: float) -> None:
    for value in (least, greatest):
        assert getattr(make(**{name: value}), name) == value


@pytest.mark.parametrize(("name", "value", "allowed"), BAD)
def test_a_number_outside_is_refused_with_field_value_and_range(
    name: str, value: float, allowed: str
) -> None:
    assert refusal_of(**{name: value}) == f"{name} is {value!r}, expected {allowed}"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", [name for name, least, *_ in NUMBERS if isinstance(least, float)])
def test_what_is_no_finite_number_is_refused(name: str, value: float) -> None:
    assert refusal_of(**{name: value}).startswith(f"{name} is {value!r}, expected ")


@pytest.mark.parametrize(("name", "allowed"), [(row[0], row[4]) for row in NUMBERS])
@pytest.mark.parametrize("value", [True, "one", [1]])
def test_a_value_of_another_type_is_refused(name: str, allowed: str, value: object) -> None:
    message = refusal_of(**{name: value})
    assert re.fullmatch(f"{name} is .+, expected a (whole )?number, {re.escape(allowed)}", message)


def test_a_whole_number_is_a_number_and_not_the_other_way_round() -> None:
    assert isinstance(sampling_of({"temperature": 1}).temperature, float)
    assert sampling_of({"top_k": 1.0}).top_k == 1
    assert refusal_of(top_k=1.5) == "top_k is 1.5, expected a whole number, 0 to 2147483647"


def test_no_output_is_for_scoring_a_prompt() -> None:
    assert make(max_tokens=0, prompt_logprobs=0).max_tokens == 0
    expected = "max_tokens is 0, expected 1 to 1048576 where prompt_logprobs is not set"
    assert refusal_of(max_tokens=0) == expected
    assert refusal_of(max_tokens=0, prompt_logprobs=0, beam_width=2) == (
        "beam_width is 2, expected 0 where max_tokens is 0: there is nothing to search"
    )


@pytest.mark.parametrize("name", OWN)
def test_what_is_none_is_not_named(name: str) -> None:
    assert sampling_of({name: None}) == Sampling()


def test_the_parameters_that_a_request_names_are_known() -> None:
    """Also those that it names with their defaults."""
    sampling = sampling_of({"temperature": 1, "seed": -1, "regex": "a"})
    assert sampling.named == {"temperature", "seed"}
    assert sampling.over({"temperature": 0.5, "top_p": 0.5}).temperature == 1.0


def test_ignore_eos_is_a_boolean() -> None:
    assert make(ignore_eos=True).ignore_eos
    assert refusal_of(ignore_eos="yes") == "ignore_eos is 'yes', expected true or false"


@pytest.mark.parametrize(
    ("name", "limit"),
    [("allowed_token_ids", 8_192), ("banned_token_ids", 8_192), ("stop_token_ids", 64)],
)
def test_lists_of_token_ids_are_bounded_and_checked(name: str, limit: int) -> None:
    assert getattr(sampling_of({name: [5, 0]}), name) == (5, 0)
    assert len(getattr(sampling_of({name: [1] * limit}), name)) == limit
    assert refusal_of(**{name: [1] * (limit + 1)}) == (
        f"{name} has {limit + 1} token ids, expected at most {limit}"
    )
    for bad in (-1, 2**31, True, "one", 1.5, None):
        message = f"{name} has the token id {bad!r}, expected 0 to 2147483647"
        assert refusal_of(**{name: [1, bad]}) == message
    assert refusal_of(**{name: 1}) == f"{name} is 1, expected a list of token ids"


def test_stop_strings_are_bounded_and_checked() -> None:
    assert sampling_of({"stop": ["\n", "a" * 256]}).stop == ("\n", "a" * 256)
    assert refusal_of(stop=["a"] * 17) == "stop has 17 strings, expected at most 16"
    assert refusal_of(stop=[""]) == "stop has a string of 0 characters, expected 1 to 256"
    assert refusal_of(stop=["a", "b" * 257]) == (
        "stop has a string of 257 characters, expected 1 to 256"
    )
    assert refusal_of(stop=[1]) == "stop has 1, expected strings"
    assert refusal_of(stop=5) == "stop is 5, expected a list of strings"
    assert refusal_of(stop=["\ud800"]).startswith(r"stop has '\ud800', expected Unicode")


def test_logit_bias_is_bounded_and_checked() -> None:
    assert sampling_of({"logit_bias": {3: -100, "4": 100.0}}).logit_bias == {3: -100.0, 4: 100.0}
    assert refusal_of(logit_bias={3: 100.5}) == "logit_bias of 3 is 100.5, expected -100 to 100"
    for other in ({3: "a"}, {"a": 1.0}):
        assert refusal_of(logit_bias=other) == (
            "logit_bias has other keys or values, expected token ids and numbers"
        )
    assert refusal_of(logit_bias={-1: 1.0}) == (
        "logit_bias has the token id -1, expected 0 to 2147483647"
    )
    assert refusal_of(logit_bias=dict.fromkeys(range(1_025), 1.0)) == (
        "logit_bias has 1025 token ids, expected at most 1024"
    )
    assert refusal_of(logit_bias=[3]) == (
        "logit_bias is a list, expected a mapping of token ids to numbers"
    )


def test_what_is_given_is_copied_and_stays() -> None:
    bias, stop = {3: 1.0}, ["a"]
    params = sampling_of({"logit_bias": bias, "stop": stop})
    bias[3], stop[0] = 2.0, "b"
    assert (params.logit_bias, params.stop) == ({3: 1.0}, ("a",))
    with pytest.raises(AttributeError):
        params.n = 2  # type: ignore[misc]


def test_fields_that_contradict_each_other_are_refused() -> None:
    assert make(min_tokens=5, max_tokens=5).min_tokens == 5
    assert refusal_of(min_tokens=6, max_tokens=5) == (
        "min_tokens is 6, expected at most max_tokens, which is 5"
    )


def test_several_samples_may_be_greedy_as_they_are_equal() -> None:
    assert make(n=2, temperature=0).is_greedy


def test_bad_words_are_texts_that_are_few_and_short() -> None:
    assert sampling_of({"bad_words": ["a"]}).bad_words == ("a",)
    assert refusal_of(bad_words=2.5) == "bad_words is 2.5, expected a list of strings"
    assert refusal_of(bad_words=["a"] * 65) == "bad_words has 65 strings, expected at most 64"
    assert refusal_of(bad_words=[""]) == (
        "bad_words has a string of 0 characters, expected 1 to 256"
    )


def test_greedy_is_what_is_as_good_as_0() -> None:
    """Below 1e-5, as vLLM has it: a hundredth of a nat is a factor of e^1000 there."""
    assert make(temperature=0).is_greedy
    assert make(temperature=9e-6).is_greedy
    assert not make(temperature=1e-5).is_greedy


@pytest.mark.parametrize(
    "name", ["allowed_token_ids", "banned_token_ids", "stop_token_ids", "logit_bias"]
)
def test_ids_beyond_the_vocabulary_are_refused_where_it_is_known(name: str) -> None:
    params = make(**{name: {9: 1.0} if name == "logit_bias" else (9,)})
    check_vocabulary(params, 10)
    with pytest.raises(InvalidArgument) as caught:
        check_vocabulary(params, 9)
    assert str(caught.value) == f"{name} has the token id 9, expected 0 to 8"


def test_some_token_must_be_left_to_choose() -> None:
    check_vocabulary(make(allowed_token_ids=(1, 2), banned_token_ids=(1, 1)), 10)
    check_vocabulary(make(banned_token_ids=(0, 1)), 3)
    for params in (
        make(allowed_token_ids=(1, 2), banned_token_ids=(2, 1)),
        make(banned_token_ids=(0, 1, 2)),
    ):
        with pytest.raises(InvalidArgument, match="every token that may be chosen"):
            check_vocabulary(params, 3)


def test_some_token_must_be_left_beside_those_that_the_model_bans() -> None:
    """Of three tokens, the model bans 1."""
    check_vocabulary(make(allowed_token_ids=(1, 2)), 3, banned_token_ids=(1,))
    with pytest.raises(InvalidArgument, match="allowed_token_ids has only tokens that the model"):
        check_vocabulary(make(allowed_token_ids=(1,)), 3, banned_token_ids=(1,))
    with pytest.raises(InvalidArgument, match="banned_token_ids has every token that may be"):
        check_vocabulary(make(banned_token_ids=(0, 2)), 3, banned_token_ids=(1,))


def test_some_token_must_be_left_to_choose_before_the_text_may_end() -> None:
    """Of three tokens, 2 is the model's end."""
    check_vocabulary(make(allowed_token_ids=(1, 2), min_tokens=1), 3, (2,))
    check_vocabulary(make(allowed_token_ids=(2,), min_tokens=0), 3, (2,))
    check_vocabulary(make(allowed_token_ids=(2,), min_tokens=1, ignore_eos=True), 3, (2,))
    for params in (
        make(allowed_token_ids=(2,), min_tokens=1),
        make(allowed_token_ids=(1, 2), stop_token_ids=(1,), min_tokens=1),
        make(banned_token_ids=(0, 1), min_tokens=1),
        make(stop_token_ids=(0, 1), min_tokens=1),
    ):
        with pytest.raises(InvalidArgument, match=r"^min_tokens is 1, expected 0 where every"):
            check_vocabulary(params, 3, (2,))


def test_numbers_may_be_written_as_text_as_in_tritons_examples_of_vllm() -> None:
    params = sampling_in('{"temperature": "0.1", "top_p": "0.95", "max_tokens": "10"}')
    assert params == Sampling.of({"temperature": 0.1, "top_p": 0.95, "max_tokens": 10})


def test_json_gives_what_the_constructor_gives() -> None:
    values = {
        "temperature": 0.5,
        "logit_bias": {"5": -1, "7": "2.5"},
        "stop": ["a", "b"],
        "stop_token_ids": [1, 2],
        "ignore_eos": True,
        "seed": 3,
        "n": None,
    }
    assert sampling_in(json.dumps(values)) == Sampling.of(
        {
            "temperature": 0.5,
            "logit_bias": {5: -1.0, 7: 2.5},
            "stop": ("a", "b"),
            "stop_token_ids": (1, 2),
            "ignore_eos": True,
            "seed": 3,
        }
    )


def test_other_spellings_of_the_same_are_taken() -> None:
    """vLLM's: -1 is no top_k and no seed, a string is one stop string."""
    read = sampling_of
    for none in (-1, "-1"):
        params = read({"top_k": none, "seed": none, "stop": "\n"})
        assert (params.top_k, params.seed, params.stop) == (0, None, ("\n",))
    assert read({"ignore_eos": "True"}).ignore_eos
    assert not read({"ignore_eos": "false"}).ignore_eos


@pytest.mark.parametrize("name", ["best_of", "", "Temperature", "x" * 1_000])
def test_an_unknown_name_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        sampling_of({name: 1})
    shown, known = str(caught.value).split(" is not a sampling parameter, known are ")
    assert shown == (repr(name) if len(name) < 65 else repr(name[:64]) + "...")
    assert known.split(", ") == FIELDS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "sampling_parameters is not JSON: Expecting value"),
        ("{", "sampling_parameters is not JSON: Expecting property name"),
        ("[]", "sampling_parameters is a list, expected an object"),
        ("3", "sampling_parameters is 3, expected an object"),
        ('{"n": 1, "n": 2}', "'n' is given twice, expected once"),
        ('{"logit_bias": {"5": 1, "5": 2}}', "'5' is given twice"),
        ('{"logit_bias": {"5": 1, "05": 2}}', "logit_bias has other keys or values"),
        ('{"logit_bias": {"x": 1}}', "logit_bias has other keys or values"),
        ('{"temperature": NaN}', "temperature is nan, expected 0 to 100"),
        ('{"temperature": "inf"}', "temperature is inf, expected 0 to 100"),
        ('{"temperature": 1e999}', "temperature is inf, expected 0 to 100"),
        ('{"temperature": "warm"}', "temperature is 'warm', expected a number, 0 to 100"),
        ('{"temperature": {"a": 1}}', "temperature is an object, expected a number, 0 to 100"),
        ('{"max_tokens": "1.5"}', "max_tokens is '1.5', expected a whole number, 0 to"),
        ('{"top_k": %s}' % ("9" * 4_000), "top_k is a whole number of 13288 bits, expected 0 to"),
        ('{"temperature": %s}' % ("9" * 4_000), "temperature is a whole number of 13288 bits"),
        ('{"top_k": %s}' % ("9" * 5_000), "sampling_parameters is not JSON: Exceeds the limit"),
        ('{"top_k": "%s"}' % ("9" * 5_000), f"top_k is '{'9' * 64}'..., expected a whole number"),
        ("[" * 60_000, "sampling_parameters is nested 60000 deep, expected at most 100"),
        (nested(30_000), "sampling_parameters is nested 30001 deep, expected at most 100"),
        (nested(100), "sampling_parameters is nested 101 deep, expected at most 100"),
        (nested(99), "n is a list, expected a whole number, 1 to 64"),
        ('{"stop": "[[[[[[[[[[[[[[[[[[[[\\"[[[[[[[["', "sampling_parameters is not JSON: "),
        ('\\"' * 30_000, "sampling_parameters is not JSON: "),
        ('{"stop": {"a": 1}}', "stop is an object, expected a list of strings"),
        ('{"ignore_eos": "yes"}', "ignore_eos is 'yes', expected true or false"),
    ],
    ids=lambda value: value[:24],
)
def test_json_that_says_nothing_is_refused_with_a_reason(text: str, message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        sampling_in(text)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value)) < 300


def test_the_length_of_json_is_bounded() -> None:
    sampling_in("{}".ljust(MAX_TEXT_CHARACTERS))
    with pytest.raises(
        InvalidArgument, match="has 65537 characters, the server takes at most 65536"
    ):
        sampling_in("{}".ljust(MAX_TEXT_CHARACTERS + 1))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=3), VALUES, max_size=3))
def test_whatever_a_client_sends_is_taken_or_refused(values: dict[str, object]) -> None:
    """No other exception, whatever it is."""
    for read in (sampling_of, lambda v: sampling_in(json.dumps(v))):
        with suppress(InvalidArgument):
            params = read(values)
            assert set(values) <= set(FIELDS)
            assert params.n in range(1, 65)
