"""The maps behind the pooling of a sentence-transformers folder, each with its weights.

Dense and LayerNorm are folders of a config.json and a file of weights; Dropout does nothing where
nothing is trained. Knows nothing about encoders.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from models.checkpoints.embedder_files import DenseStep, Step, read_step
from models.checkpoints.weights import WEIGHTS_FILE, assign_weights, build_on_meta, read_tensors
from models.json_files import fields_of
from models.networks.decoder_readers import DecoderEmbedder
from models.networks.heads import TextEmbedder
from models.networks.traced_readers import TracedEmbedder
from models.networks.vector_maps import DenseMap, VectorMap, VectorMaps, VectorNorm

Embedder = TypeVar("Embedder", TextEmbedder, DecoderEmbedder, TracedEmbedder)


def with_maps(embedder: Embedder, steps: Sequence[Step], path: Path) -> Embedder:
    """The embedder with the maps of these steps; `path` is that of what lists them."""
    maps = [each for step in steps if (each := _read_map(*step)) is not None]
    with fields_of(path, {}):
        embedder.maps = VectorMaps(maps)
        embedder.maps.output_size(embedder.pooled_size)
    return embedder


def _read_map(name: str, folder: Path) -> VectorMap | None:
    step = read_step(name, folder)
    if step is None:
        return None
    kind = DenseMap if isinstance(step, DenseStep) else VectorNorm
    read: VectorMap = build_on_meta(lambda: kind(**asdict(step)))
    assign_weights(read, read_tensors(folder / WEIGHTS_FILE), folder / WEIGHTS_FILE)
    return read
