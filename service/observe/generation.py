"""The metrics of generation: names and buckets after vLLM's, where vLLM has them.

Observed once per step and once per sequence, on the engine's thread.
"""

from functools import partial
from types import SimpleNamespace
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from service.records import FinishReason, Observer, RanStep, Sample

LABELS = ("model", "version")
# From 0.25 ms, the answer of a small model, to 30 s, longer than clients wait.
SECONDS = (2.5e-4, 5e-4, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
POWERS_OF_2 = tuple(float(2**power) for power in range(8))
# vLLM's buckets, for what has vLLM's names.
FIRST_TOKEN_SECONDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10),
    *(20, 40, 80, 160, 640, 2560),
)
INTER_TOKEN_SECONDS = (
    *(0.001, 0.0025, 0.005),  # ours: small models are faster than vLLM's least
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10),
    *(20, 40, 80),
)
GENERATION_SECONDS = (
    *(0.01, 0.025, 0.05, 0.1, 0.2),  # ours, for the same reason
    *(0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960),
)
REQUEST_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
ITERATION_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
HELPS = {
    "time_to_first_token_seconds": "Sequences, from their request's arrival to the first token",
    "inter_token_latency_seconds": "Tokens after the first, since the one before",
    "e2e_request_latency_seconds": "Sequences, from arrival to end",
    "request_queue_time_seconds": "Sequences, until their first step",
    "request_prefill_time_seconds": "Sequences, from the first step to the first token",
    "request_decode_time_seconds": "Sequences, from the first token to the last",
    "request_prompt_tokens": "Tokens of each sequence's prompt",
    "request_generation_tokens": "Tokens of each sequence's output",
    "iteration_tokens": "Tokens that each step computed",
    "iteration_rows": "Sequences that each step computed",
    "iteration_run_seconds": "Steps, in the session",
    "iteration_other_seconds": "Steps, outside of the session: planning, sampling, detokenizing",
    "prompt_tokens": "Prompt tokens of sequences that ended after a first token",
    "generation_tokens": "Tokens generated",
    "prefix_cache_queries": "Prompt tokens looked for in slots and store",
    "prefix_cache_hits": "Prompt tokens copied instead of computed",
    "prefix_store_hits": "Prompt tokens copied from the store of prefixes, having lost their slot",
    "prefix_store_evictions": "Pieces of 32 tokens that the store gave up for others",
    "spec_decode_num_drafts": "Drafts checked",
    "spec_decode_num_draft_tokens": "Tokens drafted, and computed to check them",
    "spec_decode_num_accepted_tokens": "Drafted tokens that became output",
    "spec_decode_num_accepted_tokens_per_pos": (
        "Drafted tokens that became output, by position in the draft, from 0"
    ),
    "kv_cache_moved_rows": "Slots copied to another slot",
    "request_success": (
        "Sequences that ended, by finished_reason: stop, length, abort (the client left, or its"
        " deadline passed), error"
    ),
    "kv_cache_usage_perc": "Share of slots, or of a paged cache's blocks, in use or promised",
    "kv_cache_slots": "Slots there are, or blocks of a paged cache",
    "kv_cache_slots_used": (
        "Slots that belong to a sequence, or blocks that do or are promised to one"
    ),
    "kv_cache_tokens_used": "Tokens that belong to a sequence",
    "kv_cache_tokens_kept": "Tokens kept in slots, or blocks, for prompts to come",
    "prefix_store_bytes": "Memory of the store of prefixes in use, at most --prefix-cache-bytes",
}
POSITIONS = tuple(map(str, range(31)))  # in a draft


class GenerationInstruments:
    """The metrics of all generative models, by their labels."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def histogram(name: str, buckets: tuple[float, ...]) -> Histogram:
            text = HELPS[name]
            return Histogram(f"attendant_{name}", text, LABELS, buckets=buckets, registry=registry)

        def counter(name: str, *labels: str) -> Counter:
            return Counter(f"attendant_{name}", HELPS[name], (*LABELS, *labels), registry=registry)

        def gauge(name: str) -> Gauge:
            return Gauge(f"attendant_{name}", HELPS[name], LABELS, registry=registry)

        seconds = GENERATION_SECONDS
        self.time_to_first_token = histogram("time_to_first_token_seconds", FIRST_TOKEN_SECONDS)
        self.inter_token_latency = histogram("inter_token_latency_seconds", INTER_TOKEN_SECONDS)
        self.e2e = histogram("e2e_request_latency_seconds", seconds)
        self.queue = histogram("request_queue_time_seconds", seconds)
        self.prefill = histogram("request_prefill_time_seconds", seconds)
        self.decode = histogram("request_decode_time_seconds", seconds)
        self.prompt_length = histogram("request_prompt_tokens", REQUEST_TOKENS)
        self.output_length = histogram("request_generation_tokens", REQUEST_TOKENS)
        self.iteration_tokens = histogram("iteration_tokens", ITERATION_TOKENS)
        self.iteration_rows = histogram("iteration_rows", POWERS_OF_2)
        self.run_seconds = histogram("iteration_run_seconds", SECONDS)
        self.other_seconds = histogram("iteration_other_seconds", SECONDS)
        self.prompt_tokens = counter("prompt_tokens")
        self.generation_tokens = counter("generation_tokens")
        self.prefix_queries = counter("prefix_cache_queries")
        self.prefix_hits = counter("prefix_cache_hits")
        self.store_hits = counter("prefix_store_hits")
        self.evictions = counter("prefix_store_evictions")
        self.drafts = counter("spec_decode_num_drafts")
        self.drafted_tokens = counter("spec_decode_num_draft_tokens")
        self.accepted_tokens = counter("spec_decode_num_accepted_tokens")
        self.accepted_at = counter("spec_decode_num_accepted_tokens_per_pos", "position")
        self.moved_rows = counter("kv_cache_moved_rows")
        self.ended = counter("request_success", "finished_reason")
        self.usage = gauge("kv_cache_usage_perc")
        self.slots = gauge("kv_cache_slots")
        self.slots_used = gauge("kv_cache_slots_used")
        self.tokens_used = gauge("kv_cache_tokens_used")
        self.tokens_kept = gauge("kv_cache_tokens_kept")
        self.stored_bytes = gauge("prefix_store_bytes")

    def forget(self, name: str, version: str) -> None:
        """Show the series of a version no more."""
        for instrument in vars(self).values():
            if instrument not in (self.ended, self.accepted_at):
                instrument.remove(name, version)
        for reason in FinishReason:
            self.ended.remove(name, version, reason.value)
        for position in POSITIONS:
            self.accepted_at.remove(name, version, position)


class WatchedSlots(Protocol):
    """The KV cache's numbers, read when the metrics are."""

    @property
    def num_places(self) -> int:
        """Slots, or blocks of a paged cache."""
        ...

    @property
    def num_taken_places(self) -> int:
        """Number of slots or blocks that belong to a sequence, or are promised to one."""
        ...

    @property
    def num_tokens(self) -> int: ...

    @property
    def num_idle_tokens(self) -> int: ...

    @property
    def num_stored_bytes(self) -> int: ...


