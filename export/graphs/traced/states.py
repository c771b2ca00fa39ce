"""The kernels with states that modules of transformers call, in place of the library's own.

There is no register of them. They are functions of the files of the networks, under one name in
every family: a causal convolution, the gated delta rule, the scans of Mamba. While
`kernels_answered` is entered, each call goes to an answer instead: `LookStates` notes the state
that it keeps, and `EmitStates` writes one node, which reads the state of the tokens before and
gives the one after.
An argument that is neither known to be of the call nor known to change nothing is refused. For one
thread: functions of files are of the process.
"""

# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, C channels, H heads, Dk, Dv

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import silu, softplus

from export.errors import ExportError
from export.graphs.traced.attention import IGNORED

CONVOLUTION, RECURRENCE = "CausalConvWithState", "LinearAttention"
EPSILON = 1e-6  # of transformers' norm of queries and keys
FUSED = {None: "none", "silu": "silu", "swish": "silu"}  # activations that the operator has
# Besides those of attention: parts of the computation that are of no other outcome.
CHANGES_NOTHING = IGNORED | {
    "chunk_size",
    "output_final_state",
    "return_final_states",
    "return_last_state",
}
CHANGES_NOTHING |= {"use_mambapy", "use_associative_scan"}


@dataclass(frozen=True, slots=True)
class StateCall:
    """One call of a kernel, as the operator that computes it."""

    operator: str
    inputs: tuple[Tensor | None, Tensor | None, Tensor | None]  # before the state
    others: tuple[Tensor, ...]  # behind it
    options: dict[str, Any]
    state: tuple[int, ...]  # sizes of what is kept of each row
    shape: tuple[Any, ...]  # of the output


StateAnswer = Callable[[StateCall], Tensor]


def convolution(
    answer: StateAnswer,
    hidden_states: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    **others: Any,  # noqa: ANN401
) -> Tensor:
    """A causal convolution of each channel, [B, C, S]."""
    _check(others)
    num_channels, width = weight.shape
    call = StateCall(
        CONVOLUTION,
        (hidden_states, weight.unsqueeze(1), bias),
        (),
        {"activation": FUSED.get(activation, "none")},
        (num_channels, width - 1),
        hidden_states.shape,
    )
    if activation in FUSED:
        return answer(call)
    from transformers.activations import ACT2FN

    activated: Tensor = ACT2FN[activation](answer(call))
    return activated


def delta_rule(
    answer: StateAnswer,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    use_qk_l2norm_in_kernel: bool = False,
    **others: Any,  # noqa: ANN401
) -> tuple[Tensor, None]:
    """The gated delta rule over [B, S, H, D]; a decay is of each head, or of each part of keys."""
    _check(others)
    if use_qk_l2norm_in_kernel:
        query, key = (
            each * torch.rsqrt((each * each).sum(-1, keepdim=True) + EPSILON)
            for each in (query, key)
        )
    decays = g.flatten(2) if g.dim() > 3 else g
    options = {"update_rule": "gated_delta", "scale": query.shape[-1] ** -0.5}
    return _recurrence(answer, (query, key, value), (decays, beta), options), None


def scan(
    answer: StateAnswer,
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    **others: Any,  # noqa: ANN401
) -> Tensor:
    """Mamba-2's scan: the gated rule with keys B, queries C and values x * dt, [B, S, H, Dv]."""
    _check(others)
    dt = dt if dt_bias is None else dt + dt_bias
    dt = softplus(dt) if dt_softplus else dt
    dt = torch.clamp(dt, min=dt_limit[0], max=dt_limit[1])
    values = hidden_states * dt[..., None]
    options = {"update_rule": "gated", "scale": 1.0}
    output = _recurrence(answer, (C, B, values), (A * dt,), options)
    return output if D is None else output + D[..., None] * hidden_states


