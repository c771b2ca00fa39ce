"""A choice under a grammar: the model's own where it is allowed, however that is found."""

# ruff: noqa: N806 - suffixes are array layouts: B rows, K candidates, V vocabulary

from typing import Any

import numpy as np
import pytest

from service.calls.sampling import Sampling
from service.errors import InvalidArgument
from service.generation.choosing.sampler_state import SamplerState
from service.generation.choosing.sampling import sample
from service.generation.choosing.step_logits import Candidates, StepLogits
from service.grammars.form import Grammar
from service.grammars.state import GrammarState
from tests.fakes.grammars import BYTES, END, VOCAB_SIZE, Case, cases, piece_compiler

pytest.importorskip("llguidance")
NUM_TOKENS = 40
NUM_DRAWS = 800
NOTHING = np.empty(0, np.int64)


def state_of(grammar: Grammar, **params: Any) -> SamplerState:
    sampling = Sampling(**{"temperature": 0.0, "seed": 1} | params, grammar=grammar)
    matcher = piece_compiler().compile(grammar)
    return SamplerState(sampling, np.array([1]), (END,), matcher=matcher)


def grammar_of(state: SamplerState) -> GrammarState:
    assert state.grammar is not None
    return state.grammar


def logits_of(place: int, scale: float = 3.0) -> np.ndarray:
    random = np.random.default_rng(place)
    logits: np.ndarray = random.normal(scale=scale, size=VOCAB_SIZE).astype(np.float32)
    return logits


@pytest.mark.parametrize("case", cases(16, seed=7), ids=lambda case: case.grammar.kind)
def test_the_likeliest_allowed_token_is_chosen_by_a_look_up_or_by_a_mask(case: Case) -> None:
    """Whether the model is trusted decides what is computed, not what is chosen."""
    states = [state_of(case.grammar) for _ in range(3)]
    for place in range(NUM_TOKENS):
        own = [grammar_of(each) for each in states]
        own[0].trusts_model, own[1].trusts_model = True, False
        own[1].prepare()
        logits_BV = np.stack([logits_of(place)] * 3)
        logits_BV[:, own[2].fork().few if place % 3 else NOTHING] += 9.0
        chosen = sample(logits_BV, states).token_ids
        assert len(set(chosen.tolist())) == 1
        if own[0].is_complete or chosen[0] == END:
            break


@pytest.mark.parametrize("trusts_model", [True, False])
@pytest.mark.parametrize("pattern", ["[^b]x", "(a|b|c)x"])
def test_a_draw_has_the_distribution_of_what_is_allowed(trusts_model: bool, pattern: str) -> None:
    """Of 800 draws each token has its share, to four and a half standard deviations."""
    logits_V = logits_of(3, scale=1.0)
    state = state_of(Grammar.of("regex", pattern), temperature=1.0)
    start = grammar_of(state)
    counts = np.zeros(VOCAB_SIZE)
    for _ in range(NUM_DRAWS):
        state.grammar = start.fork()
        state.grammar.trusts_model = trusts_model
        counts[sample(logits_V[None], [state]).token_ids[0]] += 1
    all_of_it = GrammarState(piece_compiler().compile(Grammar.of("regex", pattern)), NOTHING)
    all_of_it.edit(edited_V := logits_V.copy())
    shares = np.exp(edited_V) / np.exp(edited_V).sum()
    assert not counts[shares == 0.0].any()
    deviations = np.sqrt(NUM_DRAWS * shares * (1 - shares))
    assert (np.abs(counts - NUM_DRAWS * shares) <= 4.5 * deviations + 1.0).all()


def test_a_token_that_the_tokenizer_lacks_is_not_allowed_and_breaks_nothing() -> None:
    """The model's vocabulary is padded, and a padded id may be the likeliest, or in a draft."""
    state = state_of(Grammar.of("regex", "[ab]{3}"))
    logits_V = logits_of(1)
    logits_V[[VOCAB_SIZE - 1, ord("b")]] = [99.0, 50.0]
    for _ in range(3):
        assert sample(logits_V[None], [state]).token_ids[0] == ord("b")
    draft = np.array([ord("a"), VOCAB_SIZE - 1, ord("a")])
    fresh = grammar_of(state_of(Grammar.of("regex", "[ab]{3}")))
    assert fresh.num_valid(draft) == 1
    assert fresh.failure is None


def test_the_model_is_trusted_again_once_its_likeliest_token_is_allowed() -> None:
    for temperature in (0.0, 1.0):
        state = state_of(Grammar.of("regex", "[ab]{8}"), temperature=temperature)
        likely = logits_of(1) - 20.0
        likely[ord("a")] = 40.0
        unlikely = likely.copy()
        unlikely[ord("z")] = 90.0
        trusted = []
        for logits_V in (likely, unlikely, unlikely, likely, likely):
            assert BYTES[sample(logits_V[None], [state]).token_ids[0]] in (b"a", b"b")
            trusted.append(grammar_of(state).trusts_model)
        assert trusted == [True, False, False, True, True]


def test_where_filters_read_all_logits_masks_are_made_beforehand() -> None:
    state = state_of(Grammar.of("regex", "[ab]{8}"), temperature=1.0, top_p=0.9)
    grammar_of(state).prepare()
    assert grammar_of(state)._mask is not None
    lazy = state_of(Grammar.of("regex", "[ab]{8}"), temperature=1.0)
    grammar_of(lazy).prepare()
    assert grammar_of(lazy)._mask is None, "the model's own choice is looked up first"


@pytest.mark.parametrize(("best", "is_fetched"), [("a", False), ("z", True)])
def test_a_device_keeps_its_rows_where_the_grammar_allows_the_likeliest(
    best: str, is_fetched: bool
) -> None:
    logits_V = logits_of(1)
    logits_V[ord(best)] = 50.0
    ids_K = np.argsort(-logits_V)[:8]
    fetched: list[int] = []

    def fetch(rows: np.ndarray) -> np.ndarray:
        fetched.extend(rows.tolist())
        return logits_V[None]

    candidates = Candidates(
        ids_K[None], logits_V[ids_K][None], np.array([50.0], np.float32), VOCAB_SIZE
    )
    state = state_of(Grammar.of("regex", "[ab]{8}"))
    chosen = StepLogits(np.arange(1), fetch, candidates).sample([state]).token_ids[0]
    assert BYTES[chosen] in ((b"a",) if best == "a" else (b"a", b"b", b"ab"))
    assert bool(fetched) is is_fetched


def test_after_an_error_nothing_is_allowed_and_the_error_is_kept() -> None:
    state = grammar_of(state_of(Grammar.of("regex", "[ab]{8}")))
    state.take(ord("z"))
    assert isinstance(state.failure, InvalidArgument)
    assert state.forced == ()
    assert not state.allows(ord("a"))
    few = state.few
    assert few is not None
    assert not few.size
    assert not state.is_complete
