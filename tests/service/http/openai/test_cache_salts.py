"""`cache_salt` keeps tenants apart at every door, and the metrics tell what was reused."""

import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from attendant.v1 import generation_pb2 as pb

from tests.fakes.http import ask
from tests.fakes.serving import Served, eventually, within_patience
from tests.fakes.sessions import greedy_text

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = {"model_control_mode": "explicit", "load_models": "*"}
NUM_SHARED = 40  # tokens; the context has 64


async def by_completions(served: Served, prompt: str, salt: str) -> tuple[str, int]:
    fields = {"model": "tale", "prompt": prompt, "max_tokens": 2, "temperature": 0}
    salted = {"cache_salt": salt} if salt else {}
    answer = await within_patience(ask(served, "POST", "/v1/completions", fields | salted))
    details = answer.json["usage"]["prompt_tokens_details"]
    return answer.json["choices"][0]["text"], details["cached_tokens"]


async def by_typed_call(served: Served, prompt: str, salt: str) -> tuple[str, int]:
    params = pb.SamplingParams(max_tokens=2, temperature=0.0, cache_salt=salt)
    request = pb.GenerateRequest(model="tale", text=prompt, sampling_params=params)
    whole = await within_patience(served.generation.GenerateUnary(request))
    return whole.results[0].text, whole.usage.reused_tokens


async def by_parameters(served: Served, prompt: str, salt: str) -> tuple[str, int]:
    """Of the protocol, whose answers have no usage: by the metric."""
    parameters = {"max_tokens": 2, "temperature": 0.0, "cache_salt": salt}
    fields = {"text_input": prompt, "parameters": {**parameters, "exclude_input_in_output": True}}
    before = hits(served)
    answer = await within_patience(ask(served, "POST", "/v2/models/tale/generate", fields))
    return answer.json["text_output"].removeprefix(prompt), int(hits(served) - before)


def hits(served: Served, name: str = "attendant_prefix_cache_hits_total") -> float:
    registry = served.app._metrics.registry
    return registry.get_sample_value(name, {"model": "tale", "version": "1"}) or 0.0


Generate = Callable[[Served, str, str], Awaitable[tuple[str, int]]]
DOORS: list[tuple[str, Generate]] = [
    ("b", by_completions),
    ("c", by_typed_call),
    ("d", by_parameters),
]


@pytest.mark.parametrize(("letter", "generate"), DOORS)
async def test_a_prompt_reuses_what_its_own_tenant_asked(
    served: Served, letter: str, generate: Generate
) -> None:
    """40 tokens of two tenants and of a client without a salt, each of whom asks twice."""
    before, prompt = hits(served), letter * NUM_SHARED
    counts: list[Any] = []
    for end in "xy":
        for salt in ("blue", "red", ""):
            text, num_reused = await generate(served, prompt + end, salt)
            assert text == greedy_text(prompt + end, 2)
            counts.append(num_reused)
    assert counts == [0, 0, 0, *[NUM_SHARED] * 3]
    assert hits(served) - before == 3 * NUM_SHARED


async def test_a_salt_that_is_too_long_is_refused_by_its_name(served: Served) -> None:
    fields = {"model": "tale", "prompt": "once", "cache_salt": "s" * 257}
    answer = await within_patience(ask(served, "POST", "/v1/completions", fields))
    assert answer.status == 400
    assert answer.json["error"]["param"] == "cache_salt"
    expected = "cache_salt has 257 characters, expected at most 256, such as a hash of a longer one"
    assert answer.json["error"]["message"] == expected


async def test_a_prompt_whose_slot_was_taken_is_counted_and_unloading_frees_its_memory(
    served: Served,
) -> None:
    """Nine other prompts take the eight slots; of 40 tokens 32 come from the store."""
    for letter in "ghijklmnop":
        await by_completions(served, letter * NUM_SHARED, "")
    assert await by_completions(served, "g" * NUM_SHARED + "x", "") == (
        greedy_text("g" * NUM_SHARED + "x", 2),
        32,
    )
    assert hits(served, "attendant_prefix_store_hits_total") == 32
    assert hits(served, "attendant_prefix_store_bytes") >= 64
    store = weakref.ref(served.app.repository.find("tale").engine.cache._store)  # type: ignore[attr-defined]
    assert store() is not None
    await within_patience(served.app.repository.unload("tale"))
    gc.collect()
    await eventually(lambda: gc.collect() >= 0 and store() is None)  # its thread ends meanwhile
    assert hits(served, "attendant_prefix_store_bytes") == 0
