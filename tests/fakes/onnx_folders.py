"""Folders of graphs in ONNX as optimum and onnx-community publish them, of tiny networks."""

import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx
import torch
import transformers

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


def write_tokenizer(folder: Path) -> None:
    word_tokenizer().save(str(folder / "tokenizer.json"))
    stated = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "[UNK]",
        "mask_token": "[MASK]",
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(stated))
