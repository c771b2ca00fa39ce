"""The ends of a decoder's graph: its inputs and outputs by what they are for, and its sizes.

Graphs name their tensors as optimum does, or as `genai_config.json` says. Older ones hold two
networks, with a past and without, and choose by an input: the one with a past is taken.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import product
from typing import Self

import numpy as np
from onnx import ModelProto, TensorProto, ValueInfoProto, helper

from export.adopted.editing import inputs_of
from export.errors import ExportError
from models.errors import shown
from service.generation.decoders.decoder import INPUTS
from service.generation.decoders.shape import cache_names

IDS, POSITIONS, LENGTHS, TOTAL = INPUTS
MASK, LOGITS = "attention_mask", "logits"
BRANCH, BRANCH_WITH_PAST = "use_cache_branch", "then_branch"
# Inputs that are the same in every run.
CONSTANTS: Mapping[str, np.ndarray] = {
    BRANCH: np.ones(1, np.bool_),
    "num_logits_to_keep": np.zeros((), np.int64),  # 0: the logits of all tokens
}
CACHE_AXES, LOGITS_AXES = 4, 3
MAX_LISTED = 12  # names in a message
FLOATS = {TensorProto.FLOAT: "float32", TensorProto.FLOAT16: "float16"}


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a graph's tensors; those of caches hold `%d` for the layer."""

    input_ids: str = IDS
    attention_mask: str = MASK
    position_ids: str = POSITIONS
    past_key_names: str = "past_key_values.%d.key"
    past_value_names: str = "past_key_values.%d.value"
    logits: str = LOGITS
    present_key_names: str = "present.%d.key"
    present_value_names: str = "present.%d.value"

    @classmethod
    def of(cls, stated: Mapping[str, str]) -> Self:
        """Names by purpose, as a file states them; purposes that are not known are passed over.

        Raises `ExportError` for names of caches that are the same in all layers.
        """
        known = {each.name for each in fields(cls)}
        for purpose, name in stated.items():
            if purpose in known and purpose.endswith("_names") and "%d" not in name:
                raise ExportError(
                    f"{purpose} is {shown(name)}, expected a name with %d for the layer"
                )
        return cls(**{purpose: name for purpose, name in stated.items() if purpose in known})

    def by_own(self, num_layers: int) -> dict[str, str]:
        """The server's names by the graph's."""
        names = {self.input_ids: IDS, self.attention_mask: MASK, self.position_ids: POSITIONS}
        names[self.logits] = LOGITS
        for layer, part in product(range(num_layers), ("key", "value")):
            for side in ("past", "present"):
                own = getattr(self, f"{side}_{part}_names").replace("%d", str(layer))
                names[own] = f"{'past_key_values' if side == 'past' else side}.{layer}.{part}"
        return names


@dataclass(frozen=True, slots=True)
class Ends:
    """Inputs and outputs of a decoder, by the server's names, and the sizes that they state."""

    tensors: Mapping[str, ValueInfoProto]  # of a mask and of positions only where the graph has any
    constants: Mapping[str, np.ndarray]  # inputs that never vary, by name
    num_layers: int
    num_heads: int  # of keys and values
    head_size: int
    vocab_size: int
    cache_type: int  # of TensorProto

    def dtype_of(self, name: str) -> int:
        return int(self.tensors[name].type.tensor_type.elem_type)


def ends_of(
    model: ModelProto, names: Names | None = None, *, head_size: int = 0, vocab_size: int = 0
) -> Ends:
    """The ends of a graph, or `ExportError` where it is no decoder with a past.

    The sizes are those of the folder's files, for a graph that does not state them.
    """
    names = names or Names()
    inputs, outputs = (
        {value.name: value for value in side} for side in (inputs_of(model), model.graph.output)
    )
    num_layers = 0
    while names.past_key_names.replace("%d", str(num_layers)) in inputs:
        num_layers += 1
    ours = names.by_own(num_layers)
    _check_tokens(inputs.get(names.input_ids))
    _check_names(inputs, outputs, ours, num_layers)
    tensors = {ours[name]: value for name, value in (inputs | outputs).items() if name in ours}
    num_heads, size = _sizes_of({past: tensors[past] for past, _ in cache_names(num_layers)})
    size = size or head_size
    types = {tensors[past].type.tensor_type.elem_type for past, _ in cache_names(num_layers)}
    if len(types) > 1 or not types <= FLOATS.keys():
        stated = ", ".join(sorted(map(TensorProto.DataType.Name, types)))
        raise ExportError(f"its caches are of {stated}, expected FLOAT or FLOAT16 in all layers")
    logits = _dims(tensors[LOGITS])
    vocab = (logits[-1] if logits else 0) or vocab_size
    if len(logits) != LOGITS_AXES or not vocab or not size:
        raise ExportError(
            f"'{names.logits}' has dims {_shown(logits)} and its caches have heads of size {size}, "
            "expected [rows, tokens, vocabulary] and sizes above 0, here or in config.json"
        )
    constants = {name: value for name, value in CONSTANTS.items() if name in inputs}
    return Ends(tensors, constants, num_layers, num_heads, size, vocab, types.pop())


