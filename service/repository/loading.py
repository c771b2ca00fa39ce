"""Loads models from folders of the repository.

`load_model` reads and checks files and opens sessions; it blocks, so it runs on a
worker thread. `start_model` only wires what was loaded to an engine, on the event
loop. Knows nothing of requests or protocols. docs/how-to/cuda.md says what was verified on CUDA.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from service.batching.collate import concatenate_rows
from service.batching.engine import BatchEngine, Collate
from service.batching.request import Request
from service.contract.config_completion import leaves_batching_open
from service.contract.files import ModelSource, find_versions, read_config
from service.contract.interface import ModelInterface
from service.contract.manifest import Manifest
from service.contract.model_config import parse_config, parse_config_json, versions_to_serve
from service.contract.tensors import Arrays
from service.errors import LoadError, SharesNoRuns
from service.generation.decoders.opening import open_decoder
from service.generation.decoders.paged_decoder import open_paged_decoder
from service.records import Timings
from service.repository.adapters import LoadedAdapter, holds_adapter, load_adapter
from service.repository.generative import (
    LoadedDecoder,
    OpenDecoder,
    OpenPagedDecoder,
    load_decoder,
    start_decoder,
)
from service.repository.limits import with_cost
from service.repository.opening import OpenSession, open_graph, padding
from service.repository.placement import ChooseDevice
from service.repository.plan import ModelPlan, plan_of
from service.repository.warmup import warm_up
from service.runtime.background import release_freed_memory
from service.runtime.cost import CostCurve
from service.runtime.session import OnnxSession, RunStop, Session, choose_device, num_bytes_of
from service.runtime.single_client_session import LoneSession, polling_options
from service.serving.image_model import ImageModel
from service.serving.model import Host, ServedModel
from service.serving.sequence_model import SequenceModel
from service.serving.tasks.task import TextTask
from service.serving.tensor_model import TensorModel, from_graph, to_graph
from service.serving.text_model import TextModel, text_items
from service.settings import Settings
from service.text.pair_tokenizer import TemplatePairTokenizer
from service.text.tokenizer import TextTokenizer


@dataclass(frozen=True, slots=True)
class Openers:
    """The functions that open graphs and choose their device: ONNX Runtime's, or those of tests."""

    session: OpenSession = OnnxSession
    decoder: OpenDecoder = open_decoder
    paged_decoder: OpenPagedDecoder = open_paged_decoder
    choose_device: ChooseDevice = choose_device


@dataclass(frozen=True, slots=True)
class LoadedVersion:
    """One version's plan, and what was opened for it."""

    plan: ModelPlan
    sessions: tuple[Session, ...]  # one per run at once; may be the same one
    tokenizer: TextTokenizer | None = None  # None: it reads no texts
    decoder: LoadedDecoder | None = None  # of a generative model, which has no other session
    cost: CostCurve | None = None  # of its runs; None: not measured

    @property
    def number(self) -> int:
        return self.plan.number

    @property
    def manifest(self) -> Manifest | None:
        return self.plan.manifest

    @property
    def description(self) -> str:
        manifest, choice, options = self.plan.manifest, self.plan.choice, self.plan.options
        kind: str = manifest.task if manifest else "tensors"
        if choice is not None:
            kind += f", {choice.precision} ({choice.reason})"
        if self.plan.layout_reason:
            kind += f", {self.plan.layout} ({self.plan.layout_reason})"
        at_once = self.decoder.description if self.decoder else f"{len(self.sessions)} runs at once"
        cost = f"; {self.cost}" if self.cost else ""
        return f"{kind}, {at_once} on {options.device}, {options.num_threads} threads{cost}"


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """The versions that a model's configuration selects."""

    numbers: tuple[int, ...]
    versions: tuple[LoadedVersion, ...]  # those of them that were not served before
    adapters: tuple[LoadedAdapter, ...] = ()  # the same

    @property
    def all_new(self) -> list[LoadedVersion | LoadedAdapter]:
        return [*self.versions, *self.adapters]


def load_model(
    source: ModelSource, settings: Settings, openers: Openers, kept: frozenset[int] = frozenset()
) -> LoadedModel:
    """Read a model's folder and open its sessions, or raise `LoadError` saying what is wrong.

    Versions in `kept` are served already, and not opened again.
    """
    folder = source.folder
    found = find_versions(folder)
    if source.config_json is None:
        text = read_config(folder)
        config = parse_config(text, source.name)
    else:
        config = parse_config_json(source.config_json, source.name)
    numbers = versions_to_serve(config, found)
    if not numbers:
        raise LoadError(f"no version folder to serve: found {found or 'none'}")
    new = [number for number in numbers if number not in kept]
    of_adapters = {number for number in new if holds_adapter(folder / str(number))}
    versions: list[LoadedVersion] = []
    stated = config
    for number in new:
        if number in of_adapters:
            continue
        # What one version completes holds for the next, unless the next shares no runs and the
        # files leave open whether it does.
        for each in (config, stated):
            try:
                plan = plan_of(folder, number, each, settings, openers.choose_device)
                versions.append(_open_version(plan, openers))
                break
            except SharesNoRuns:
                if each is stated or not leaves_batching_open(stated):
                    raise
        config = versions[-1].plan.config
    adapters = tuple(load_adapter(folder, number) for number in new if number in of_adapters)
    release_freed_memory()  # files were read whole
    return LoadedModel(tuple(numbers), tuple(versions), adapters)


