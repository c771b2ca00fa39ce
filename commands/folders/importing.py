"""The run of `attendant import`, after its arguments are parsed, and what it makes of a source.

Knows nothing about flags or exit codes (`commands/folders/import_command.py` does). It imports
PyTorch, so the command line imports it only when it runs.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from commands.train.running import summary
from export.certificates.case import Case
from export.certificates.certify import certify
from models.checkpoints.adapters import merged
from models.checkpoints.checkpoint import (
    Checkpoint,
    check_replaceable,
    load_checkpoint,
    save_checkpoint,
)
from models.checkpoints.embedder_use import parse_dimensions
from models.checkpoints.file_names import CONFIG_FILE
from models.checkpoints.gguf.folders import gguf_at, unpacked_gguf
from models.checkpoints.hub import download_folder
from models.checkpoints.peft import read_peft
from models.checkpoints.plan import OWN_FORMAT
from models.checkpoints.ways_out import ELSEWHERE
from models.checkpoints.yes_no import as_yes_no_scorer, read_template, with_pair_template
from models.errors import CheckpointError, SettingError
from models.json_files import read_object
from models.networks.decoder_readers import DecoderEmbedder, DecoderReader, without_output
from models.networks.gpt import GPT
from models.networks.heads import TextEmbedder
from models.networks.llama import Llama
from models.networks.reader_makers import embedder_of
from models.networks.retrieval import TermEmbedder, ThreeWayEmbedder
from models.networks.traced import TracedDecoder
from models.networks.traced_readers import TracedEmbedder, TracedReader
from models.networks.vector_maps import VectorMaps, VectorNorm
from models.recipes.import_settings import ONE_OUTPUT_TASKS, ImportSettings


def import_model(source: str, output: Path, settings: ImportSettings) -> None:
    """Read a checkpoint of any kind and write it in Attendant's format."""
    check_replaceable(output)
    checkpoint = certified(read_checkpoint(source, settings), source, settings)
    save_checkpoint(checkpoint, output)
    Console().print(summary(checkpoint, output))


def certified(checkpoint: Checkpoint, source: str, settings: ImportSettings) -> Checkpoint:
    """The checkpoint with its comparison with the source; one of our own keeps what it has.

    Raises `CheckpointError` for one that differs, unless the settings accept it.
    """
    folder = Path(source)
    if not folder.exists():  # in the hub's cache, where reading it has put it
        folder = download_folder(source, is_offline=True)
    is_own = read_object(folder / CONFIG_FILE, optional=True).get("format") == OWN_FORMAT
    if settings.compare == "none" or is_own:
        return checkpoint
    with case_of(checkpoint, folder, settings) as case:
        certificate = certify(case)
    if not settings.accept_difference:
        certificate.check()
    return replace(checkpoint, certificate=certificate.to_dict())


@contextmanager
def case_of(checkpoint: Checkpoint, folder: Path, settings: ImportSettings) -> Iterator[Case]:
    """The checkpoint beside the folder that it was read from, while this is entered."""
    gguf = gguf_at(folder)
    stated = (settings.pooling, settings.normalize, settings.layer_norm)
    is_as_declared = settings.layers in (None, "last") and all(each is None for each in stated)
    with nullcontext(folder) if gguf is None else unpacked_gguf(gguf) as there:
        yield Case(
            checkpoint,
            there,
            gguf,
            None if settings.adapter is None else Path(settings.adapter),
            settings.yes_no,
            is_as_declared,
        )


def read_checkpoint(source: str, settings: ImportSettings) -> Checkpoint:
    """The checkpoint of a folder or hub id, as the settings ask for it."""
    head_task = settings.task if settings.task in ONE_OUTPUT_TASKS else None
    is_changed = settings.adapter is not None or settings.yes_no is not None
    checkpoint = load_checkpoint(
        source, settings.context, head_task, settings.network, leaves_weights=not is_changed
    )
    if isinstance(checkpoint.model, TracedDecoder | TracedReader):
        _check_traceable(checkpoint.model, source)
    if settings.adapter is not None:
        checkpoint = merged(read_peft(Path(settings.adapter)), checkpoint)
    if settings.yes_no is not None:
        checkpoint = as_yes_no_scorer(checkpoint, settings.yes_no)
    checkpoint = imported(checkpoint, source, settings)
    if settings.pair_template is not None:
        template = read_template(Path(settings.pair_template))
        try:
            checkpoint = with_pair_template(checkpoint, template)
        except SettingError as error:  # which has the text, not the name of its file
            raise SettingError(error.field, settings.pair_template, error.limit) from error
    if settings.origin is not None:
        checkpoint = replace(checkpoint, origin=settings.origin)
    return checkpoint


def _check_traceable(model: TracedDecoder | TracedReader, source: str) -> None:
    """Raise `CheckpointError` for a network that no graph can be made of, before it is written."""
    from export.errors import ExportError
    from export.graphs.traced.decoder import layers_of
    from export.graphs.traced.rows import layers_of_reader

    try:
        if isinstance(model, TracedReader):
            layers_of_reader(model)
        else:
            layers_of(model)
    except ExportError as error:
        raise CheckpointError(f"{source}: {error}; {ELSEWHERE}") from error


