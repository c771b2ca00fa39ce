"""Loads generative models from version folders; see `service/repository/loading.py`.

docs/how-to/cuda.md says what was verified on CUDA.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from service.calls.sampling_values import sampling_of
from service.contract.manifest import TOKEN_LISTS, Manifest
from service.errors import InvalidArgument, LoadError, ModelFailed
from service.families.chosen import REASONING, TOOL_CALL, forms_of
from service.generation.decoders.decoder import PREFILL_SUFFIX
from service.generation.decoders.decoder_interface import Decoder, PagedDecoder, SlotDecoder
from service.generation.decoders.encoder_decoder import SourceLimits, open_encoder_decoder
from service.generation.decoders.opening import CacheLimits
from service.generation.engine import GenerationEngine
from service.generation.inbox import QueueLimits
from service.generation.sequence import Vocabulary
from service.repository.plan import ModelPlan
from service.runtime.session import SessionOptions, load_error
from service.serving.chat import Chat
from service.serving.generative_model import GenerativeModel, Room
from service.serving.model import Host
from service.text.conversation import ChatTemplates
from service.text.template_process import TemplateLimits
from service.text.tokenizer import PromptTokenizer, check_table

OpenDecoder = Callable[[Path, SessionOptions, CacheLimits], SlotDecoder]


class OpenPagedDecoder(Protocol):
    """Opens a graph over blocks, with decoding steps as CUDA graphs or without."""

    def __call__(
        self, path: Path, options: SessionOptions, limits: CacheLimits, *, records_steps: bool
    ) -> PagedDecoder: ...


@dataclass(frozen=True, slots=True)
class LoadedDecoder:
    """A decoder, with its cache, and its tokenizer."""

    decoder: Decoder
    tokenizer: PromptTokenizer
    manifest: Manifest
    room: Room  # how long prompts and outputs may be
    chat: Chat | None  # None: it has no chat template
    sampling: Mapping[str, float]  # used where a request says nothing

    @property
    def description(self) -> str:
        cache = f" in {self.manifest.kv_cache}" if self.manifest.kv_cache else ""
        return self.decoder.cache_size + cache


def load_decoder(
    plan: ModelPlan, open_decoder: OpenDecoder, open_paged: OpenPagedDecoder
) -> LoadedDecoder:
    """Open a graph and make its cache, or raise `LoadError`."""
    manifest, graph, options = plan.manifest, plan.graph, plan.options
    assert manifest is not None, "a generative model has one"
    context_tokens = plan.max_context_tokens or manifest.max_tokens
    max_tokens = min(context_tokens, manifest.max_tokens)
    if max_tokens < 2:
        raise LoadError(f"max_context_tokens is {max_tokens}, expected room for prompt and output")
    limits = CacheLimits(max_tokens, plan.steps.max_running, plan.kv_cache_bytes)
    room, sampling = _room(max_tokens, manifest), _sampling(plan, manifest)
    if manifest.has_source:
        sources = _source_limits(manifest)
        decoder: Decoder = open_encoder_decoder(graph, options, limits, sources)
    elif manifest.layout == "paged":
        decoder = open_paged(graph, options, limits, records_steps=plan.records_steps)
    else:
        prefill = graph.with_suffix(PREFILL_SUFFIX)
        if manifest.kv_cache and not prefill.is_file():
            raise LoadError(
                f"{prefill.name} is missing: the manifest says kv_cache {manifest.kv_cache}"
            )
        decoder = open_decoder(graph, options, limits)
    if options.device != "cpu":
        try:
            decoder.probe()  # what a GPU lacks is known once a graph runs there
        except ModelFailed as error:
            raise load_error(graph, str(error), options) from error
    settings, max_characters = plan.settings, plan.settings.max_text_characters
    tokenizer = PromptTokenizer(
        graph.with_name("tokenizer.json"),
        room.max_prompt_tokens,
        max_characters,
        num_rows=decoder.vocab_size,
    )
    check_table(tokenizer, decoder.vocab_size, "tokenizer.json")
    start_token_id = manifest.decoder_start_token_id  # 0 where there is none
    for name, token_ids in (
        *((name, getattr(manifest, name)) for name in TOKEN_LISTS),
        ("decoder_start_token_id", (start_token_id,)),
    ):
        unknown = [token_id for token_id in token_ids if token_id >= decoder.vocab_size]
        if unknown:
            raise LoadError(
                f"manifest.json: {name} has {unknown[0]}, expected 0 to {decoder.vocab_size - 1}"
            )
    templates, chat = ChatTemplates.of(plan.chat_files), None
    if templates is not None:
        forms = _form(plan, manifest, TOOL_CALL), _form(plan, manifest, REASONING)
        templates = replace(templates, own_forms=forms)
        limits_of_chat = TemplateLimits(settings.chat_template_timeout_s, max_characters)
        chat = Chat(templates, tokenizer, limits_of_chat)
    return LoadedDecoder(decoder, tokenizer, manifest, room, chat, sampling)


def _form(plan: ModelPlan, manifest: Manifest, kind: str) -> str:
    """The form that a setting or the manifest chooses; empty where the template shows it."""
    by_model = forms_of(getattr(plan.settings, kind))
    choices = (by_model.get(plan.name), by_model.get(""), getattr(manifest, kind))
    return next(filter(None, choices), "")


def _sampling(plan: ModelPlan, manifest: Manifest) -> Mapping[str, float]:
    """The model's own parameters, or `LoadError`; none where the settings leave them out."""
    if plan.settings.sampling_defaults == "none":
        return {}
    try:
        sampling = sampling_of(manifest.sampling)
    except InvalidArgument as error:
        raise LoadError(f"manifest.json: sampling: {error}") from error
    return {name: getattr(sampling, name) for name in manifest.sampling}


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


def start_decoder(
    plan: ModelPlan, loaded: LoadedDecoder, host: Host, on_broken: Callable[[], None]
) -> GenerativeModel:
    """A loaded decoder with its engine. Call it on the event loop that will use it."""
    decoder = loaded.decoder
    metrics = host.observers.metrics.for_generation(plan.name, plan.number)
    policy = plan.limits.queue.default
    engine = GenerationEngine(
        f"{plan.name}-{plan.number}",
        decoder,
        Vocabulary(
            loaded.tokenizer.token_bytes,
            loaded.manifest.eos_token_ids,
            loaded.manifest.first_token_ids,
            loaded.manifest.banned_token_ids,
            # The output of an encoder-decoder continues no text.
            strips_space=loaded.manifest.has_source and loaded.tokenizer.strips_space,
            special_bytes=loaded.tokenizer.special_bytes,
        ),
        decoder.bounds(plan.steps),
        QueueLimits(policy.max_requests, plan.limits.max_waiting_tokens, policy),
        host.observers.for_model(plan.name, plan.number),
        on_broken,
    )
    metrics.watch(engine.cache)
    return GenerativeModel(
        host,
        plan.interface,
        engine,
        loaded.tokenizer,
        loaded.room,
        loaded.chat,
        loaded.sampling,
    )
