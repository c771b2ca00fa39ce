"""What a configuration says of queues and batches, and what it may not say."""

from math import inf

import pytest

from service.batching.limits import BatchLimits
from service.contract.config_checks import check_generative
from service.contract.model_config import parse_config
from service.contract.precision import MAX_DRAFT_TOKENS
from service.contract.queue_policies import QueuePolicies, QueuePolicy
from service.errors import LoadError
from service.generation.steps.scheduler import SchedulerLimits
from service.repository.limits import (
    PATIENCE,
    batch_limits,
    scheduler_limits,
    with_cost,
    with_terms,
)
from service.runtime.cost import CostCurve
from service.settings import Settings
from tests.fakes.sessions import embedder_manifest


def test_a_model_s_bounds_come_before_the_server_s() -> None:
    text = """max_batch_size: 8
      dynamic_batching { preferred_batch_size: [4] max_queue_delay_microseconds: 1500
                         default_queue_policy { max_queue_size: 5 } }
      parameters { key: "max_batch_tokens" value { string_value: "100" } }
      parameters { key: "max_queue_rows" value { string_value: "150" } }
      parameters { key: "max_queue_tokens" value { string_value: "200" } }
      parameters { key: "batch_overhead_tokens" value { string_value: "3" } }"""
    assert batch_limits(parse_config(text, "m"), Settings()) == BatchLimits(
        max_rows=8,
        max_tokens=100,
        queue=QueuePolicies(QueuePolicy(5, max_wait_s=inf)),
        max_waiting_rows=150,
        max_waiting_tokens=200,
        cost=CostCurve(3),
        run_cost=CostCurve(3),
        max_delay_s=0.0015,
        preferred_rows=(4,),
    )
    settings = Settings(
        max_batch_tokens=1,
        max_queue_requests=2,
        max_queue_rows=5,
        max_queue_tokens=3,
        batch_overhead_tokens=4,
    )
    assert batch_limits(parse_config("", "m"), settings) == BatchLimits(
        max_rows=1,
        max_tokens=1,
        queue=QueuePolicies(QueuePolicy(2)),
        max_waiting_rows=5,
        max_waiting_tokens=3,
        cost=CostCurve(4),
        run_cost=CostCurve(4),
    )


def test_the_defaults_of_the_settings_are_those_of_the_records() -> None:
    assert batch_limits(parse_config("max_batch_size: 64", "m"), Settings()) == BatchLimits()


def test_a_batch_of_term_weights_has_so_many_tokens_that_its_logits_are_bounded() -> None:
    """2^27 logits are 4,397 tokens of 30,522 words; a text of more tokens is let through."""
    limits = BatchLimits(max_tokens=16_384)
    for max_tokens, expected in ((512, 4_397), (8_192, 8_192)):
        terms = embedder_manifest(
            embedding_size=0, sparse_size=30_522, sparse_rows="text", max_tokens=max_tokens
        )
        assert with_terms(limits, terms).max_tokens == expected
    assert with_terms(limits, embedder_manifest()) == with_terms(limits, None) == limits


def test_levels_have_their_own_policies_and_others_the_default() -> None:
    text = """dynamic_batching { priority_levels: 3 default_priority_level: 2
      default_queue_policy { default_timeout_microseconds: 2000 allow_timeout_override: true }
      priority_queue_policy { key: 3 value { timeout_action: DELAY max_queue_size: 7 } } }"""
    queue = batch_limits(parse_config(text, "m"), Settings(max_queue_requests=9)).queue
    assert [queue.level_of(priority) for priority in (0, 1, 2, 3, 4, 2**63)] == [2, 1, 2, 3, 2, 2]
    assert queue.of(1) == queue.of(2) == QueuePolicy(9, 0.002, can_override=True, max_wait_s=inf)
    assert queue.of(3) == QueuePolicy(7, None, is_delaying=True, max_wait_s=inf)


