"""The names that dialects have for the values of calls."""

import inspect

import msgspec
import pytest

from service.calls import features, images, reading, texts, tokens
from service.calls.record import Call, abouts, names_in
from service.calls.sampling import Sampling
from service.calls.texts import Embed, ScorePairs
from service.errors import InvalidArgument, LacksKind
from service.http.openai.chat_fields import ChatRequest
from service.http.openai.completions import CompletionRequest
from service.http.shared.names import PATHS_OF_KINDS, names_of
from service.serving.tasks.embedding_kinds import KINDS
from service.text.places import place_of, place_of_tokens

DIALECTS = {"openai", "huggingface", "cohere"}
CALLS = [
    each
    for module in (features, images, reading, texts, tokens)
    for _, each in inspect.getmembers(module, inspect.isclass)
    if issubclass(each, Call) and each is not Call
]


@pytest.mark.parametrize("call", CALLS)
def test_a_record_names_its_fields_for_known_dialects_alone(call: type[Call]) -> None:
    assert {name for each in abouts(call) for name in each.says.get("also", {})} <= DIALECTS
    assert names_in("none of them", call) == {}


@pytest.mark.parametrize("body", [ChatRequest, CompletionRequest])
def test_a_body_has_each_parameter_of_generation_that_its_dialect_names(
    body: type[msgspec.Struct],
) -> None:
    assert {*names_in("openai", Sampling).values()} <= {*body.__struct_fields__}


def test_each_text_has_the_name_of_its_body() -> None:
    """A list, one alone, and pairs of which one part is the same for all."""
    error = place_of(2).too_long(9, 8)
    assert str(names_of("openai", Embed, cut="cut it")(error)) == (
        "input[2] has 9 tokens, the model takes at most 8: shorten it, or cut it"
    )
    alone = names_of("huggingface", Embed, single=("texts",))(error)
    assert str(alone) == "inputs has 9 tokens, the model takes at most 8: shorten it"
    pairs = names_of("huggingface", ScorePairs, single=("texts",))
    named = pairs(place_of(2, is_pair=True).refused("is long"))
    assert (str(named), named.field) == (
        "sentences[2] with its source_sentence is long",
        "sentences",
    )


def test_unknown_ids_are_told_with_what_a_dialect_knows_of_them() -> None:
    names = names_of("openai", Embed, tokenizer=": of another tokenizer")
    path = place_of_tokens(1).field
    unknown = InvalidArgument("has 70, expected 0 to 9", path, subject=path, remedy="tokenizer")
    assert str(names(unknown)) == "input[1] has 70, expected 0 to 9: of another tokenizer"
    assert str(unknown) == "token_ids[1] has 70, expected 0 to 9"


def test_a_kind_that_a_model_lacks_is_told_with_the_paths_of_those_that_it_has() -> None:
    assert set(PATHS_OF_KINDS) == set(KINDS)
    named = names_of("openai", Embed)(LacksKind("token_vectors", ["dense", "sparse"]))
    assert (str(named), named.field) == (
        "the request is for token vectors, but the model answers dense and sparse only: "
        "see /v1/embeddings and /embed_sparse",
        "model",
    )