def selective_scan(
    answer: StateAnswer,
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    **others: Any,  # noqa: ANN401
) -> Tensor:
    """Mamba's scan, [B, C, S]: the gated rule with a head of one value for each channel."""
    _check(others)
    dt = dt if delta_bias is None else dt + delta_bias[..., None]
    dt = softplus(dt) if delta_softplus else dt
    steps_BSC1 = dt.transpose(1, 2)[..., None]
    values = hidden_states.transpose(1, 2)[..., None] * steps_BSC1
    keys, queries = (each.transpose(1, 2).unsqueeze(2) for each in (B, C))
    options = {"update_rule": "gated", "scale": 1.0}
    decays = (A * steps_BSC1).flatten(2)
    output = _recurrence(answer, (queries, keys, values), (decays,), options)
    output = output.squeeze(-1).transpose(1, 2)
    output = output if D is None else output + D[:, None] * hidden_states
    return output if z is None else output * silu(z)


KERNELS: dict[str, Callable[..., Any]] = {
    "causal_conv1d_fn": convolution,
    "torch_chunk_gated_delta_rule": delta_rule,
    "chunk_kimi_delta_attention": delta_rule,
    "mamba2_chunk_scan": scan,
    "mamba_selective_scan": selective_scan,
}


def _recurrence(
    answer: StateAnswer,
    tensors: tuple[Tensor, Tensor, Tensor],
    gates: tuple[Tensor, ...],
    options: dict[str, Any],
) -> Tensor:
    """Queries, keys and values [B, S, H, D] under a rule; heads of keys repeat for values'."""
    *packed, value = tensors
    num_heads, value_size = value.shape[2:]
    query, key = (each.repeat_interleave(num_heads // each.shape[2], dim=2) for each in packed)
    call = StateCall(
        RECURRENCE,
        (query.flatten(2), key.flatten(2), value.flatten(2)),
        gates,
        {**options, "q_num_heads": num_heads, "kv_num_heads": num_heads},
        (num_heads, key.shape[-1], value_size),
        (*value.shape[:2], num_heads * value_size),
    )
    return answer(call).view(*value.shape[:2], num_heads, value_size)


def _check(others: dict[str, Any]) -> None:
    """Raise `ExportError` for an argument that may change the outcome."""
    for name, value in others.items():
        if name not in CHANGES_NOTHING and value is not None:
            raise ExportError(f"a kernel with a state is given {name}, whose meaning is not known")


def kernels_answered(network: nn.Module, answer: StateAnswer) -> AbstractContextManager[None]:
    """While entered, `answer` computes the kernels of a network of transformers."""
    return kernels_replaced(network, lambda name, _: partial(KERNELS[name], answer))


@contextmanager
def kernels_replaced(
    network: nn.Module, make: Callable[[str, Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """While entered, kernels are what is made of their names and of those of the library."""
    files = {sys.modules[type(module).__module__] for module in network.modules()}
    known = [(file, name) for file in files for name in KERNELS if hasattr(file, name)]
    before = [(file, name, getattr(file, name)) for file, name in known]
    try:
        for file, name, own in before:
            setattr(file, name, make(name, own))
        yield
    finally:
        for file, name, own in before:
            setattr(file, name, own)


@dataclass(slots=True)
class LookStates:
    """Notes the states that are kept of a row; answers are zeros."""

    states: list[tuple[int, ...]] = field(default_factory=list)

    def __call__(self, call: StateCall) -> Tensor:
        self.states.append(call.state)
        (value,) = call.inputs[2:] if call.operator == RECURRENCE else call.inputs[:1]
        assert value is not None, "a call has an input"
        return value.new_zeros(call.shape)


@dataclass(slots=True)
class EmitStates:
    """Writes each call as one node; `presents` are the states that it leaves."""

    pasts: tuple[Tensor, ...]
    presents: list[Tensor] = field(default_factory=list)

    def __call__(self, call: StateCall) -> Tensor:
        past = self.pasts[len(self.presents)]
        output: Tensor
        output, present = torch.onnx.ops.symbolic_multi_out(
            f"com.microsoft::{call.operator}",
            [*call.inputs, past, *call.others],
            call.options,
            dtypes=[past.dtype, past.dtype],
            shapes=[call.shape, past.shape],
        )
        self.presents.append(present)
        return output