class GenerationMetrics(Observer):
    """The instruments that a generative model version has beside those of every other."""

    def __init__(self, instruments: GenerationInstruments, names: tuple[str, ...]) -> None:
        bound = {
            name: instrument.labels(*names)
            for name, instrument in vars(instruments).items()
            if name not in ("ended", "accepted_at")
        }
        self._accepted_at = partial(instruments.accepted_at.labels, *names)
        self._accepted_at(POSITIONS[0])  # a rate needs the zero before the first count
        self._bound = SimpleNamespace(**bound)
        self.num_tokens = 0  # generated, as the counter has it
        self.cache: WatchedSlots | None = None  # while an engine serves
        self._ended = {
            reason: instruments.ended.labels(*names, reason.value) for reason in FinishReason
        }

    def watch(self, cache: WatchedSlots) -> None:
        """Read the cache's gauges at a scrape."""
        self.cache = cache
        self._bound.slots.set(cache.num_places)
        self._bound.slots_used.set_function(lambda: cache.num_taken_places)
        self._bound.usage.set_function(lambda: cache.num_taken_places / cache.num_places)
        self._bound.tokens_used.set_function(lambda: cache.num_tokens)
        self._bound.tokens_kept.set_function(lambda: cache.num_idle_tokens)
        self._bound.stored_bytes.set_function(lambda: cache.num_stored_bytes)

    def unwatch(self) -> None:
        """Hold the cache no more, whose gauges read 0 from now on."""
        self.cache = None
        bound = self._bound
        bound.slots.set(0)
        cached = bound.tokens_used, bound.tokens_kept, bound.stored_bytes
        for gauge in (bound.slots_used, bound.usage, *cached):
            gauge.set_function(int)

    def step_ran(self, step: RanStep) -> None:
        bound = self._bound
        bound.iteration_tokens.observe(step.num_tokens)
        bound.iteration_rows.observe(step.num_rows)
        bound.run_seconds.observe(step.run_s)
        bound.other_seconds.observe(step.other_s)
        num_tokens = len(step.time_to_first_token_s) + len(step.inter_token_s)
        self.num_tokens += num_tokens
        bound.generation_tokens.inc(num_tokens)
        bound.moved_rows.inc(step.num_moved_rows)
        bound.evictions.inc(step.num_evictions)
        bound.drafts.inc(len(step.agreed))
        bound.drafted_tokens.inc(step.num_drafted)
        bound.accepted_tokens.inc(step.num_agreed)
        for num_agreed in step.agreed:
            for position in POSITIONS[:num_agreed]:
                self._accepted_at(position).inc()
        for duration_s in step.time_to_first_token_s:
            bound.time_to_first_token.observe(duration_s)
        for duration_s in step.inter_token_s:
            bound.inter_token_latency.observe(duration_s)

    def sequence_ended(self, sequence: Sample) -> None:
        assert sequence.finish_reason is not None, "it has ended"
        self._ended[sequence.finish_reason].inc()
        bound, timings = self._bound, sequence.timings
        bound.queue.observe(timings.queue_s)
        if not timings.first_token_s:
            return
        bound.prefix_queries.inc(sequence.num_prompt_tokens)
        bound.prefix_hits.inc(sequence.num_reused_tokens)
        bound.store_hits.inc(sequence.num_stored_tokens)
        bound.prompt_tokens.inc(sequence.num_prompt_tokens)
        bound.prompt_length.observe(sequence.num_prompt_tokens)
        bound.output_length.observe(sequence.num_output_tokens)
        bound.prefill.observe(timings.prefill_s)
        bound.decode.observe(timings.decode_s)
        bound.e2e.observe(timings.total_s)
