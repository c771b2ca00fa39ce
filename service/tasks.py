"""What a model of each task takes from clients and gives them, and what its graph gives the server.

Knows nothing of graphs, tokenizers or messages. A text task's graph takes token ids and gives one
tensor, whose rows are of texts, of real tokens one after the other, or of masks among them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tritonclient.grpc.model_config_pb2 import ModelConfig

from service.datatypes import DATATYPES
from service.manifest import ImageInput, Manifest, Task
from service.model_config import complete_for_text
from service.signature import Signature, TensorSpec

BYTES, FP32, INT32 = (DATATYPES[name] for name in ("BYTES", "FP32", "INT32"))
TEXT = (TensorSpec("text", BYTES, (1,)),)
# What Triton's generative backends take and give.
GENERATION = Signature(
    (
        TensorSpec("text_input", BYTES, (1,)),
        TensorSpec("stream", DATATYPES["BOOL"], (1,), is_optional=True),
        TensorSpec("sampling_parameters", BYTES, (1,), is_optional=True),
        TensorSpec("exclude_input_in_output", DATATYPES["BOOL"], (1,), is_optional=True),
    ),
    (TensorSpec("text_output", BYTES, (-1,)),),
)
# What a task can do, as in "it cannot ...".
VERBS: dict[Task, str] = {
    "text-classification": "classify",
    "embedding": "embed",
    "text-generation": "generate",
    "fill-mask": "fill masks",
    "token-classification": "classify tokens",
    "question-answering": "answer questions",
    "features": "extract features",
    "attention": "show its attention",
    "image-classification": "classify images",
}


@dataclass(frozen=True, slots=True)
class TextTask:
    """One task of batched texts."""

    output: str  # of the graph
    dims: Callable[[Manifest], tuple[int, ...]]  # of a row of it; -1 where anything goes
    signature: Callable[[Manifest], Signature]  # as clients see it, without the batch axis
    rows: Literal["text", "token", "mask"] = "text"  # what a row of the output is of
    is_alone: bool = False  # whether a text shares no run with others

    @property
    def needs_encodings(self) -> bool:
        """Whether answers tell of tokens: where in a text they are."""
        return self.rows != "text" or self.is_alone


TEXT_TASKS: dict[Task, TextTask] = {
    "text-classification": TextTask(
        "logits",
        lambda manifest: (len(manifest.labels),),
        lambda manifest: Signature(
            (*TEXT, TensorSpec("text_pair", BYTES, (1,), is_optional=True)),
            (
                TensorSpec("label", BYTES, (1,)),
                TensorSpec("score", FP32, (1,)),
                TensorSpec("logits", FP32, (len(manifest.labels),)),
            ),
        ),
    ),
    "embedding": TextTask(
        "embedding",
        lambda manifest: (manifest.embedding_size,),
        lambda manifest: Signature(
            TEXT, (TensorSpec("embedding", FP32, (manifest.embedding_size,)),)
        ),
    ),
    "fill-mask": TextTask(
        "logits",
        lambda _: (-1,),
        lambda _: Signature(TEXT, (TensorSpec("fills", BYTES, (1,)),)),  # JSON
        rows="mask",
    ),
    "token-classification": TextTask(
        "logits",
        lambda manifest: (len(manifest.labels),),
        lambda _: Signature(TEXT, (TensorSpec("entities", BYTES, (1,)),)),  # JSON
        rows="token",
    ),
    "question-answering": TextTask(
        "logits",  # of being an answer's start, and its end
        lambda _: (2,),
        lambda _: Signature(
            (TensorSpec("question", BYTES, (1,)), TensorSpec("context", BYTES, (1,))),
            (
                TensorSpec("answer", BYTES, (1,)),
                TensorSpec("score", FP32, (1,)),
                TensorSpec("start", INT32, (1,)),
                TensorSpec("end", INT32, (1,)),
            ),
        ),
        rows="token",
    ),
    "features": TextTask(
        "hidden_states",
        lambda manifest: (manifest.num_layers + 1, manifest.embedding_size),
        lambda _: Signature(TEXT, (TensorSpec("features", FP32, (-1,)),)),
        rows="token",
    ),
    "attention": TextTask(
        "attentions",
        lambda manifest: (manifest.num_layers, manifest.num_heads, -1, -1),
        lambda manifest: Signature(
            (*TEXT, TensorSpec("target", BYTES, (1,))) if manifest.has_source else TEXT,
            (TensorSpec("attentions", FP32, (manifest.num_layers, manifest.num_heads, -1, -1)),),
        ),
        is_alone=True,
    ),
}


def image_signature(image: ImageInput, num_labels: int) -> Signature:
    """The tensors of an image classifier, which clients see as the graph has them."""
    pixels = TensorSpec("pixel_values", FP32, (image.channels, image.height, image.width))
    return Signature((pixels,), (TensorSpec("logits", FP32, (num_labels,)),))


def text_signature(manifest: Manifest) -> Signature:
    """The tensors of a text model as its clients see them, without the batch axis."""
    if manifest.task == "text-generation":
        return GENERATION
    if manifest.image is not None:
        return image_signature(manifest.image, len(manifest.labels))
    return TEXT_TASKS[manifest.task].signature(manifest)


def complete_config(config: ModelConfig, manifest: Manifest, default_rows: int) -> ModelConfig:
    """A configuration with what clients see of a manifest's model, or `LoadError`."""
    is_alone = manifest.reads_texts and TEXT_TASKS[manifest.task].is_alone
    signature = text_signature(manifest)
    return complete_for_text(config, manifest, signature, default_rows, is_alone=is_alone)
