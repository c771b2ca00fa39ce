"""The graphs of a folder by the names of their files, and the one of them that is served.

One network is published in several forms, told by the end of a file's name, as transformers.js and
sentence-transformers write them. Pure: names in, a choice out. Opens nothing.
docs/how-to/cuda.md says what was verified on CUDA.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from models.errors import CheckpointError, shown

PLAIN = "fp32"  # the variant of a file without an ending
WEIGHTS = "weights"  # the variant of a folder that is no graph
# Precision of a file by the end of its name; of several, an earlier one is chosen on a CPU.
PRECISIONS: Mapping[str, str] = {
    "": "fp32",
    **{f"_O{level}": "fp32" for level in (1, 2, 3)},
    **{f"_{name}": "int8" for name in ("quantized", "int8", "uint8")},
    **{f"_qint8_{kind}": "int8" for kind in ("avx512_vnni", "avx512", "arm64")},
    "_quint8_avx2": "int8",
    "_q4": "int4-weights",
    "_bnb4": "int4-weights",
    "_fp16": "fp16",
    "_O4": "fp16",
    "_q4f16": "int4-weights",
}
ENDINGS = sorted(filter(None, PRECISIONS), key=len, reverse=True)
FILE = re.compile(rf"(?P<stem>.+?)(?P<ending>{'|'.join(ENDINGS)})?\.onnx", re.ASCII)
HALF = ("_fp16", "_O4", "_q4f16")  # which a CPU computes more slowly than the others
FOLDER = "onnx/"
# Names of graphs without endings, by preference: the last two are of older decoders.
STEMS = ("model", "decoder_model_merged", "decoder_with_past_model")
ENCODER = "encoder_model"
MAX_NAMED = 12  # variants in an error
DATA = ("_data*", ".data", ".weights", ".tables")  # behind the name of a graph: its external data


@dataclass(frozen=True, slots=True)
class GraphFile:
    """A graph of a folder: its file, and what the name says of it."""

    name: str  # within the folder
    stem: str  # of the file's name, as "model" or "decoder_model_merged"
    ending: str

    @property
    def variant(self) -> str:
        """The name that people choose it by."""
        return self.ending.removeprefix("_") or PLAIN

    @property
    def names(self) -> tuple[str, ...]:
        """All names that it may be chosen by."""
        file = self.name.rpartition("/")[2]
        return self.variant, self.name, file, file.removesuffix(".onnx")

    @property
    def precision(self) -> str:
        """The precision that the name says."""
        return PRECISIONS[self.ending]

    @property
    def is_half(self) -> bool:
        """Whether a CPU computes it more slowly than other variants."""
        return self.ending in HALF


@dataclass(frozen=True, slots=True)
class GraphWish:
    """All that decides which graph of a folder is taken."""

    variant: str | None = None  # as --variant names it
    precision: str = "auto"
    target: str = "cpu"


def graphs_in(names: Collection[str], place: str = "") -> list[GraphFile]:
    """The graphs in a folder, or those in its `onnx/` where it has none, by their names.

    `place` is the folder of the network within the whole, with a slash at its end.
    """
    for inner in (place, f"{place}{FOLDER}", FOLDER):
        found = [_file(name) for name in sorted(names) if _is_graph(name, inner)]
        if found:
            return found
    return []


def choose(graphs: Iterable[GraphFile], wish: GraphWish, *, has_weights: bool = False) -> GraphFile:
    """The graph that a wish means. Raises `CheckpointError` where none, or more than one, fits.

    `has_weights` says that the folder has weights too.
    """
    there = list(graphs)
    if is_encoder_decoder(there):
        weights = f"--variant {WEIGHTS} serves those beside them" * has_weights
        raise CheckpointError(
            "its graphs are of an encoder-decoder, and generation needs its weights: "
            + (weights or "serve a folder with these")
        )
    if wish.variant is not None:
        return _named(there, wish.variant, has_weights)
    stems = sorted({graph.stem for graph in there})
    stem = next((each for each in STEMS if each in stems), stems[0])
    if len(stems) > 1 and stem not in STEMS:
        raise CheckpointError(
            f"there are graphs of {len(stems)} networks, {', '.join(stems[:MAX_NAMED])}: name one "
            "of them by --variant"
        )
    of_stem = sorted((graph for graph in there if graph.stem == stem), key=_order)
    if wish.precision != "auto":
        fitting = [graph for graph in of_stem if graph.precision == wish.precision]
        if not fitting:
            raise CheckpointError(
                f"there is no graph in {wish.precision}; there are {_list(of_stem)}: leave out "
                "--precision, or name one of them by --variant"
            )
        return fitting[0]
    halves = [graph for graph in of_stem if graph.precision == "fp16"]
    return halves[0] if wish.target == "cuda" and halves else of_stem[0]


def is_encoder_decoder(graphs: Iterable[GraphFile]) -> bool:
    """Whether graphs are the parts of one network that writes for a source, as optimum has them."""
    stems = {graph.stem for graph in graphs}
    return ENCODER in stems and any(stem.startswith("decoder") for stem in stems)


def check_weights_meant(wish: GraphWish) -> None:
    """Raise `CheckpointError` for a variant of a folder that has weights alone."""
    if wish.variant not in (None, WEIGHTS):
        raise CheckpointError(
            f"--variant is {shown(wish.variant)}: none of {WEIGHTS} is it, as there are no graphs "
            "in ONNX"
        )


def _named(graphs: Collection[GraphFile], variant: str, has_weights: bool) -> GraphFile:
    """The graph of a variant, or of a file's name with or without its end."""
    fitting = [graph for graph in graphs if variant in graph.names]
    stem = next((each for each in STEMS if any(graph.stem == each for graph in fitting)), None)
    exact = [graph for graph in fitting if graph.stem == stem] or fitting
    if len(exact) != 1:
        number = "none" if not exact else "more than one"
        there = ", ".join(filter(None, (_list(graphs), WEIGHTS * has_weights)))
        raise CheckpointError(f"--variant is {shown(variant)}: {number} of {there} is it")
    return exact[0]


def _list(graphs: Iterable[GraphFile]) -> str:
    names = [f"{graph.variant} ({graph.name})" for graph in graphs]
    more = f" and {len(names) - MAX_NAMED} more" * (len(names) > MAX_NAMED)
    return ", ".join(names[:MAX_NAMED]) + more


def _order(graph: GraphFile) -> int:
    return [*PRECISIONS].index(graph.ending)


def _is_graph(name: str, place: str) -> bool:
    rest = name.removeprefix(place)
    return name.startswith(place) and "/" not in rest and FILE.fullmatch(rest) is not None


def _file(name: str) -> GraphFile:
    match = FILE.fullmatch(name.rpartition("/")[2])
    assert match is not None, "the caller looked for graphs"
    return GraphFile(name, match["stem"], match["ending"] or "")
