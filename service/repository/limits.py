"""The bounds of a model's queue, batches and steps: its configuration's, or the server's settings.

Wrong values in `dynamic_batching` are refused here, with the field's name.
"""

from dataclasses import replace
from math import inf

from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelQueuePolicy

from service.batching.limits import BatchLimits
from service.contract.manifest import Manifest
from service.contract.model_config import parameter
from service.contract.precision import MAX_DRAFT_TOKENS
from service.contract.queue_policies import QueuePolicies, QueuePolicy
from service.errors import LoadError
from service.generation.steps.scheduler import SchedulerLimits
from service.runtime.cost import CostCurve
from service.settings import Settings

# Who is left waiting may join a batch with less padding, so that a run saved now is worth only a
# part of its price: replayed in tests/service/batching/replay.py.
PATIENCE = 0.35
# A batch that costs more is at most 6 % better for it by its price, and slower by the clock: its
# activations no longer fit the processor's caches (decision 0001).
MAX_OVERHEADS = 16
# Of a batch, 512 MiB: tokens by words, before the largest of each word is taken.
MAX_TERM_LOGITS = 2**27
MAX_PRIORITY_LEVELS = 64  # each may have as many requests waiting as a model without levels


def batch_limits(config: ModelConfig, settings: Settings) -> BatchLimits:
    """The bounds of a model whose requests are batched. Raises `LoadError`."""
    batching = config.dynamic_batching
    cost = CostCurve(parameter(config, "batch_overhead_tokens", settings.batch_overhead_tokens))
    return BatchLimits(
        max_rows=max(1, config.max_batch_size),
        max_tokens=parameter(config, "max_batch_tokens", settings.max_batch_tokens),
        queue=queue_policies(config, settings),
        max_waiting_rows=parameter(config, "max_queue_rows", settings.max_queue_rows),
        max_waiting_tokens=parameter(config, "max_queue_tokens", settings.max_queue_tokens),
        max_background_tokens=settings.max_background_tokens,
        cost=cost,
        run_cost=cost,
        max_delay_s=batching.max_queue_delay_microseconds / 1e6,
        preferred_rows=tuple(batching.preferred_batch_size),
    )


def with_terms(limits: BatchLimits, manifest: Manifest | None) -> BatchLimits:
    """Bounds where a run computes a number for every token and word of the vocabulary.

    The longest text is let through whatever it takes.
    """
    if manifest is None or manifest.sparse_rows != "text":
        return limits
    most = max(manifest.max_tokens, MAX_TERM_LOGITS // manifest.sparse_size)
    return replace(limits, max_tokens=min(limits.max_tokens, most))


def with_cost(limits: BatchLimits, measured: CostCurve | None) -> BatchLimits:
    """Bounds where the cost of the model's runs was measured."""
    if measured is None:
        return limits
    return replace(
        limits,
        cost=replace(measured, overhead=PATIENCE * measured.overhead),
        max_cost=MAX_OVERHEADS * measured.overhead,
        run_cost=measured,
    )


def scheduler_limits(config: ModelConfig, settings: Settings) -> SchedulerLimits:
    """The bounds of a generative model's steps. Raises `LoadError`."""
    max_draft_tokens = parameter(config, "max_draft_tokens", settings.max_draft_tokens)
    if max_draft_tokens > MAX_DRAFT_TOKENS:
        raise LoadError(
            f"max_draft_tokens is {max_draft_tokens}, expected at most {MAX_DRAFT_TOKENS}"
        )
    return SchedulerLimits(
        max_running=parameter(config, "max_running_sequences", settings.max_running_sequences),
        max_prefill_tokens=parameter(config, "max_prefill_tokens", settings.max_prefill_tokens),
        overhead_tokens=parameter(config, "batch_overhead_tokens", settings.batch_overhead_tokens),
        priority_step_s=settings.priority_step_s,
        can_reuse_prefixes=settings.prefix_reuse,
        max_prefix_bytes=parameter(config, "prefix_cache_bytes", settings.prefix_cache_bytes),
        max_draft_tokens=max_draft_tokens,
    )


def queue_policies(config: ModelConfig, settings: Settings) -> QueuePolicies:
    """Policies of waiting, by level, or `LoadError`."""
    batching = config.dynamic_batching
    num_levels, default_level = batching.priority_levels, batching.default_priority_level
    if num_levels > MAX_PRIORITY_LEVELS:
        raise LoadError(
            f"config.pbtxt: dynamic_batching.priority_levels is {num_levels}, "
            f"expected at most {MAX_PRIORITY_LEVELS}"
        )
    if num_levels and not 1 <= default_level <= num_levels:
        raise LoadError(
            f"config.pbtxt: dynamic_batching.default_priority_level is {default_level}, "
            f"expected 1 to priority_levels, which is {num_levels}"
        )
    if default_level and not num_levels:
        raise LoadError(
            f"config.pbtxt: dynamic_batching.default_priority_level is {default_level}, "
            "but priority_levels is not set"
        )
    for level in sorted(batching.priority_queue_policy):
        if not 1 <= level <= num_levels:
            raise LoadError(
                f"config.pbtxt: dynamic_batching.priority_queue_policy has the level {level}, "
                f"expected 1 to priority_levels, which is {num_levels}"
            )
    return QueuePolicies(
        _policy(batching.default_queue_policy, settings),
        {
            level: _policy(policy, settings)
            for level, policy in batching.priority_queue_policy.items()
        },
        max(1, num_levels),
        max(1, default_level),
    )


def _policy(policy: ModelQueuePolicy, settings: Settings) -> QueuePolicy:
    """One that says itself how many may wait, or how long, has no bound by the expected wait."""
    is_bounded = policy.max_queue_size or policy.default_timeout_microseconds
    return QueuePolicy(
        policy.max_queue_size or settings.max_queue_requests,
        policy.default_timeout_microseconds / 1e6 or None,
        policy.allow_timeout_override,
        policy.timeout_action == ModelQueuePolicy.DELAY,
        inf if is_bounded or not settings.max_queue_s else settings.max_queue_s,
    )
