"""From a folder of the repository to models that run.

`load_model` reads and checks files and opens sessions; it blocks, so it runs on a
worker thread. `start_model` only wires what was loaded to an engine, on the event
loop. Knows nothing of requests or protocols.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tritonclient.grpc.model_config_pb2 import ModelConfig

from service.attention_model import AttentionModel
from service.background import release_freed_memory
from service.batch_limits import batch_limits, check_generative
from service.collate import concatenate_rows, pad_rows
from service.config_files import read_config, read_labels, read_manifest
from service.cost_curve import CostCurve
from service.cpus import available_cpus, cpu_flags
from service.engine import BatchEngine
from service.errors import LoadError
from service.feature_model import FeatureModel
from service.fill_model import FillMaskModel
from service.generation.decoder import open_decoder
from service.generation.loading import LoadedDecoder, OpenDecoder, load_decoder, start_decoder
from service.image_model import ImageModel, check_image_graph
from service.images import ImageLimits
from service.manifest import MODEL_FILENAME, Manifest, Task
from service.measuring import made_up_items, measure_cost
from service.metrics import ModelMetrics
from service.model_config import (
    complete_for_text,
    complete_from_graph,
    parameter,
    parse_config,
    parse_config_json,
    signature_of,
    versions_to_serve,
)
from service.model_files import ModelSource, find_versions
from service.models import (
    Host,
    ServedModel,
    TensorModel,
    TextModel,
    from_graph,
    text_items,
    to_graph,
)
from service.precision import Choice, choose_precision
from service.reading import QuestionAnswerer, TokenClassifier
from service.request import Arrays, Item, Request, Timings
from service.runtime import OnnxSession, RunStop, Session, SessionOptions, choose_device
from service.sequence_model import SequenceModel
from service.session_config import session_tuning
from service.settings import Settings
from service.tasks import TEXT_TASKS
from service.tokenizer import Text, TextTokenizer
from service.warmup import warm_up
from service.word_model import WordVectorModel

OpenSession = Callable[[Path, SessionOptions], Session]


@dataclass(frozen=True, slots=True)
class Openers:
    """How graphs are opened: by ONNX Runtime, or by what tests put in its place."""

    session: OpenSession = OnnxSession
    decoder: OpenDecoder = open_decoder


# Of the tasks whose answers are not those of `TextModel`.
TEXT_MODELS: dict[Task, type[TextModel]] = {
    "attention": AttentionModel,
    "features": FeatureModel,
    "fill-mask": FillMaskModel,
    "token-classification": TokenClassifier,
    "question-answering": QuestionAnswerer,
}


@dataclass(frozen=True, slots=True)
class LoadedVersion:
    """One version's files, read and checked."""

    number: int
    sessions: tuple[Session, ...]  # one per run at once; may be the same one
    options: SessionOptions
    manifest: Manifest | None  # None: a tensor model
    tokenizer: TextTokenizer | None  # None: it reads no texts
    decoder: LoadedDecoder | None = None  # of a generative model, which has no other session
    labels: Mapping[str, list[str]] = field(default_factory=dict)  # by output
    choice: Choice | None = None  # of the graph; None: there is nothing to choose from
    cost: CostCurve | None = None  # of its runs; None: not measured

    @property
    def description(self) -> str:
        kind: str = self.manifest.task if self.manifest else "tensors"
        if self.choice is not None:
            kind += f", {self.choice.precision} ({self.choice.reason})"
        at_once = self.decoder.description if self.decoder else f"{len(self.sessions)} runs at once"
        cost = f"; {self.cost}" if self.cost else ""
        threads = f"{self.options.num_threads} threads{cost}"
        return f"{kind}, {at_once} on {self.options.device}, {threads}"


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A completed configuration and the versions it selects."""

    config: ModelConfig
    numbers: tuple[int, ...]
    versions: tuple[LoadedVersion, ...]  # those of them that were not served before

    def version(self, number: int) -> LoadedVersion:
        return next(version for version in self.versions if version.number == number)


def load_model(
    source: ModelSource, settings: Settings, openers: Openers, kept: frozenset[int] = frozenset()
) -> LoadedModel:
    """Read a model's folder and open its sessions, or raise `LoadError` saying what is wrong.

    Versions in `kept` are served already, and not opened again.
    """
    folder = source.folder
    if source.config_json is None:
        config = parse_config(read_config(folder), source.name)
    else:
        config = parse_config_json(source.config_json, source.name)
    found = find_versions(folder)
    numbers = versions_to_serve(config, found)
    if not numbers:
        raise LoadError(f"no version folder to serve: found {found or 'none'}")
    versions = tuple(
        _load_version(folder, number, config, settings, openers)
        for number in numbers
        if number not in kept
    )
    release_freed_memory()  # files were read whole
    return LoadedModel(config, tuple(numbers), versions)


def start_model(
    loaded: LoadedModel,
    number: int,
    metrics: ModelMetrics,
    host: Host,
    on_broken: Callable[[], None],
) -> ServedModel:
    """Give a loaded version its engine. Call it on the event loop that will use it."""
    version = loaded.version(number)
    config = _config_as_chosen(loaded.config, version.choice)
    if version.decoder is not None:
        return start_decoder(version.decoder, number, config, metrics, host, on_broken)
    name = f"{config.name}-{number}"
    limits = batch_limits(config, host.settings, version.cost)
    manifest, tokenizer = version.manifest, version.tokenizer
    if manifest is None or tokenizer is None or manifest.is_recurrent:
        outputs = [spec.name for spec in signature_of(config).outputs]
        engine = BatchEngine(
            name,
            version.sessions,
            outputs,
            concatenate_rows,
            limits,
            metrics,
            on_broken,
            has_rows=config.max_batch_size > 0,
        )
        cache = host.cache_for(config)
        if manifest is None:
            tensor_model = TensorModel(number, config, engine, metrics, cache)
        elif tokenizer is not None:
            tensor_model = SequenceModel(
                number, config, engine, metrics, manifest, tokenizer, cache
            )
        else:
            pixels = ImageLimits(host.settings.max_image_bytes, host.settings.max_image_pixels)
            tensor_model = ImageModel(
                number, config, engine, metrics, manifest, pixels, host.executor, cache
            )
        tensor_model.labels |= version.labels
        return tensor_model
    collate = _padding(version.sessions[0], manifest)
    outputs = [TEXT_TASKS[manifest.task].output]
    engine = BatchEngine(name, version.sessions, outputs, collate, limits, metrics, on_broken)
    cache = host.cache_for(config)
    model = _kind_of(manifest)(
        number, config, engine, metrics, manifest, tokenizer, host.executor, cache
    )
    model.labels |= version.labels
    return model


def _load_version(
    folder: Path, number: int, config: ModelConfig, settings: Settings, openers: Openers
) -> LoadedVersion:
    version = folder / str(number)
    manifest_text = read_manifest(version)
    manifest = Manifest.from_json(manifest_text) if manifest_text else None
    is_generative = (
        manifest is not None and manifest.task == "text-generation" and not manifest.is_recurrent
    )
    if is_generative:
        check_generative(config)
    options, count = _session_options(config, settings, is_generative=is_generative)
    graph, choice = _choose_graph(version, manifest, config, options, settings)
    if manifest is not None and choice is not None:
        manifest = manifest.computed_in(choice.precision)
    if manifest is not None and is_generative:
        complete_for_text(config, manifest, settings.default_max_batch_size)
        decoder = load_decoder(graph, options, manifest, config, settings, openers.decoder)
        return LoadedVersion(number, (), options, manifest, None, decoder, choice=choice)
    sessions = (openers.session(graph, options),) * count  # one copy of the weights
    if manifest is None or manifest.image is not None or manifest.is_recurrent:
        if manifest is None or manifest.is_recurrent:
            complete_from_graph(config, sessions[0].signature, settings.default_max_batch_size)
        else:
            complete_for_text(config, manifest, settings.default_max_batch_size)
            check_image_graph(sessions[0].signature, manifest)
        limits = batch_limits(config, settings)
        if limits.max_rows > limits.max_tokens:
            raise LoadError(
                f"max_batch_tokens is {limits.max_tokens}, but a request of this model may have "
                f"{limits.max_rows} rows, a token each"
            )
        labels = read_labels(config, folder)
        warm_up(config, folder, partial(_run_tensors, sessions[0], config))
        symbols = _symbols_of(version, manifest, settings) if manifest is not None else None
        return LoadedVersion(
            number, sessions, options, manifest, symbols, labels=labels, choice=choice
        )
    complete_for_text(config, manifest, settings.default_max_batch_size)
    _check_text_graph(sessions[0], manifest)
    max_tokens = batch_limits(config, settings).max_tokens
    if manifest.max_tokens > max_tokens:
        raise LoadError(
            f"max_batch_tokens is {max_tokens}, but a text of this model may have "
            f"{manifest.max_tokens} tokens"
        )
    kind = _kind_of(manifest)
    tokenizer = kind.tokenizer_type(
        version / "tokenizer.json",
        manifest.max_tokens,
        settings.max_text_characters,
        has_encodings=TEXT_TASKS[manifest.task].needs_encodings,
    )
    labels = read_labels(config, folder)
    warm_up(config, folder, partial(_run_texts, sessions[0], manifest, tokenizer, kind.texts_of))
    cost = _measured_cost(sessions[0], manifest, config, options, settings)
    return LoadedVersion(
        number, sessions, options, manifest, tokenizer, labels=labels, choice=choice, cost=cost
    )


def _kind_of(manifest: Manifest) -> type[TextModel]:
    return WordVectorModel if manifest.has_words else TEXT_MODELS.get(manifest.task, TextModel)


def _symbols_of(version: Path, manifest: Manifest, settings: Settings) -> TextTokenizer | None:
    if not manifest.is_recurrent:
        return None
    return TextTokenizer(
        version / "tokenizer.json", manifest.max_source_tokens, settings.max_text_characters
    )


def _measured_cost(
    session: Session,
    manifest: Manifest,
    config: ModelConfig,
    options: SessionOptions,
    settings: Settings,
) -> CostCurve | None:
    """Where runs are cheap to try: a GPU may build something for every new shape."""
    is_said = "batch_overhead_tokens" in config.parameters or config.max_batch_size == 1
    if options.device != "cpu" or is_said or not settings.measure_cost_s:
        return None
    pad, outputs = _padding(session, manifest), [TEXT_TASKS[manifest.task].output]

    def run(lengths: Sequence[int], stopping: RunStop) -> None:
        session.run(pad(made_up_items(lengths)), outputs, stopping)

    return measure_cost(run, manifest.max_tokens, settings.measure_cost_s)


def _choose_graph(
    version: Path,
    manifest: Manifest | None,
    config: ModelConfig,
    options: SessionOptions,
    settings: Settings,
) -> tuple[Path, Choice | None]:
    """The file to open, and why that one where a manifest tells of its precision."""
    name = config.default_model_filename or MODEL_FILENAME
    filenames: Iterable[str] = [name]
    if manifest is not None and name == MODEL_FILENAME:  # another name is the only one
        filenames = manifest.filenames.values()
    present = [filename for filename in filenames if (version / filename).is_file()]
    if not present:
        raise LoadError(f"version {version.name} has no {name}")
    if manifest is None:
        return version / name, None
    precision_of = {filename: precision for precision, filename in manifest.filenames.items()}
    precisions = [precision_of.get(filename, manifest.precision) for filename in present]
    wanted, asked_by = options.tuning.precision, "config.pbtxt"
    if not wanted:
        wanted, asked_by = settings.precision, "--precision"
    device = "openvino" if options.tuning.cpu_accelerators else options.device
    choice = choose_precision(precisions, wanted, asked_by, device, cpu_flags())
    return version / present[precisions.index(choice.precision)], choice


def _config_as_chosen(config: ModelConfig, choice: Choice | None) -> ModelConfig:
    """What clients read: its parameter `precision` is what was chosen for this version."""
    if choice is None:
        return config
    shown = ModelConfig()
    shown.CopyFrom(config)
    shown.parameters["precision"].string_value = choice.precision
    return shown


def _padding(session: Session, manifest: Manifest) -> Callable[[Sequence[Item]], Arrays]:
    return pad_rows(manifest.pad_token_id, [spec.name for spec in session.signature.inputs])


def _run_tensors(session: Session, config: ModelConfig, inputs: Arrays, stopping: RunStop) -> None:
    """What `TensorModel` does, without a queue."""
    signature, has_rows = signature_of(config), config.max_batch_size > 0
    names = [spec.name for spec in signature.outputs]
    outputs = session.run(to_graph(inputs, signature, has_rows), names, stopping)
    from_graph(dict(zip(names, outputs, strict=True)), signature, has_rows)


def _run_texts(
    session: Session,
    manifest: Manifest,
    tokenizer: TextTokenizer,
    texts_of: Callable[[Arrays], Sequence[Text]],
    inputs: Arrays,
    stopping: RunStop,
) -> None:
    """What `TextModel` does, without a queue."""
    rows = tokenizer.encode(texts_of(inputs), can_truncate=True)
    items = text_items(Request(Timings(0.0)), rows, manifest)
    session.run(_padding(session, manifest)(items), [TEXT_TASKS[manifest.task].output], stopping)


def _session_options(
    config: ModelConfig, settings: Settings, *, is_generative: bool
) -> tuple[SessionOptions, int]:
    """How to compute, and how many runs at once; resolves `instance_group` in place."""
    if not config.instance_group:
        config.instance_group.add()
    group = config.instance_group[0]  # all are of one kind, in one place
    if group.kind == group.KIND_AUTO:
        device = choose_device("cpu" if is_generative else settings.device)
    else:
        device = choose_device("cuda" if group.kind == group.KIND_GPU else "cpu")
    for each in config.instance_group:
        each.kind = group.KIND_GPU if device == "cuda" else group.KIND_CPU
        if device == "cuda" and not each.gpus:
            each.gpus.append(0)
        each.count = each.count or (1 if is_generative else settings.instances)
    options = SessionOptions(
        device=device,
        device_id=group.gpus[0] if group.gpus else 0,
        num_threads=parameter(config, "intra_op_thread_count", settings.num_threads)
        or available_cpus(),
        can_spin=settings.can_spin,
        tuning=session_tuning(config),
    )
    return options, sum(each.count for each in config.instance_group)


def _check_text_graph(session: Session, manifest: Manifest) -> None:
    known = {"input_ids", "attention_mask", "token_type_ids"}
    if manifest.has_source:
        known.add("target_ids")
    inputs = {spec.name for spec in session.signature.inputs}
    if "input_ids" not in inputs or not inputs <= known:
        raise LoadError(f"a text model takes input_ids and {sorted(known)}, not {sorted(inputs)}")
    task = TEXT_TASKS[manifest.task]
    wanted = task.dims(manifest)
    found = {spec.name: spec.dims for spec in session.signature.outputs}
    dims = found.get(task.output, ())[1:]
    if len(dims) != len(wanted) or any(
        -1 not in (dim, size) and dim != size for dim, size in zip(dims, wanted, strict=True)
    ):
        raise LoadError(
            f"task {manifest.task} needs an output '{task.output}' of shape {[-1, *wanted]}, "
            f"the graph has {found}"
        )