def _open_version(plan: ModelPlan, openers: Openers) -> LoadedVersion:
    """The version of a plan, with its sessions and its tokenizer, warmed up."""
    tokenizer = _open_tokenizer(plan)
    if plan.is_generative:
        decoder = load_decoder(plan, openers.decoder, openers.paged_decoder)
        return LoadedVersion(plan, (), decoder=decoder)
    opened = open_graph(plan, openers.session)
    plan, session = opened.plan, opened.session
    run = partial(_run_tensors, session, plan.interface)
    if tokenizer is not None and plan.manifest is not None and plan.task is not None:
        run = partial(_run_texts, session, plan.manifest, plan.task, tokenizer)
    warm_up(plan.samples, plan.interface, plan.folder, run)
    max_mib = plan.settings.lone_session_mib
    num_bytes = num_bytes_of(plan.graph)
    if (options := polling_options(num_bytes, plan.options, max_mib)) is not None:
        session = LoneSession(session, openers.session(plan.graph, options))
    return LoadedVersion(plan, (session,) * plan.instances, tokenizer, cost=opened.cost)


def _open_tokenizer(plan: ModelPlan) -> TextTokenizer | None:
    """The tokenizer of symbols or of texts; None for a model that takes neither, or a decoder.

    A decoder opens its own, which is bounded by the graph.
    """
    manifest, max_characters = plan.manifest, plan.settings.max_text_characters
    if manifest is None or (plan.task is None and not manifest.is_recurrent):
        return None
    file = plan.graph.with_name("tokenizer.json")
    if plan.task is None:
        return TextTokenizer(file, manifest.max_source_tokens, max_characters)
    has_encodings = plan.task.needs_encodings
    if manifest.pair_template:
        template = manifest.pair_template
        return TemplatePairTokenizer(file, manifest.max_tokens, max_characters, template)
    tokenizer = plan.task.tokenizer
    return tokenizer(file, manifest.max_tokens, max_characters, has_encodings=has_encodings)


def start_model(version: LoadedVersion, host: Host, on_broken: Callable[[], None]) -> ServedModel:
    """A loaded version with its engine. Call it on the event loop that will use it."""
    if version.decoder is not None:
        return start_decoder(version.plan, version.decoder, host, on_broken)
    interface, tokenizer, task = version.plan.interface, version.tokenizer, version.plan.task
    manifest = interface.manifest
    if manifest is not None and tokenizer is not None and task is not None:
        collate = padding(version.sessions[0], manifest)
        outputs = [output.name for output in task.outputs_of(manifest)]
        engine = _engine(version, host, on_broken, outputs, collate)
        return TextModel(host, interface, engine, tokenizer)
    outputs = [spec.name for spec in interface.signature.outputs]
    engine = _engine(version, host, on_broken, outputs, concatenate_rows)
    if manifest is None:
        return TensorModel(host, interface, engine)
    if tokenizer is not None:
        return SequenceModel(host, interface, engine, tokenizer)
    return ImageModel(host, interface, engine)


def _engine(
    version: LoadedVersion,
    host: Host,
    on_broken: Callable[[], None],
    outputs: Sequence[str],
    collate: Collate,
) -> BatchEngine:
    plan = version.plan
    return BatchEngine(
        f"{plan.name}-{plan.number}",
        version.sessions,
        outputs,
        collate,
        with_cost(plan.limits, version.cost),
        host.observers.for_model(plan.name, plan.number),
        on_broken,
        has_rows=plan.interface.has_rows,
    )


def _run_tensors(
    session: Session, interface: ModelInterface, inputs: Arrays, stopping: RunStop
) -> None:
    """`TensorModel`'s work without a queue."""
    signature, has_rows = interface.signature, interface.has_rows
    names = [spec.name for spec in signature.outputs]
    outputs = session.run(to_graph(inputs, signature, has_rows), names, stopping)
    from_graph(dict(zip(names, outputs, strict=True)), signature, has_rows)


def _run_texts(
    session: Session,
    manifest: Manifest,
    task: TextTask,
    tokenizer: TextTokenizer,
    inputs: Arrays,
    stopping: RunStop,
) -> None:
    """`TextModel`'s work without a queue."""
    rows = tokenizer.encode(task.texts_of(inputs), can_truncate=True)
    items = text_items(Request(Timings(0.0)), rows, manifest)
    outputs = [output.name for output in task.outputs_of(manifest)]
    session.run(padding(session, manifest)(items), outputs, stopping)
