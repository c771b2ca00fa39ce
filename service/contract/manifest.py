"""The `manifest.json` beside a graph: the properties of an exported model.

Written by the export package, read by the server; the one schema both share.
Knows nothing of files, graphs or requests. Fields the server does not act on
(`fused`, `parity`, ...) are kept for people and for `attendant models`.
docs/how-to/cuda.md says what was verified on CUDA.
"""

import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args

from service.contract.embedder_use import EmbedderUse
from service.contract.image_input import ImageInput
from service.errors import LoadError
from service.families.chosen import REASONING, TOOL_CALL, unknown

TaskName = Literal[
    "text-classification",
    "embedding",
    "text-generation",
    "fill-mask",
    "token-classification",
    "question-answering",
    "pair-scoring",
    "features",
    "attention",
    "image-classification",
    "image-attention",
]
# With "stored", weights have the numbers that the imported folder had rounded them to.
Precision = Literal["fp32", "fp16", "bf16", "int8", "int8-weights", "int4-weights", "stored"]
GraphDevice = Literal["any", "cpu", "cuda"]  # where all nodes of a graph have kernels
# How a graph takes its batch. An encoder's packs the tokens of all rows, or is padded; a decoder's
# reads a cache of slots, or a paged one.
Layout = Literal["", "padded", "paged"]
# What makes scores of logits: softmax over all labels, the sigmoid of each, or the logits as they
# are. By task; the first is that of a manifest that names none.
ScoreFunction = Literal["", "softmax", "sigmoid", "identity"]
SCORE_FUNCTIONS: Mapping[str, tuple[ScoreFunction, ...]] = {
    "text-classification": ("softmax", "sigmoid", "identity"),
    "image-classification": ("softmax",),
    "image-attention": ("softmax",),
    "pair-scoring": ("sigmoid", "identity"),
}
SparseRows = Literal["", "token", "text"]
FORMAT = 1
_WHOLE_NUMBERS = (
    *("max_tokens", "pad_token_id", "vocab_size", "embedding_size", "num_layers", "num_heads"),
    *("mask_token_id", "max_source_tokens", "decoder_start_token_id"),
    *("sparse_size", "token_vector_size"),
)
TOKEN_LISTS = ("eos_token_ids", "first_token_ids", "banned_token_ids", "unweighted_token_ids")
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "max_tokens")
MODEL_FILENAME = "model.onnx"
QUERY_PLACE, DOCUMENT_PLACE = "{query}", "{document}"  # in `Manifest.pair_template`
MAX_MESSAGE = 1_000  # characters of an error, which may quote a value of the file
MAX_PAIR_TEMPLATE = 16_384  # characters
EXAMPLE = "What a wonderful day."
MAX_EXAMPLE_IMAGE_BYTES = 16_384  # a client gets those of all models in one list


@dataclass(frozen=True, slots=True)
class Variant:
    """A graph of a version in one precision and layout, where it runs, and what that costs."""

    precision: Precision
    fused: dict[str, int] = field(default_factory=dict)  # fused ops by count
    parity: dict[str, float] = field(default_factory=dict)  # against PyTorch
    accuracy: dict[str, float] = field(default_factory=dict)  # on labelled data, where given
    perplexity: dict[str, float] = field(default_factory=dict)  # on held-out text, where given
    kv_cache: str = ""  # of a decoder: "int8", or empty for what it computes in
    weights: dict[str, int] = field(default_factory=dict)  # of stored products, by their form
    device: GraphDevice = "any"
    layout: Layout = ""

    def __post_init__(self) -> None:
        _check_choice("variants.precision", self.precision, Precision)
        _check_choice("variants.device", self.device, GraphDevice)
        _check_choice("variants.layout", self.layout, Layout)

    @property
    def kind(self) -> str:
        """Precision and layout, which no two graphs of a version have in common."""
        return f"{self.precision}.{self.layout}" if self.layout else self.precision

    @property
    def filename(self) -> str:
        """The file's name, beside `model.onnx`."""
        return f"model.{self.kind}.onnx"