@pytest.mark.parametrize(
    ("default_s", "can_override", "asked_s", "timeout_s"),
    [
        (None, False, None, None),
        (None, False, 1.0, None),
        (None, True, 1.0, 1.0),
        (None, True, 0.0, None),
        (2.0, True, 1.0, 1.0),
        (2.0, True, 3.0, 2.0),
        (2.0, True, 0.0, 2.0),
        (2.0, True, -1.0, 2.0),
        (2.0, True, None, 2.0),
        (2.0, False, 1.0, 2.0),
    ],
)
def test_a_request_may_ask_to_wait_less_where_it_is_allowed_to(
    default_s: float | None, can_override: bool, asked_s: float | None, timeout_s: float | None
) -> None:
    policy = QueuePolicy(timeout_s=default_s, can_override=can_override)
    assert policy.timeout_of(asked_s) == timeout_s


@pytest.mark.parametrize(
    "text",
    [
        "",
        "instance_group [{ count: 1 kind: KIND_CPU }]",
        """dynamic_batching { default_queue_policy { max_queue_size: 3
           default_timeout_microseconds: 100 allow_timeout_override: true } }""",
    ],
)
def test_a_generative_model_may_bound_its_queue(text: str) -> None:
    check_generative(parse_config(text, "m"))


def test_measured_costs_come_with_patience_and_a_bound() -> None:
    """A run of 40 tokens is worth 14 of padding now, and a batch ends growing at 640."""
    measured = CostCurve(40.0, 0.05, 0.001, 1e-4)
    limits = with_cost(batch_limits(parse_config("max_batch_size: 64", "m"), Settings()), measured)
    assert limits.cost == CostCurve(PATIENCE * 40.0, 0.05, 0.001, 1e-4)
    assert limits.max_cost == 640.0


def test_the_queue_is_bounded_by_time_unless_the_configuration_bounds_it_itself() -> None:
    """By default 30 s; a level that says how many may wait, or how long, waits as it says."""
    text = """max_batch_size: 8
      dynamic_batching { priority_levels: 3 default_priority_level: 2
        priority_queue_policy { key: 1 value { max_queue_size: 5 } }
        priority_queue_policy { key: 3 value { default_timeout_microseconds: 5000000 } } }"""
    policies = batch_limits(parse_config(text, "m"), Settings()).queue
    assert [policies.of(level).max_wait_s for level in (1, 2, 3)] == [inf, 30.0, inf]
    unbounded = batch_limits(parse_config(text, "m"), Settings(max_queue_s=0)).queue
    assert unbounded.of(2).max_wait_s == inf


def parameters(**numbers: int) -> str:
    return " ".join(
        f'parameters {{ key: "{name}" value {{ string_value: "{number}" }} }}'
        for name, number in numbers.items()
    )


@pytest.mark.parametrize("is_reusing", [True, False])
def test_a_generative_model_s_bounds_come_before_the_server_s(is_reusing: bool) -> None:
    """Those that a model has none of its own for are the server's."""
    settings = Settings(
        max_running_sequences=11,
        max_prefill_tokens=12,
        batch_overhead_tokens=13,
        max_draft_tokens=14,
        priority_step_s=1.5,
        prefix_reuse=is_reusing,
        prefix_cache_bytes=15,
    )
    config = parse_config("", "m")
    assert scheduler_limits(config, settings) == SchedulerLimits(
        max_running=11,
        max_prefill_tokens=12,
        overhead_tokens=13,
        priority_step_s=1.5,
        can_reuse_prefixes=is_reusing,
        max_draft_tokens=14,
        max_prefix_bytes=15,
    )
    text = parameters(
        max_running_sequences=1,
        max_prefill_tokens=2,
        batch_overhead_tokens=3,
        max_draft_tokens=4,
        prefix_cache_bytes=5,
    )
    found = scheduler_limits(parse_config(text, "m"), settings)
    assert (found.max_running, found.max_prefill_tokens) == (1, 2)
    assert (found.overhead_tokens, found.max_draft_tokens) == (3, 4)
    assert found.max_prefix_bytes == 5


def test_a_draft_is_no_longer_than_the_server_can_check() -> None:
    most = parse_config(parameters(max_draft_tokens=MAX_DRAFT_TOKENS), "m")
    assert scheduler_limits(most, Settings()).max_draft_tokens == MAX_DRAFT_TOKENS
    more = parse_config(parameters(max_draft_tokens=MAX_DRAFT_TOKENS + 1), "m")
    with pytest.raises(LoadError, match=f"max_draft_tokens is {MAX_DRAFT_TOKENS + 1}, expected"):
        scheduler_limits(more, Settings())
