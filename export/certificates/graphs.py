"""A graph of another program as the server has it, in the place of a checkpoint and its network."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor, nn

from export.adopted.comparison import opened
from export.adopted.vectors import VectorUse
from models.checkpoints.chat_templates import read_chat
from models.data.tokenizer import TOKENIZER_FILE
from service.contract.embedder_use import EmbedderUse
from service.contract.manifest import MODEL_FILENAME, Manifest
from service.generation.decoders.decoder import OnnxDecoder
from service.runtime.session import OnnxSession

# The largest differences from transformers' network, in parts of the largest value where that is
# above 1, by the precision of a graph. Rounded graphs differ by up to 0.2 from what was rounded.
LIMITS = {"fp32": 1e-5, "fp16": 5e-2, "bf16": 4e-1}
ROUNDED_LIMIT = 0.5
MAX_TOKENS = 1024  # of a text that a decoder's graph is compared on
APPROXIMATE = "_O3.onnx"  # whose file has an approximation of GELU in it, by optimum


class GraphNetwork(nn.Module):
    """A graph with the facts of its manifest; gives its first output, float32."""

    def __init__(self, session: OnnxSession, manifest: Manifest) -> None:
        super().__init__()
        self._session = session
        self.input_names = tuple(each.name for each in session.signature.inputs)
        self.output_names = tuple(each.name for each in session.signature.outputs)[:1]
        self.pad_token_id = manifest.pad_token_id
        self.mask_token_id = manifest.mask_token_id
        self.score_function = manifest.score_function
        self.has_token_types = "token_type_ids" in self.input_names
        self.config = SimpleNamespace(**image_sizes(manifest))

    def forward(self, *tensors: Tensor, **named: Tensor) -> Tensor:
        given = dict(zip(self.input_names, tensors, strict=False)) | named
        arrays = {name: each.numpy() for name, each in given.items()}
        return torch.from_numpy(self._session.run(arrays, self.output_names)[0])


class DecoderNetwork(nn.Module):
    """A decoder's graph over slots: the logits of all tokens, [1, S, V], one run for each."""

    def __init__(self, session: OnnxSession, max_tokens: int) -> None:
        super().__init__()
        self._decoder = OnnxDecoder(session, num_slots=1, max_tokens=max_tokens, max_rows=1)
        self.config = SimpleNamespace(vocab_size=self._decoder.vocab_size)

    def forward(self, ids: Tensor) -> Tensor:
        rows = [
            self._decoder.run(0, [ids[0, place : place + 1].numpy()], [place]).whole()[0].copy()
            for place in range(ids.shape[1])
        ]
        return torch.from_numpy(np.array([rows]))


@dataclass(frozen=True, slots=True)
class GraphSubject:
    """A model that was made of a folder's graph, by the names that a checkpoint has."""

    model: GraphNetwork | DecoderNetwork
    task: str
    labels: tuple[str, ...]
    tokenizer: Tokenizer
    max_tokens: int
    embedder: EmbedderUse
    chat: Mapping[str, Any]
    vectors: VectorUse | None = None  # the way of vectors, where it is known

    @classmethod
    def of(cls, version: Path, vectors: VectorUse | None = None) -> Self:
        """The model of a version's folder. Raises `ExportError`."""
        manifest = Manifest.from_json((version / "manifest.json").read_text(encoding="utf-8"))
        session = opened(version / MODEL_FILENAME)
        file = version / TOKENIZER_FILE
        model: GraphNetwork | DecoderNetwork
        if manifest.task == "text-generation":
            model = DecoderNetwork(session, min(manifest.max_tokens, MAX_TOKENS))
        else:
            model = GraphNetwork(session, manifest)
        return cls(
            model,
            manifest.task,
            manifest.labels,
            Tokenizer.from_file(str(file)) if file.is_file() else Tokenizer(WordLevel({}, "")),
            manifest.max_tokens,
            manifest.embedder or EmbedderUse(),
            read_chat(version),
            vectors,
        )

    @property
    def config(self) -> SimpleNamespace:
        """Sizes of the network."""
        return self.model.config

    @property
    def text_network(self) -> GraphNetwork:
        assert isinstance(self.model, GraphNetwork), "a decoder has no scores"
        return self.model


def image_sizes(manifest: Manifest) -> dict[str, int]:
    image = manifest.image
    if image is None:
        return {}
    return {"channels": image.channels, "height": image.height, "width": image.width}


def limit_of(precision: str, graph: str) -> float:
    """The largest difference of a graph's outputs that is no fault."""
    return LIMITS["fp16"] if graph.endswith(APPROXIMATE) else LIMITS.get(precision, ROUNDED_LIMIT)