@dataclass(frozen=True, slots=True)
class Example:
    """A text or an image to try a model with, and its second part where the task takes two."""

    text: str  # of an answerer, the question; of an image, its name
    text_pair: str = ""  # the second text of a pair; beside a source, the output that reads it
    context: str = ""  # of an answerer, where the answer stands
    image: str = ""  # the content of an image file, in base64

    def __post_init__(self) -> None:
        for name in ("text", "text_pair", "context", "image"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise LoadError(f"manifest.json: examples.{name} is {value!r}, expected a text")
        if not self.text:
            raise LoadError("manifest.json: examples.text is empty")
        if (size := len(self.image_file)) > MAX_EXAMPLE_IMAGE_BYTES:
            raise LoadError(
                f"manifest.json: examples.image has {size} bytes, "
                f"expected at most {MAX_EXAMPLE_IMAGE_BYTES}"
            )

    @property
    def image_file(self) -> bytes:
        """The content of the image file; empty where there is none."""
        try:
            return b64decode(self.image, validate=True)
        except ValueError as error:
            raise LoadError(f"manifest.json: examples.image is no base64: {error}") from error


@dataclass(frozen=True, slots=True)
class Manifest:
    """One exported version of a text model.

    `precision` and what was measured are those of `model.onnx`; `variants` stand beside it.
    """

    task: TaskName
    precision: Precision
    max_tokens: int  # longest row, special tokens included; generating: prompt and output
    pad_token_id: int
    labels: tuple[str, ...] = ()  # in the order of the logits; empty for embedders
    pair_template: str = ""  # what a query and a document are put into, to be read as one text
    score_function: ScoreFunction = ""  # of SCORE_FUNCTIONS; see `scores_by`
    network: str = (
        ""  # its name where the server treats it apart: "encoder-decoder", "words", "recurrent"
    )
    embedding_size: int = 0  # values per embedding, or per token of features; 0 for others
    sparse_size: int = 0  # of an embedder with sparse vectors: the ids that weights may have
    # A row of weights is a token's own, of which a text takes the largest, or a whole text's.
    sparse_rows: SparseRows = ""
    unweighted_token_ids: tuple[int, ...] = ()  # that are left out of sparse vectors
    token_vector_size: int = 0  # values of each token's own vector, where an embedder has them
    num_layers: int = 0  # of features and attention
    num_heads: int = 0  # of attention
    mask_token_id: int = 0  # what stands where a word is to be filled in
    max_source_tokens: int = 0  # of an encoder-decoder; `max_tokens` is source and output together
    decoder_start_token_id: int = 0  # of an encoder-decoder
    image: ImageInput | None = None  # of a model that reads images
    embedder: EmbedderUse | None = None  # of an embedder; older ones have none
    eos_token_ids: tuple[int, ...] = ()  # what ends a generated text; empty: nothing does
    first_token_ids: tuple[int, ...] = ()  # what every output of an encoder-decoder begins with
    banned_token_ids: tuple[int, ...] = ()  # what no output of an encoder-decoder has
    sampling: dict[str, float] = field(default_factory=dict)  # where a request says nothing
    # How a model writes calls of functions and thoughts, or "none"; empty: as its template does.
    tool_call_form: str = ""
    reasoning_form: str = ""
    pooling: str = ""  # how an embedder pools and whether it normalises, for people
    example: str = EXAMPLE  # a text to try the model with
    examples: tuple[Example, ...] = ()  # several, of the model's own domain
    origin: str = ""  # where the weights come from
    # How the import compares with the folder's own network, for people and `attendant verify`.
    certificate: dict[str, Any] = field(default_factory=dict)
    fused: dict[str, int] = field(default_factory=dict)  # fused ops by count
    parity: dict[str, float] = field(default_factory=dict)  # against PyTorch
    accuracy: dict[str, float] = field(default_factory=dict)  # on labelled data, where given
    perplexity: dict[str, float] = field(default_factory=dict)  # on held-out text, where given
    kv_cache: str = ""  # of a decoder: "int8", or empty for what it computes in
    weights: dict[str, int] = field(default_factory=dict)  # of stored products, by their form
    device: GraphDevice = "any"
    layout: Layout = ""
    versions: dict[str, str] = field(default_factory=dict)  # of what exported it
    variants: tuple[Variant, ...] = ()  # in the order in which they are to be preferred
    left_out: dict[str, str] = field(default_factory=dict)  # by `Variant.kind`: why it is not there
    # Rows of the network's table, where the tokenizer has more tokens; 0 where each has its row.
    vocab_size: int = 0

    def __post_init__(self) -> None:
        _check_choice("task", self.task, TaskName)
        _check_choice("precision", self.precision, Precision)
        _check_choice("device", self.device, GraphDevice)
        _check_choice("layout", self.layout, Layout)
        kinds = [graph.kind for graph in self._all_graphs]
        if len(set(kinds)) < len(kinds):
            raise LoadError(
                f"manifest.json: variants repeat a precision and layout: {', '.join(kinds)}"
            )
        for name in _WHOLE_NUMBERS:
            value = getattr(self, name)
            if not isinstance(value, int) or value < 0:
                raise LoadError(f"manifest.json: {name} is {value!r}, expected a whole number")
        if self.max_tokens < 1:
            raise LoadError(f"manifest.json: max_tokens is {self.max_tokens}, expected at least 1")
        if self.task.endswith(("-classification", "image-attention")) and not self.labels:
            raise LoadError("manifest.json: labels is empty, a classifier needs its labels")
        _check_pair_template(self.pair_template, self.task)
        functions = SCORE_FUNCTIONS.get(self.task, ())
        if self.score_function not in ("", *functions):
            raise LoadError(
                f"manifest.json: score_function is {self.score_function!r}, expected none"
                + "".join(f" or {name}" for name in functions)
                + f" for {self.task}"
            )
        _check_choice("sparse_rows", self.sparse_rows, SparseRows)
        if bool(self.sparse_size) != bool(self.sparse_rows):
            raise LoadError(
                f"manifest.json: sparse_size is {self.sparse_size} and sparse_rows is "
                f"{self.sparse_rows!r}, expected both or none"
            )
        has_sparse = self.task == "embedding" and self.sparse_size > 0
        if self.task in ("embedding", "features") and self.embedding_size < 1 and not has_sparse:
            raise LoadError(f"manifest.json: embedding_size is missing, {self.task} needs it")
        if self.task.startswith("image-") and self.image is None:
            raise LoadError(f"manifest.json: image is missing, {self.task} needs it")
        widest = max(self.embedder.dimensions, default=-1) if self.embedder else -1
        if self.embedder and widest >= self.embedding_size:
            raise LoadError(
                f"manifest.json: embedder.dimensions is {self.embedder.dimensions}, expected less "
                f"than embedding_size, {self.embedding_size}"
            )
        for name in TOKEN_LISTS:
            token_ids = getattr(self, name)
            if not all(isinstance(token, int) and token >= 0 for token in token_ids):
                raise LoadError(f"manifest.json: {name} is {token_ids!r}, expected whole numbers")
        if not isinstance(self.sampling, dict) or self.sampling.keys() - SAMPLING:
            raise LoadError(
                f"manifest.json: sampling is {self.sampling!r}, expected an object of "
                f"{', '.join(SAMPLING)}"
            )

        for name in (TOOL_CALL, REASONING):
            if fault := unknown(name, getattr(self, name)):
                raise LoadError(f"manifest.json: {fault}")

    @property
    def scores_by(self) -> ScoreFunction:
        """Function that makes scores of logits; empty for a task whose answers are not made so."""
        return self.score_function or next(iter(SCORE_FUNCTIONS.get(self.task, ())), "")

    @property
    def has_source(self) -> bool:
        """Whether a prompt is the source of an encoder, and no beginning of the output."""
        return self.network == "encoder-decoder"

    @property
    def is_recurrent(self) -> bool:
        """Whether its graph writes a sequence by itself: clients see tensors, and text."""
        return self.network == "recurrent"

    @property
    def is_generative(self) -> bool:
        """Whether it generates step by step, in an engine of its own kind."""
        return self.task == "text-generation" and not self.is_recurrent

    @property
    def reads_texts(self) -> bool:
        """Whether its requests are texts, each an item of a batch."""
        return self.image is None and self.task != "text-generation" and not self.is_recurrent

    @property
    def has_words(self) -> bool:
        """Whether it has a vector per word, and none for what it does not know."""
        return self.network == "words"

    @property
    def graphs(self) -> Mapping[str, Variant]:
        """All graphs by the names of their files, `model.onnx` first."""
        main, *others = self._all_graphs
        return {MODEL_FILENAME: main} | {graph.filename: graph for graph in others}

    @property
    def kinds(self) -> tuple[str, ...]:
        """Precision and layout of each graph, that of `model.onnx` first."""
        return tuple(graph.kind for graph in self._all_graphs)

    @property
    def _all_graphs(self) -> tuple[Variant, ...]:
        main = Variant(**{each.name: getattr(self, each.name) for each in fields(Variant)})
        return (main, *self.variants)

    def of_graph(self, filename: str) -> "Manifest":
        """The manifest of that graph alone, with its measurements."""
        graph = self.graphs.get(filename)
        measured = asdict(graph) if graph is not None else {}
        return replace(self, variants=(), **measured)

    def to_json(self) -> str:
        """The manifest as JSON; equal manifests give equal texts."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Manifest":
        """Raises `LoadError` with a short message, whatever the text has."""
        try:
            return cls._of(json.loads(text))
        except LoadError as error:
            raise LoadError(_shortened(str(error))) from error
        except (TypeError, KeyError, AttributeError, ValueError, RecursionError) as error:
            raise LoadError(_shortened(f"manifest.json: {error}")) from error

    @classmethod
    def _of(cls, values: dict[str, Any]) -> "Manifest":
        file_format = values.pop("format", None)
        if file_format != FORMAT:
            raise LoadError(f"manifest.json: format is {file_format!r}, this server reads {FORMAT}")
        for name in ("labels", *TOKEN_LISTS):
            values[name] = tuple(values.get(name, ()))
        if (image := values.pop("image", None)) is not None:
            values["image"] = ImageInput.from_dict(image)
        if (embedder := values.pop("embedder", None)) is not None:
            values["embedder"] = EmbedderUse.from_dict(embedder)
        variants = tuple(Variant(**variant) for variant in values.pop("variants", ()))
        examples = tuple(Example(**example) for example in values.pop("examples", ()))
        return cls(**values, variants=variants, examples=examples)


def _shortened(message: str) -> str:
    """A message that may quote the file, with its end left out where it is long."""
    whole = message.encode(errors="backslashreplace").decode()
    return whole if len(whole) <= MAX_MESSAGE else f"{whole[:MAX_MESSAGE]}..."


def _check_pair_template(template: object, task: str) -> None:
    """Raise `LoadError` unless it is empty, or takes a query and then a document."""
    if not isinstance(template, str) or (template and task != "pair-scoring"):
        raise LoadError(f"manifest.json: pair_template is {template!r}, expected none")
    counts = [template.count(place) for place in (QUERY_PLACE, DOCUMENT_PLACE)]
    has_places = counts == [1, 1] and template.endswith(DOCUMENT_PLACE)
    if template and not (has_places and len(template) <= MAX_PAIR_TEMPLATE):
        raise LoadError(
            f"manifest.json: pair_template has {len(template)} characters, expected at most "
            f"{MAX_PAIR_TEMPLATE}, {QUERY_PLACE} once, and {DOCUMENT_PLACE} once and at the end"
        )


def _check_choice(name: str, value: object, literal: object) -> None:  # a type of types
    allowed = get_args(literal)
    if value not in allowed:
        raise LoadError(f"manifest.json: {name} is {value!r}, expected one of {allowed}")
