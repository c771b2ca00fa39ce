"""`attendant features` and `attendant similarity`, as a user meets them."""

import asyncio
import json

import numpy as np
import pytest

from commands.ask.trials import try_models
from service.contract.embedder_use import unit
from service.errors import InvalidArgument
from service.serving.tasks.features import LAYERS, MIX
from tests.fakes.command_line import run
from tests.fakes.serving import Served
from tests.fakes.sessions import text_values, token_ids
from tests.fakes.tasks import states_of

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_features_are_shown_by_token_with_their_beginning(served: Served) -> None:
    result = await run(served, "features", "deep", "win prize", "--pooling", "none")
    assert result.exit_code == 0
    states = states_of(token_ids("win prize"))[:, -1]
    for token, values in zip(("[CLS]", "win", "prize", "[SEP]"), states, strict=True):
        shown = " ".join(f"{value:+.3f}" for value in values)
        assert any(token in line and shown in line for line in result.stdout.splitlines())


@pytest.mark.parametrize("layers", [*LAYERS, MIX])
async def test_every_strategy_can_be_asked_for(served: Served, layers: str) -> None:
    weights = [f"--weights={weight}" for weight in (0, 0, 0, 0, 1)] if layers == MIX else []
    options = ("--layers", layers, *weights, "--json")
    result = await run(served, "features", "deep", "win", *options)
    (found,) = json.loads(result.stdout)["results"]
    strategy = LAYERS.get(layers, LAYERS["last"])
    wanted = strategy(states_of(token_ids("win"))).mean(axis=0)
    assert np.allclose(found["vectors"][0]["values"], wanted)


async def test_a_word_is_compared_with_itself_in_other_texts(served: Served) -> None:
    """Its tokens are found by their places, whatever stands around it."""
    texts = ("win the prize", "the  Prize now", "prize")
    result = await run(
        served, "features", "deep", *(text.lower() for text in texts), "--word=PRIZE"
    )
    places = (3, 2, 1)
    vectors = np.stack(
        [
            states_of(token_ids(text.lower()))[place, -1]
            for text, place in zip(texts, places, strict=True)
        ]
    )
    cosines = unit(vectors) @ unit(vectors).T
    rows = [line for line in result.stdout.splitlines() if "prize" in line]
    for row, values in zip(rows, cosines, strict=True):
        assert all(f"{value:.3f}" in row for value in values)


async def test_a_word_must_be_in_every_text(served: Served) -> None:
    with pytest.raises(InvalidArgument, match="'home' has no word 'prize'"):
        await run(served, "features", "deep", "prize", "home", "--word", "prize")


async def test_similarity_is_a_table_of_all_pairs(served: Served) -> None:
    texts = ("win a prize", "lunch", "home now")
    vectors = np.stack([text_values(token_ids(text), 4) for text in texts])
    result = await run(served, "similarity", "mini", *texts, "--measure", "scaled_dot")
    rows = [line for line in result.stdout.splitlines() if any(text in line for text in texts)]
    for row, values in zip(rows, vectors @ vectors.T / 2, strict=True):
        assert all(f"{value:.3f}" in row for value in values)
    whole = await run(served, "similarity", "mini", *texts, "--json")
    found = [row["values"] for row in json.loads(whole.stdout)["rows"]]
    assert np.allclose(found, unit(vectors) @ unit(vectors).T, atol=1e-6)


async def test_a_model_of_features_is_tried_with_its_example(served: Served) -> None:
    tried = await asyncio.to_thread(lambda: list(try_models(served.address, 20.0)))
    (answer,) = (trial.answer for trial in tried if trial.model.name == "deep")
    assert answer.startswith("3 values: ")
