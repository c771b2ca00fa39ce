"""The outputs of an encoder's graph by its task, with the names and shapes that the server wants.

Each function changes a graph; the rows of tokens of all texts of a run are packed, so that a row
of padding is none. Imports no PyTorch.
"""

from collections.abc import Collection, Mapping

import numpy as np
from onnx import ModelProto, TensorProto

from export.adopted.editing import Editor, opset_of
from export.adopted.inputs import IDS, MASK, dims_of
from export.adopted.vectors import VectorUse, normalized, text_vector
from export.errors import ExportError

LEAST_OPSET = 11  # that has CumSum
LOGITS, EMBEDDING = "logits", "embedding"
STATES = ("last_hidden_state", "token_embeddings", "hidden_states")
READY_VECTORS = ("sentence_embedding", "embedding", "embeddings", "text_embeds")
SPANS = ("start_logits", "end_logits")


def outputs_of(model: ModelProto) -> dict[str, tuple[int | None, ...]]:
    """Axes of a graph's outputs; None for those of any size."""
    return {info.name: tuple(dims_of(info)) for info in model.graph.output}


def found(model: ModelProto, *names: str, num_axes: int, task: str) -> str:
    """The first of these outputs that a graph has. Raises `ExportError` where it has none."""
    there = outputs_of(model)
    name = next((name for name in names if name in there), None)
    if name is None or len(there[name]) not in (0, num_axes):
        raise _misfit(names, num_axes, task, there)
    return name


def give_logits(model: ModelProto, output: str) -> None:
    """One row of logits for a text: [B, L]."""
    editor = Editor(model)
    size = _last_axis(model, output)
    value = editor.floating(_own(editor, output, LOGITS))
    editor.set_outputs([(value, LOGITS, ["batch", size or "labels"])])


def give_vectors(model: ModelProto, output: str, use: VectorUse | None, *, is_text: bool) -> None:
    """One vector for a text, [B, D]: of the states of its tokens, or as the graph has it.

    `is_text` says that the output is a text's vector already, of which `use` may change the length.
    """
    _check_opset(model)
    editor = Editor(model)
    value = _own(editor, output, EMBEDDING)
    if is_text:
        vector = editor.floating(value)
        if use is not None and use.normalize:
            vector = normalized(editor, vector)
    else:
        assert use is not None, "states of tokens are pooled"
        vector = text_vector(editor, value, _mask(editor), use)
    editor.set_outputs([(vector, EMBEDDING, ["batch", "size"])])


def give_tokens(model: ModelProto, output: str) -> None:
    """A row of logits for each token of all texts: [tokens, L]."""
    _check_opset(model)
    editor = Editor(model)
    size = _last_axis(model, output)
    value = editor.floating(_own(editor, output, LOGITS))
    packed = _packed(editor, editor.add("Flatten", value, axis=2), _mask(editor))
    editor.set_outputs([(packed, LOGITS, ["tokens", size or "labels"])])


def give_spans(model: ModelProto, start: str, end: str) -> None:
    """Two logits for each token: of an answer's start, and of its end, [tokens, 2]."""
    _check_opset(model)
    editor = Editor(model)
    columns = [
        editor.reshape(editor.floating(_own(editor, name, LOGITS)), -1, 1) for name in (start, end)
    ]
    both = editor.add("Concat", *columns, axis=1)
    packed = _packed(editor, both, _mask(editor))
    editor.set_outputs([(packed, LOGITS, ["tokens", 2])])


def give_masks(model: ModelProto, output: str, mask_token_id: int) -> None:
    """A row of logits of words for each masked place of all texts: [masks, V]."""
    _check_opset(model)
    editor = Editor(model)
    size = _last_axis(model, output)
    value = editor.floating(_own(editor, output, LOGITS))
    is_mask = editor.add("Equal", IDS, editor.constant(np.array(mask_token_id, np.int64)))
    packed = _packed(editor, editor.add("Flatten", value, axis=2), is_mask)
    editor.set_outputs([(packed, LOGITS, ["masks", size or "words"])])


def check_size(model: ModelProto, output: str, size: int, what: str) -> None:
    """Raise `ExportError` where an output states another number of values than is known."""
    stated = _last_axis(model, output)
    if stated not in (None, size):
        raise ExportError(
            f"the graph's output {output!r} has {stated} values, and config.json {size} {what}"
        )


def _last_axis(model: ModelProto, output: str) -> int | None:
    """The size of an output's last axis, where the graph states it."""
    return next(reversed(outputs_of(model)[output]), None)


def _packed(editor: Editor, rows: str, which_BS: str) -> str:  # noqa: N803 - layouts
    """The rows that a mask chooses."""
    chosen = editor.add("Cast", editor.reshape(which_BS, -1), to=TensorProto.BOOL)
    return editor.add("Compress", rows, chosen, axis=0)


def _mask(editor: Editor) -> str:
    """The mask of tokens; of a graph that takes none, ones."""
    if MASK in {info.name for info in editor.graph.input}:
        return MASK
    return editor.add("Cast", editor.add("Equal", IDS, IDS), to=TensorProto.INT64)


def _own(editor: Editor, output: str, wanted: str) -> str:
    """The graph's value of an output, with a name that `wanted` is not."""
    if output != wanted:
        editor.free(wanted)
        return output
    place = [info.name for info in editor.graph.output].index(output)
    editor.free(wanted)
    return str(editor.graph.output[place].name)


def _check_opset(model: ModelProto) -> None:
    opset = opset_of(model)
    if opset < LEAST_OPSET:
        raise ExportError(
            f"the graph is written in opset {opset}, and nodes can be added to {LEAST_OPSET} or "
            "later: export it again"
        )


def _misfit(
    names: Collection[str], num_axes: int, task: str, there: Mapping[str, tuple[int | None, ...]]
) -> ExportError:
    shapes = ", ".join(f"{name} {list(dims)}" for name, dims in there.items()) or "none"
    return ExportError(
        f"{task} needs an output {' or '.join(names)} of {num_axes} axes, and the graph gives "
        f"{shapes}"
    )
