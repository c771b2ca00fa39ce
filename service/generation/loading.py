"""From a version folder to a generative model that runs; see `service/loading.py`."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tritonclient.grpc.model_config_pb2 import ModelConfig

from service.batch_limits import queue_policies
from service.errors import LoadError
from service.generation.decoder import PREFILL_SUFFIX, CacheLimits, Decoder
from service.generation.encoder_decoder import SourceLimits, open_encoder_decoder
from service.generation.engine import GenerationEngine, Vocabulary
from service.generation.inbox import QueueLimits
from service.generation.model import GenerativeModel, Room
from service.generation.scheduler import SchedulerLimits
from service.manifest import Manifest
from service.metrics import ModelMetrics
from service.model_config import parameter
from service.models import Host
from service.runtime import SessionOptions
from service.settings import MAX_DRAFT_TOKENS, Settings
from service.tokenizer import PromptTokenizer

OpenDecoder = Callable[[Path, SessionOptions, CacheLimits], Decoder]


@dataclass(frozen=True, slots=True)
class LoadedDecoder:
    """A decoder, with its cache, and its tokenizer."""

    decoder: Decoder
    tokenizer: PromptTokenizer
    manifest: Manifest

    @property
    def description(self) -> str:
        cache = f" in {self.manifest.kv_cache}" if self.manifest.kv_cache else ""
        return f"{self.decoder.num_slots} slots of {self.decoder.max_tokens} tokens{cache}"

    @property
    def room(self) -> Room:
        """How long prompts and outputs may be."""
        return _room(self.decoder.max_tokens, self.manifest)


def load_decoder(
    graph: Path,
    options: SessionOptions,
    manifest: Manifest,
    config: ModelConfig,
    settings: Settings,
    open_decoder: OpenDecoder,
) -> LoadedDecoder:
    """Open a graph and make its cache, or raise `LoadError`."""
    if options.device != "cpu":
        raise LoadError("a generative model runs on the CPU only: set instance_group KIND_CPU")
    wanted = parameter(config, "max_context_tokens", settings.max_context_tokens)
    max_tokens = min(wanted or manifest.max_tokens, manifest.max_tokens)
    if max_tokens < 2:
        raise LoadError(f"max_context_tokens is {max_tokens}, expected room for prompt and output")
    limits = CacheLimits(
        max_tokens=max_tokens,
        max_rows=scheduler_limits(config, settings).max_running,
        max_bytes=parameter(config, "kv_cache_bytes", settings.kv_cache_bytes),
    )
    if manifest.has_source:
        decoder: Decoder = open_encoder_decoder(graph, options, limits, _source_limits(manifest))
    else:
        prefill = graph.with_suffix(PREFILL_SUFFIX)
        if manifest.kv_cache and not prefill.is_file():
            raise LoadError(
                f"{prefill.name} is missing: the manifest says kv_cache {manifest.kv_cache}"
            )
        decoder = open_decoder(graph, options, limits)
    tokenizer = PromptTokenizer(
        graph.with_name("tokenizer.json"),
        _room(max_tokens, manifest).max_prompt_tokens,
        settings.max_text_characters,
    )
    if len(tokenizer.token_bytes) > decoder.vocab_size:
        raise LoadError(
            f"tokenizer.json has ids up to {len(tokenizer.token_bytes) - 1}, "
            f"the model knows {decoder.vocab_size}"
        )
    start_token_id = manifest.decoder_start_token_id  # 0 where there is none
    for name, token_ids in (
        ("eos_token_ids", manifest.eos_token_ids),
        ("decoder_start_token_id", (start_token_id,)),
    ):
        unknown = [token_id for token_id in token_ids if token_id >= decoder.vocab_size]
        if unknown:
            raise LoadError(
                f"manifest.json: {name} has {unknown[0]}, expected 0 to {decoder.vocab_size - 1}"
            )
    return LoadedDecoder(decoder, tokenizer, manifest)


def _source_limits(manifest: Manifest) -> SourceLimits:
    if not 1 <= manifest.max_source_tokens < manifest.max_tokens:
        raise LoadError(
            f"manifest.json: max_source_tokens is {manifest.max_source_tokens}, expected 1 to "
            f"{manifest.max_tokens - 1}: max_tokens is of source and output together"
        )
    return SourceLimits(
        manifest.max_source_tokens, manifest.pad_token_id, manifest.decoder_start_token_id
    )


def _room(max_tokens: int, manifest: Manifest) -> Room:
    """An encoder-decoder's source and output have room of their own; others share one context."""
    if not manifest.has_source:
        return Room(max_tokens, max_tokens - 1, max_tokens - 1)
    max_source_tokens = manifest.max_source_tokens
    return Room(max_tokens, max_source_tokens, max_tokens - max_source_tokens)


def _for_encoder(limits: SchedulerLimits, manifest: Manifest) -> SchedulerLimits:
    """A source is computed whole, and differs as a whole where it differs in its last token."""
    if not manifest.has_source:
        return limits
    return replace(
        limits,
        max_prefill_tokens=max(limits.max_prefill_tokens, manifest.max_source_tokens),
        can_reuse_prefixes=False,
        has_whole_prompts=True,
    )


def scheduler_limits(config: ModelConfig, settings: Settings) -> SchedulerLimits:
    """The bounds of one model's steps: its configuration first, then the server's settings."""
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
        max_draft_tokens=max_draft_tokens,
    )


def start_decoder(
    loaded: LoadedDecoder,
    version: int,
    config: ModelConfig,
    model_metrics: ModelMetrics,
    host: Host,
    on_broken: Callable[[], None],
) -> GenerativeModel:
    """Give a loaded decoder its engine. Call it on the event loop that will use it."""
    decoder, settings = loaded.decoder, host.settings
    limits = scheduler_limits(config, settings)
    most = decoder.max_logits_per_row - 1  # 0 where a graph gives the last logits only
    limits = replace(
        limits,
        max_draft_tokens=min(limits.max_draft_tokens, most),
        pads_prompts=decoder.pads_prompts,
    )
    limits = _for_encoder(limits, loaded.manifest)
    metrics = host.metrics.for_generation(model_metrics)
    policy = queue_policies(config, settings).default
    engine = GenerationEngine(
        f"{config.name}-{version}",
        decoder,
        Vocabulary(loaded.tokenizer.token_bytes, loaded.manifest.eos_token_ids),
        limits,
        QueueLimits(
            policy.max_requests,
            parameter(config, "max_queue_tokens", settings.max_queue_tokens),
            policy,
        ),
        metrics,
        on_broken,
    )
    metrics.watch(engine.cache)
    return GenerativeModel(
        version,
        config,
        engine,
        model_metrics,
        loaded.manifest,
        loaded.tokenizer,
        host.executor,
        vocab_size=decoder.vocab_size,
        room=loaded.room,
        default_max_tokens=settings.default_max_tokens,
    )