def take_branch_with_past(model: ModelProto) -> None:
    """Put the network with a past in the place of a choice between two; other graphs stay.

    Raises `ExportError` for a choice that is not whole.
    """
    graph = model.graph
    for place, node in enumerate(graph.node):
        if node.op_type == "If" and BRANCH in node.input:
            branch = next(
                (each.g for each in node.attribute if each.name == BRANCH_WITH_PAST), None
            )
            if branch is None or len(branch.output) != len(node.output):
                raise ExportError(
                    f"the choice by '{BRANCH}' gives {len(node.output)} values, and its "
                    f"{BRANCH_WITH_PAST} {0 if branch is None else len(branch.output)}"
                )
            outputs = zip(branch.output, node.output, strict=True)
            renamed = [
                helper.make_node("Identity", [inner.name], [outer])
                for inner, outer in outputs
                if outer not in ("", inner.name)
            ]
            nodes = [*graph.node[:place], *branch.node, *renamed, *graph.node[place + 1 :]]
            graph.initializer.extend(branch.initializer)
            del graph.node[:]
            graph.node.extend(nodes)
            return


def _check_names(
    inputs: Collection[str], outputs: Collection[str], ours: Mapping[str, str], num_layers: int
) -> None:
    """Raise `ExportError` unless a graph has the tensors of a decoder with a past, and no others.

    Further outputs are left out.
    """
    read_by_other = [name for name in inputs if ".encoder." in name or name.startswith("encoder_")]
    if read_by_other:
        raise ExportError(
            f"the graph reads an encoder's output ('{read_by_other[0]}'): encoder-decoders in ONNX "
            "are not generated with; import the checkpoint that it was made of"
        )
    if not num_layers:
        raise ExportError(
            "the graph reads no past (past_key_values.0.key), so each token would take a run over "
            f"all tokens; its inputs are {_listed(inputs)}"
        )
    optional = {MASK, POSITIONS}
    wanted = {own for own, name in ours.items() if name not in optional}
    missing = wanted - {*inputs, *outputs}
    unknown = [name for name in inputs if name not in ours and name not in CONSTANTS]
    if missing or unknown:
        described = f"lacks {_listed(sorted(missing))}" if missing else ""
        other = f"reads {_listed(unknown)}, for which there is no value" if unknown else ""
        raise ExportError(f"the graph {' and '.join(filter(None, (described, other)))}")


def _check_tokens(ids: ValueInfoProto | None) -> None:
    """Raise `ExportError` where a run takes one token of a row."""
    if ids is not None and _dims(ids)[1:] == (1,):
        raise ExportError(
            "each of its runs takes one token of a row, so a prompt would take as many runs as it "
            "has tokens: export the model again, as one graph (optimum 1.14 or later)"
        )


def _sizes_of(caches: Mapping[str, ValueInfoProto]) -> tuple[int, int]:
    """Heads, and the size of each, 0 where no layer states it. Raises `ExportError`."""
    sizes: set[tuple[int, int]] = set()
    for name, value in caches.items():
        dims = _dims(value)
        if len(dims) != CACHE_AXES or not dims[1] or dims[2]:
            raise ExportError(
                f"'{name}' has dims {_shown(dims)}, expected [rows, a number of heads, tokens, "
                "size of a head]"
            )
        sizes.add((dims[1], dims[3]))
    if len(sizes) > 1:
        raise ExportError(f"its layers have caches of {len(sizes)} sizes, expected one: {sizes}")
    return sizes.pop()


def _dims(value: ValueInfoProto) -> tuple[int, ...]:
    """Dims of a tensor; 0 where they vary."""
    return tuple(max(0, dim.dim_value) for dim in value.type.tensor_type.shape.dim)


def _shown(dims: Iterable[int]) -> list[int | str]:
    return [size or "?" for size in dims]


def _listed(names: Collection[str]) -> str:
    first = ", ".join(list(names)[:MAX_LISTED])
    return first + (f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else "")
