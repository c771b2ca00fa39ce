"""Sizes that a decoder's graph states, read from the names and dims of its tensors. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from service.contract.tensors import DATATYPES, Datatype, Signature, TensorSpec
from service.errors import LoadError
from service.generation.decoders.logits_memory import num_candidates_of


@dataclass(frozen=True, slots=True)
class Form:
    """Tensors of one kind of decoders beside the cache's, and how the cache's lie."""

    title: str
    inputs: tuple[str, ...]
    option: str  # an input that older graphs lack
    cache: tuple[str, str, str, str]  # its axes; those that a graph states are named
    takes_states: bool = False  # of one size per row, beside the cache


@dataclass(frozen=True, slots=True)
class State:
    """The state that a layer keeps of all tokens of a row; its size does not grow with them."""

    name: str
    dims: tuple[int, ...]  # of one row
    datatype: Datatype

    @property
    def num_bytes(self) -> int:
        return prod(self.dims) * self.datatype.dtype.itemsize


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """Sizes that a decoder's graph states."""

    num_layers: int  # that have keys and values
    num_kv_heads: int
    head_size: int
    vocab_size: int
    cache_type: Datatype
    takes_option: bool  # the form's: positions of wanted logits, or bounds of attention
    num_candidates: int = 0  # of each row; 0 where the graph gives logits only
    takes_one_row: bool = False  # its input_ids state it: rows of a step are run one by one
    states: tuple[State, ...] = ()

    @classmethod
    def of(cls, signature: Signature, form: Form) -> "DecoderShape":
        """Read from a graph's tensors, or `LoadError` where it is no decoder of that form."""
        inputs, num_layers = graph_inputs(signature, form)
        logits = next(spec for spec in signature.outputs if spec.name == "logits")
        if len(logits.dims) != 2 or logits.dims[1] < 1:
            raise LoadError(f"'logits' has dims {list(logits.dims)}, expected [-1, vocabulary]")
        cache = inputs.get("past_key_values.0.key")
        heads, size = (form.cache.index(axis) for axis in ("heads", "head size"))
        return cls(
            num_layers,
            cache.dims[heads] if cache else 0,
            cache.dims[size] if cache else 0,
            logits.dims[1],
            cache.datatype if cache else DATATYPES["FP32"],
            form.option in inputs,
            num_candidates_of(signature),
            inputs["input_ids"].dims[:1] == (1,),
            tuple(
                State(name, inputs[name].dims[1:], inputs[name].datatype)
                for name, _ in state_names(_num_states(inputs))
            ),
        )

    def num_bytes(self, num_tokens: int) -> int:
        """Keys and values of every layer, and the states of a row."""
        per_token = 2 * self.num_layers * self.num_kv_heads * self.head_size
        of_states = sum(state.num_bytes for state in self.states)
        return per_token * self.cache_type.dtype.itemsize * num_tokens + of_states


def graph_inputs(signature: Signature, form: Form) -> tuple[Mapping[str, TensorSpec], int]:
    """A graph's inputs by name, and the layers of its cache, checked against the form.

    Raises `LoadError`.
    """
    inputs = {spec.name: spec for spec in signature.inputs}
    outputs = {spec.name for spec in signature.outputs}
    num_layers = sum(name.startswith("past_key_values.") for name in inputs) // 2
    states = state_names(_num_states(inputs)) if form.takes_states else []
    caches = cache_names(num_layers)
    taken = {*form.inputs, *(past for past, _ in caches + states)}
    known = {"logits", *(present for _, present in caches + states)}
    if not (num_layers or states) or inputs.keys() - {form.option} != taken or not known <= outputs:
        raise LoadError(
            f"{form.title} takes {', '.join(form.inputs)} and past_key_values.*.key and .value, "
            f"and gives logits and present.*; the graph takes {sorted(inputs)} and gives "
            f"{sorted(outputs)}"
        )
    _check_states(signature, states)
    first = inputs.get("past_key_values.0.key")
    for past, _ in caches:
        spec = inputs[past]
        if first is None or not is_stated(spec.dims, form.cache) or not is_alike(spec, first):
            raise LoadError(
                f"'{past}' is {spec.datatype.config_name} {list(spec.dims)}, expected "
                f"[{', '.join(form.cache)}], the same in every layer"
            )
    return inputs, num_layers


def is_stated(dims: tuple[int, ...], axes: tuple[str, ...]) -> bool:
    """Whether dims state a size where an axis is named, and none where it is -1."""
    return len(dims) == len(axes) and all(
        size == -1 if axis == "-1" else size > 0 for size, axis in zip(dims, axes, strict=True)
    )


def is_alike(one: TensorSpec, other: TensorSpec) -> bool:
    return (one.dims, one.datatype) == (other.dims, other.datatype)


def cache_names(num_layers: int) -> list[tuple[str, str]]:
    """The names of each buffer as an input and as an output."""
    return [
        (f"past_key_values.{layer}.{part}", f"present.{layer}.{part}")
        for layer in range(num_layers)
        for part in ("key", "value")
    ]


def state_names(num_states: int) -> list[tuple[str, str]]:
    """The names of each state as an input and as an output."""
    return [(f"past_state.{index}", f"present_state.{index}") for index in range(num_states)]


def _num_states(inputs: Mapping[str, TensorSpec]) -> int:
    return sum(name.startswith("past_state.") for name in inputs)


def _check_states(signature: Signature, names: list[tuple[str, str]]) -> None:
    """Raise `LoadError` unless each state has one size per row, and is given as it is taken."""
    tensors = {spec.name: spec for spec in (*signature.inputs, *signature.outputs)}
    for past, present in names:
        spec, given = tensors[past], tensors[present]
        is_sized = len(spec.dims) > 1 and spec.dims[0] == -1 and min(spec.dims[1:]) > 0
        if not is_sized or given.datatype != spec.datatype or len(given.dims) != len(spec.dims):
            raise LoadError(
                f"'{past}' is {spec.datatype.config_name} {list(spec.dims)} and '{present}' "
                f"{given.datatype.config_name} {list(given.dims)}, expected [-1, sizes] of both"
            )
