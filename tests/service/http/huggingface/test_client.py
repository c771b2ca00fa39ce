"""`huggingface_hub`'s InferenceClient, unmodified, at each model's address."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.fakes.http import port_of
from tests.fakes.serving import Served, within_patience
from tests.fakes.sessions import greedy_text
from tests.fakes.tasks import WHITE

hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
pytestmark = pytest.mark.asyncio(loop_scope="module")
CONTEXT = "\U0001f600 sorry, free lunch cash now"


async def asked(served: Served, model: str, call: Callable[[Any], Any]) -> Any:
    """What a call of the client gives, made on a thread."""
    url = f"http://127.0.0.1:{port_of(served)}/models/{model}"
    client = hub.InferenceClient(model=url, token="none")  # noqa: S106 - else it looks for one
    return await within_patience(asyncio.to_thread(call, client))


async def test_texts_and_tokens_are_classified(served: Served) -> None:
    labels = await asked(served, "spam", lambda c: c.text_classification("win a prize", top_k=2))
    assert len(labels) == 2
    assert labels[0].score >= labels[1].score
    (entity,) = await asked(served, "tags", lambda c: c.token_classification("the win prize"))
    assert (entity.entity_group, entity.word, entity.start, entity.end) == (
        "prize",
        "win prize",
        4,
        13,
    )


async def test_vectors_and_similarities_come_from_one_address(served: Served) -> None:
    vectors = await asked(served, "mini", lambda c: c.feature_extraction(["win", "lunch now"]))
    assert (vectors.shape, vectors.dtype) == ((2, 4), np.float32)
    one = await asked(served, "mini", lambda c: c.feature_extraction("win", normalize=True))
    assert np.linalg.norm(one) == pytest.approx(1)
    similarities = await asked(
        served, "mini", lambda c: c.sentence_similarity("win", ["win", "lunch now"])
    )
    assert similarities[0] == pytest.approx(1)
    assert len(similarities) == 2


async def test_masks_are_filled_and_questions_answered(served: Served) -> None:
    fills = await asked(served, "fills", lambda c: c.fill_mask("win the [MASK]", top_k=2))
    assert [fill.sequence for fill in fills] == [f"win the {fill.token_str}" for fill in fills]
    answer = await asked(
        served, "asks", lambda c: c.question_answering(question="win", context=CONTEXT)
    )
    assert answer.answer == CONTEXT[answer.start : answer.end] == "free lunch cash"


async def test_images_are_classified_raw_and_with_parameters(served: Served) -> None:
    all_labels = await asked(served, "light", lambda c: c.image_classification(WHITE))
    best = await asked(served, "light", lambda c: c.image_classification(WHITE, top_k=1))
    assert best == all_labels[:1]


async def test_text_is_generated_whole_and_as_a_stream(served: Served) -> None:
    expected = greedy_text("once", 8)
    text = await asked(served, "tale", lambda c: c.text_generation("once", max_new_tokens=8))
    assert text == expected
    pieces = await asked(
        served,
        "tale",
        lambda c: list(c.text_generation("once", max_new_tokens=8, stream=True)),
    )
    assert len(pieces) == 8
    assert "".join(pieces) == expected
    events = await asked(
        served,
        "tale",
        lambda c: list(
            c.text_generation("once", max_new_tokens=8, stream=True, details=True, top_n_tokens=2)
        ),
    )
    assert events[-1].generated_text == expected
    assert events[-1].details.finish_reason == "length"
    whole = await asked(
        served, "tale", lambda c: c.text_generation("once", max_new_tokens=8, details=True)
    )
    assert len(whole.details.tokens) == whole.details.generated_tokens == 8


async def test_an_output_is_a_translation(served: Served) -> None:
    translated = await asked(served, "writes", lambda c: c.translation("win prize"))
    assert translated.translation_text == "prize win"


async def test_refusals_are_its_errors(served: Served) -> None:
    with pytest.raises(hub.errors.BadRequestError, match="function_to_apply"):
        await asked(
            served, "spam", lambda c: c.text_classification("win", function_to_apply="relu")
        )
    with pytest.raises(hub.errors.HfHubHTTPError, match="unknown model: 'nix'"):
        await asked(served, "nix", lambda c: c.text_classification("win"))
