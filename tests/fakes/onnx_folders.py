"""Folders of graphs in ONNX as optimum and onnx-community publish them, of tiny networks."""

import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
import transformers
from tokenizers import Tokenizer

from tests.checkpoints.fields import network
from tests.models.tiny import word_tokenizer

CLASSES: dict[str, tuple[str, tuple[str, ...]]] = {
    "text-classification": ("AutoModelForSequenceClassification", ("logits",)),
    "pair-scoring": ("AutoModelForSequenceClassification", ("logits",)),
    "embedding": ("AutoModel", ("last_hidden_state",)),
    "token-classification": ("AutoModelForTokenClassification", ("logits",)),
    "question-answering": ("AutoModelForQuestionAnswering", ("start_logits", "end_logits")),
    "fill-mask": ("AutoModelForMaskedLM", ("logits",)),
}


class _Ordered(torch.nn.Module):
    """A network of transformers that takes and gives tensors in an order."""

    def __init__(self, inner: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        super().__init__()
        self.inner, self.inputs, self.outputs = inner, inputs, outputs

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = self.inner(**dict(zip(self.inputs, tensors, strict=True)))
        return tuple(made[name] for name in self.outputs)


def ids_of(folder: Path, text: str, pair: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Ids and types of a text or pair by the folder's tokenizer, [1, S] each."""
    encoding = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text, pair)
    return np.array([encoding.ids]), np.array([encoding.type_ids])


def run_alone(folder: Path, graph: str, text: str, pair: str | None = None) -> list[np.ndarray]:
    """The outputs of a folder's graph for one text, as ONNX Runtime gives them."""
    ids, types = ids_of(folder, text, pair)
    session = onnxruntime.InferenceSession(folder / graph)
    given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": types}
    given["position_ids"] = np.arange(ids.shape[1])[None]
    outputs: list[np.ndarray] = session.run(
        None, {each.name: given[each.name] for each in session.get_inputs()}
    )
    return outputs


def tiny(task: str, kind: str = "bert", **changes: Any) -> Any:
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.manual_seed(3)
    number = {"pair-scoring": 1, "question-answering": 2}.get(task, 3)
    changes = {"num_labels": number, **changes}
    made: Any = network(kind, getattr(transformers, CLASSES[task][0]), **changes)
    return made.eval()


def write_graph(
    inner: Any,
    path: Path,
    outputs: Sequence[str],
    inputs: Sequence[str] = ("input_ids", "attention_mask", "token_type_ids"),
    opset: int = 18,
) -> Path:
    """The graph of a network as optimum writes it, with axes of any size."""
    rows = torch.ones(2, 7, dtype=torch.int64)
    given = {"input_ids": rows * 5, "attention_mask": rows, "token_type_ids": rows * 0}
    given["position_ids"] = rows.cumsum(1) - 1
    path.parent.mkdir(parents=True, exist_ok=True)
    axes = {name: {0: "batch_size", 1: "sequence_length"} for name in (*inputs, *outputs)}
    if "Sequence" in type(inner).__name__:
        axes["logits"] = {0: "batch_size"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Ordered(inner, inputs, outputs).eval(),
            tuple(given[name] for name in inputs),
            str(path),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes=axes,
            opset_version=opset,
            dynamo=False,
        )
    return path


def onnx_folder(
    folder: Path,
    task: str,
    kind: str = "bert",
    graph: str = "onnx/model.onnx",
    inputs: Sequence[str] = ("input_ids", "attention_mask", "token_type_ids"),
    change: Callable[[onnx.ModelProto], None] | None = None,
    opset: int = 18,
    **changes: Any,
) -> Any:
    """Write a folder of the task's tiny network, and return that network."""
    inner = tiny(task, kind, **changes)
    folder.mkdir(parents=True, exist_ok=True)
    inner.config.save_pretrained(folder)
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({**values, "architectures": [type(inner).__name__]})
    )
    write_tokenizer(folder)
    path = write_graph(inner, folder / graph, CLASSES[task][1], inputs, opset)
    if change is not None:
        model = onnx.load(path)
        change(model)
        onnx.save(model, path)
    return inner


def image_folder(folder: Path) -> Any:
    """Write a folder of a tiny classifier of images, and return its network."""
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.manual_seed(3)
    sizes: dict[str, Any] = {
        "num_labels": 3,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    config = transformers.ViTConfig(**sizes, intermediate_size=24, image_size=8, patch_size=4)
    made: Any = transformers.ViTForImageClassification(config)
    inner = made.eval()
    folder.mkdir(parents=True)
    values = {**config.to_dict(), "architectures": [type(inner).__name__]}
    (folder / "config.json").write_text(json.dumps(values))
    size = {"height": 8, "width": 8}
    stated = {"image_processor_type": "ViTImageProcessor", "size": size}
    (folder / "preprocessor_config.json").write_text(json.dumps(stated))
    names = ["batch", "channels", "height", "width"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Ordered(inner, ("pixel_values",), ("logits",)).eval(),
            (torch.zeros(2, 3, 8, 8),),
            str(folder / "model.onnx"),
            input_names=["pixel_values"],
            output_names=["logits"],
            dynamic_axes={"pixel_values": dict(enumerate(names)), "logits": {0: "batch"}},
            opset_version=18,
            dynamo=False,
        )
    return inner


def write_tokenizer(folder: Path) -> None:
    tokenizer = word_tokenizer()
    tokenizer.add_special_tokens(["[MASK]"])
    tokenizer.save(str(folder / "tokenizer.json"))
    stated = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "[UNK]",
        "mask_token": "[MASK]",
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(stated))
