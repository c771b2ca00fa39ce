"""The bounds of a model's queue and batches: its configuration first, then the server's settings.

What is wrong in `dynamic_batching` is refused here, with the field's name.
"""

from dataclasses import replace
from math import inf

from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelQueuePolicy

from service.batching import BatchLimits
from service.cost_curve import CostCurve
from service.errors import LoadError
from service.model_config import parameter
from service.queue_policy import QueuePolicies, QueuePolicy
from service.session_config import RUN_ENTRIES
from service.settings import Settings

# Who is left waiting may join a batch with less padding, so that a run saved now is worth only a
# part of its price: replayed in loadtests/batch_replay.py.
PATIENCE = 0.35
# A batch that costs more is at most 6 % better for it by its price, and slower by the clock: its
# activations no longer fit the processor's caches (decision 0001).
MAX_OVERHEADS = 16
MAX_PRIORITY_LEVELS = 64  # each may have as many requests waiting as a model without levels


def batch_limits(
    config: ModelConfig, settings: Settings, measured: CostCurve | None = None
) -> BatchLimits:
    """Of a model whose requests are batched, or `LoadError`; `measured` is what its runs cost."""
    batching = config.dynamic_batching
    overhead = parameter(config, "batch_overhead_tokens", settings.batch_overhead_tokens)
    return BatchLimits(
        max_rows=max(1, config.max_batch_size),
        max_tokens=parameter(config, "max_batch_tokens", settings.max_batch_tokens),
        queue=queue_policies(config, settings),
        max_waiting_rows=parameter(config, "max_queue_rows", settings.max_queue_rows),
        max_waiting_tokens=parameter(config, "max_queue_tokens", settings.max_queue_tokens),
        cost=replace(measured, overhead=PATIENCE * measured.overhead)
        if measured
        else CostCurve(overhead),
        max_cost=MAX_OVERHEADS * measured.overhead if measured else inf,
        run_cost=measured or CostCurve(overhead),
        max_delay_s=batching.max_queue_delay_microseconds / 1e6,
        preferred_rows=tuple(batching.preferred_batch_size),
    )


def queue_policies(config: ModelConfig, settings: Settings) -> QueuePolicies:
    """Who may wait, and how long, or `LoadError`."""
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


def check_generative(config: ModelConfig) -> None:
    """Refuse what a model that generates step by step has no use for, by its name."""
    batching = config.dynamic_batching
    for name in (
        "preferred_batch_size",
        "max_queue_delay_microseconds",
        "priority_levels",
        "default_priority_level",
        "priority_queue_policy",
    ):
        if getattr(batching, name):
            raise LoadError(
                f"config.pbtxt: dynamic_batching.{name} is set, but sequences of a generative "
                "model join and leave between steps: it has no effect"
            )
    if batching.default_queue_policy.timeout_action == ModelQueuePolicy.DELAY:
        raise LoadError(
            "config.pbtxt: dynamic_batching.default_queue_policy.timeout_action is DELAY, "
            "a generative model knows REJECT only"
        )
    if config.response_cache.enable:
        raise LoadError(
            "config.pbtxt: response_cache is not supported for generative models by this server"
        )
    if config.model_warmup:
        raise LoadError(
            "config.pbtxt: model_warmup is not supported for generative models by this server"
        )
    for name in RUN_ENTRIES:
        if name in config.parameters:
            raise LoadError(
                f"config.pbtxt: parameter '{name}' has no effect on a generative model, whose runs "
                "take their memory from the cache"
            )
    for group in config.instance_group:
        if group.count > 1:
            raise LoadError(
                f"config.pbtxt: instance_group.count is {group.count}, expected 1: a generative "
                "model runs one step at a time, with all its sequences"
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