def imported(checkpoint: Checkpoint, source: str, settings: ImportSettings) -> Checkpoint:
    """The checkpoint of `source` for the task of the settings.

    Raises SettingError for a task that its network cannot do, and for settings of embedders
    beside another task.
    """
    task = checkpoint.task if settings.task == "auto" else settings.task
    is_traced = isinstance(checkpoint.model, TracedDecoder | TracedReader)
    if task == "embedding" and is_traced:
        return as_traced_embedder(checkpoint, settings)
    is_decoder = isinstance(checkpoint.model, GPT | Llama | DecoderReader)
    if task == "embedding" and is_decoder:
        return as_decoder_embedder(checkpoint, settings)
    if "text-generation" in (task, checkpoint.task) and task != checkpoint.task:
        others = "auto, embedding" if is_decoder or is_traced else "auto"
        limit = f"{others} or {checkpoint.task}, which is the task of {source}"
        raise SettingError("task", settings.task, limit)
    if task == "embedding" and isinstance(checkpoint.model, ThreeWayEmbedder | TermEmbedder):
        return as_trained(checkpoint, source, settings)
    if task == "embedding":
        return as_embedder(checkpoint, settings)
    for field in ("pooling", "layers", "normalize", "dimensions", "layer_norm"):
        if (value := getattr(settings, field)) is not None:
            limit = f"left out: it is for embedders, and the task of {source} is {checkpoint.task}"
            raise SettingError(field, value, limit)
    if checkpoint.task != task:
        limit = f"auto or embedding: {source} has no head for {task}, train one"
        raise SettingError("task", settings.task, limit)
    return checkpoint


def as_decoder_embedder(checkpoint: Checkpoint, settings: ImportSettings) -> Checkpoint:
    """The decoder as an embedder; what is None stays as it was, or is the last token, and False."""
    model = checkpoint.model
    assert isinstance(model, GPT | Llama | DecoderReader), "the caller checked that it is a decoder"
    decoder = model.decoder if isinstance(model, DecoderReader) else without_output(model)
    was = model if isinstance(model, DecoderEmbedder) else DecoderEmbedder(decoder)
    if settings.layers not in (None, "last"):
        limit = "last, or left out: a decoder's last layer is the one that has a norm"
        raise SettingError("layers", settings.layers, limit)
    embedder = DecoderEmbedder(
        decoder,
        was.pooling if settings.pooling is None else settings.pooling,
        was.normalize if settings.normalize is None else settings.normalize,
        _maps_of(was, settings),
    ).eval()
    return replace(_with_embedder(checkpoint, embedder, settings), chat={}, sampling={})


def as_traced_embedder(checkpoint: Checkpoint, settings: ImportSettings) -> Checkpoint:
    """The body of a network of transformers as an embedder, as `as_decoder_embedder` has it."""
    model = checkpoint.model
    assert isinstance(model, TracedDecoder | TracedReader), "the caller checked it"
    if settings.layers not in (None, "last"):
        limit = "last, or left out: of a network of transformers' own the last states are read"
        raise SettingError("layers", settings.layers, limit)
    was = model if isinstance(model, TracedEmbedder) else embedder_of(model)
    embedder = TracedEmbedder(
        was.network,
        was.config,
        was.pooling if settings.pooling is None else settings.pooling,
        was.normalize if settings.normalize is None else settings.normalize,
        _maps_of(was, settings),
    ).eval()
    return replace(_with_embedder(checkpoint, embedder, settings), chat={}, sampling={})


def as_trained(checkpoint: Checkpoint, source: str, settings: ImportSettings) -> Checkpoint:
    """An embedder as BGE-M3 or SPLADE with its heads; only the first has widths to cut to.

    Raises `SettingError` for any other setting of embedders.
    """
    model = checkpoint.model
    assert isinstance(model, ThreeWayEmbedder | TermEmbedder), "the caller checked it"
    has_vector = isinstance(model, ThreeWayEmbedder)
    fields = ("pooling", "layers", "normalize", "layer_norm")
    for field in fields if has_vector else (*fields, "dimensions"):
        if (value := getattr(settings, field)) is not None:
            what = "three kinds of answers" if has_vector else "weights of words"
            limit = f"left out: {source} has {what}, which are computed as they were trained"
            raise SettingError(field, value, limit)
    use = checkpoint.embedder
    if settings.dimensions is not None:
        use = use.cut_to(parse_dimensions(settings.dimensions, model.embedding_size))
    return replace(checkpoint, embedder=use.within(model.embedding_size))


def as_embedder(checkpoint: Checkpoint, settings: ImportSettings) -> Checkpoint:
    """The encoder as an embedder; what is None stays as it was, or is mean, last and False."""
    model = checkpoint.encoder_model
    was = model if isinstance(model, TextEmbedder) else TextEmbedder(model.encoder)
    embedder = TextEmbedder(
        model.encoder,
        was.pooling if settings.pooling is None else settings.pooling,
        was.layers if settings.layers is None else settings.layers,
        was.normalize if settings.normalize is None else settings.normalize,
        _maps_of(was, settings),
    )
    return _with_embedder(checkpoint, embedder, settings)


def _maps_of(
    was: TextEmbedder | DecoderEmbedder | TracedEmbedder, settings: ImportSettings
) -> VectorMaps:
    if not settings.layer_norm:
        return was.maps
    return was.maps.then(VectorNorm(was.embedding_size, has_weights=False))


def _with_embedder(
    checkpoint: Checkpoint,
    embedder: TextEmbedder | DecoderEmbedder | TracedEmbedder,
    settings: ImportSettings,
) -> Checkpoint:
    use = checkpoint.embedder
    if settings.dimensions is not None:
        use = use.cut_to(parse_dimensions(settings.dimensions, embedder.embedding_size))
    use = use.within(embedder.embedding_size)
    return replace(
        checkpoint, model=embedder, task="embedding", labels=(), metrics={}, embedder=use
    )
