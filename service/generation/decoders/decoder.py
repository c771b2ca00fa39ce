"""Run a decoder over key/value buffers that never move: tokens in, logits out.

Knows slots and tokens, nothing of sequences or requests. One thread only. The graph reads and
writes the same buffers (`past_key_values.*` and `present.*` are bound to one address), and a run
takes neighbouring slots by binding a range of rows: nothing is copied per step.

What ONNX Runtime's GroupQueryAttention takes on the CPU, and so what `run` takes: one token each
for any rows; several tokens for rows without a past; or several tokens for one row. A graph whose
`input_ids` are of one row says that its rows need runs of their own: see
`export/adopted/decoders.py`. So do prompts of a graph with states (`past_state.*`, of layers that
keep one size per row): padding would enter them. A state is of all tokens of its row and no fewer,
so it is copied whole, and zeros where a row begins. Prompts, without a past or behind one, go to a
graph of their own where there is one beside the decoder's, see `export/graphs/prefill.py`.
"""
# ruff: noqa: N806 - suffixes are array layouts: B rows, S tokens in this pass, V vocabulary, N logits

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from service.contract.precision import MAX_DRAFT_TOKENS
from service.contract.tensors import Signature
from service.errors import LoadError
from service.generation.cache.prefix_store import PIECE_TOKENS, PrefixMemory
from service.generation.choosing.step_logits import StepLogits
from service.generation.decoders.adapter_buffers import (
    MASK,
    AdapterBuffers,
    AdapterShape,
    fill_mask,
)
from service.generation.decoders.decoder_interface import SlotDecoder
from service.generation.decoders.logits_memory import BoundLogits, LogitsMemory
from service.generation.decoders.shape import DecoderShape, Form, cache_names, state_names
from service.runtime.binding import Binding, Bound, Inputs
from service.runtime.memory import HostMemory, Memory
from service.runtime.session import OnnxSession

INPUTS = ("input_ids", "position_ids", "seqlens_k", "total_sequence_length")
PREFILL_SUFFIX = ".prefill.onnx"  # of the graph for prompts: beside model.onnx, model.prefill.onnx
TEXT_INPUTS = ("input_ids", "attention_mask")
PAST = "past"  # of the row that the graph for prompts goes on with; older graphs have no such input
MIN_CONTINUED = 24  # tokens behind a past from which on the graph for prompts is faster
POSITIONS = "logit_positions"  # of tokens whose logits are wanted; older graphs give the last ones
MAX_SLOTS = 256  # a prompt is compared with all of them
MIN_LOGITS_PER_ROW = 1 + MAX_DRAFT_TOKENS  # room for a row's token, and drafted ones after it
MAX_BINDINGS = 256  # ranges of slots whose addresses are kept bound for the next decoding step


# Neighbouring rows of the cache are the slots of a run.
SLOTS = Form("a decoder", INPUTS, POSITIONS, ("-1", "heads", "-1", "head size"), takes_states=True)

_Tensor = tuple[np.dtype, tuple[int, ...]]  # its type and dims; -1 where they vary


class OnnxDecoder(SlotDecoder):
    """An exported decoder and its buffers `[slots, Hkv, T, Dh]`, two per layer."""

    max_part = 256  # tokens of a run of the graph for prompts, the fastest size: decision 0045

    def __init__(
        self,
        session: OnnxSession,
        *,
        num_slots: int,
        max_tokens: int,
        max_rows: int,
        by_slot: Mapping[str, Bound] | None = None,
        prefill: OnnxSession | None = None,
        adapted: OnnxSession | None = None,
        memory: Memory | None = None,
    ) -> None:
        """`by_slot` are further inputs, one row per slot: the caller writes, the graph reads.

        `adapted` runs where a row has an adapter. Buffers are in `memory`, the host's where it is
        not given. Raises `LoadError` for a `prefill` that does not give what the cache takes, for
        an `adapted` with another cache, and `OutOfMemory`.
        """
        self._of_slots = dict(by_slot or {})
        self.shape = shape = DecoderShape.of(without(session.signature, self._of_slots), SLOTS)
        self.vocab_size = shape.vocab_size
        self.num_slots = num_slots
        self.max_tokens = max_tokens
        self.has_states = bool(shape.states)
        self.pads_prompts = prefill is None and not (shape.takes_one_row or shape.states)
        self._session = session
        self._prefill, self._continues = prefill, False
        if prefill is not None:
            self._continues = _check_prefill(prefill.signature, self.shape)
        self._adapted = adapted
        if adapted is not None:
            self.adapters = _adapter_buffers(adapted.signature, self.shape)
        self._memory = memory or HostMemory()
        sizes = (num_slots, self.shape.num_kv_heads, max_tokens, self.shape.head_size)
        self._names = cache_names(shape.num_layers)
        self._buffers: list[Any] = [
            self._memory.zeros(sizes, shape.cache_type) for _ in self._names
        ]
        if shape.states and (prefill is not None or self._memory.device != "cpu"):
            raise LoadError("a graph with past_state.* runs on the CPU, without one for prompts")
        self._states = [
            np.zeros((num_slots, *each.dims), each.datatype.dtype) for each in shape.states
        ]
        self._state_lengths = np.zeros(num_slots, np.int64)  # tokens that each slot's states are of
        # As many tokens of one row can have logits as a step has rows: they take the same memory.
        self.max_logits_per_row = (
            max(max_rows, MIN_LOGITS_PER_ROW) if self.shape.takes_option else 1
        )
        num_logits = max(max_rows, self.max_logits_per_row)
        self._on_host = session.inputs_on_host
        self._logits = LogitsMemory(
            self._memory, num_logits, self.shape.vocab_size, self.shape.num_candidates
        )
        self._bound: OrderedDict[tuple[int, int, int, bool], _Run] = OrderedDict()

    def copy(self, source: int, target: int, num_tokens: int, start: int = 0) -> None:
        """Copy a slot's keys and values of tokens `start` to `num_tokens` to another slot.

        States are copied whole, and so they must be of `num_tokens`. A slot whose sequence has not
        begun has those of another one, which are not copied.
        """
        if not num_tokens:
            return
        if self._buffers:
            self._memory.copy_rows(self._buffers, source, target, slice(start, num_tokens), axis=2)
        if self._states:
            assert self._state_lengths[source] == num_tokens, "states are not of these tokens"
            self._state_lengths[target] = num_tokens
        for state in self._states:
            state[target] = state[source]

    def prefix_memory(self, max_bytes: int) -> PrefixMemory | None:
        if self._states:
            return None
        return self._memory.prefixes(self._buffers, PIECE_TOKENS, max_bytes)

    def run(
        self,
        first_slot: int,
        rows: Sequence[np.ndarray],
        num_past: Sequence[int],
        num_logits: int = 1,
        places: Sequence[int] = (),
    ) -> StepLogits:
        """Logits [B, V], float32, of each row's last token, for slots `first_slot` and following.

        A row holds the ids of the slot's next tokens, `num_past` how many it has already. One row
        alone can have the logits of its last `num_logits` tokens, [num_logits, V]. `places` are
        those of the rows' adapters, 0 for none, and empty where no row has one. The result is
        overwritten by the next run. Raises `ModelFailed`.
        """
        assert num_logits == 1 or (len(rows) == 1 and num_logits <= self.max_logits_per_row)
        num_rows, num_tokens = len(rows), max(map(len, rows))
        if num_rows > 1 and (self.shape.takes_one_row or (self._states and num_tokens > 1)):
            return self._run_each(first_slot, rows, num_past, places)
        if self._prefill is not None and num_logits == 1:
            is_fresh = not any(num_past)
            if is_fresh and num_rows > 1 and self._continues and num_tokens > self.max_part:
                return self._run_each(first_slot, rows, num_past, places)
            goes_on = self._continues and num_rows == 1 and num_tokens >= MIN_CONTINUED
            if is_fresh or goes_on:
                return self._read_in_parts(self._prefill, first_slot, rows, num_past[0])
        has_adapters = any(places)
        key = (first_slot, num_rows, num_tokens, has_adapters)
        is_kept = num_tokens == max(1, num_logits)  # these come again and again
        run = self._bound.pop(key, None) if is_kept else None
        run = run or self._bind(*key, num_logits)
        if is_kept:
            self._bound[key] = run
            if len(self._bound) > MAX_BINDINGS:
                self._bound.popitem(last=False)
        run.fill(rows, np.array(num_past))
        if self._states:
            self._begin_states(first_slot, rows, num_past)
        if has_adapters:
            fill_mask(run.inputs.arrays[MASK], places)
        run.inputs.send()
        run.binding.run()
        return run.logits.read()

    def _begin_states(
        self, first_slot: int, rows: Sequence[np.ndarray], num_past: Sequence[int]
    ) -> None:
        """Zero the states of rows without a past, and count the tokens that a run adds."""
        for slot, (row, past) in enumerate(zip(rows, num_past, strict=True), start=first_slot):
            if not past:
                self._state_lengths[slot] = 0
                for state in self._states:
                    state[slot] = 0
            assert self._state_lengths[slot] == past, f"slot {slot} has states of other tokens"
            self._state_lengths[slot] += len(row)

    def _run_each(
        self,
        first_slot: int,
        rows: Sequence[np.ndarray],
        num_past: Sequence[int],
        places: Sequence[int],
    ) -> StepLogits:
        """Logits of rows that cannot share a run."""
        logits_BV = np.empty((len(rows), self.vocab_size), np.float32)
        for index, (row, past) in enumerate(zip(rows, num_past, strict=True)):
            own = places[index : index + 1]
            logits = self.run(first_slot + index, [row], [past], places=own)
            logits_BV[index] = logits.whole()[0]
        return StepLogits(logits_BV)

    def _read_in_parts(
        self, prefill: OnnxSession, first_slot: int, rows: Sequence[np.ndarray], num_past: int
    ) -> StepLogits:
        """Compute prompts, a long one in parts of which each goes on from those before."""
        if self._continues and len(rows) == 1:
            while len(rows[0]) > self.max_part:
                self._read(prefill, first_slot, [rows[0][: self.max_part]], num_past)
                rows, num_past = [rows[0][self.max_part :]], num_past + self.max_part
        return self._read(prefill, first_slot, rows, num_past)

    def _read(
        self, prefill: OnnxSession, first_slot: int, rows: Sequence[np.ndarray], num_past: int
    ) -> StepLogits:
        """Compute prompts, one behind a past or several without, and put them into their slots."""
        ends = np.cumsum([len(row) for row in rows]).tolist()
        presents = [present for _, present in self._names]
        inputs = padded(rows)
        if self._continues:
            slots = slice(first_slot, first_slot + len(rows))
            used = [buffer[slots, :, :num_past] for buffer in self._buffers]
            inputs[PAST] = np.concatenate(used, axis=1)
        logits_BV, *cached = prefill.run(inputs, ["logits", *presents])
        heads = (self.shape.num_kv_heads, self.shape.head_size)
        for buffer, cached_1ND in zip(self._buffers, cached, strict=True):
            parts = np.split(cached_1ND[0].reshape(-1, *heads), ends[:-1])
            for slot, part_SHDh in enumerate(parts, start=first_slot):
                end = num_past + len(part_SHDh)
                buffer[slot, :, num_past:end] = part_SHDh.transpose(1, 0, 2)
        logits = self._logits.bind(len(rows)).read()
        logits.whole()[:] = logits_BV
        return logits

    def _bind(
        self,
        first_slot: int,
        num_rows: int,
        num_tokens: int,
        has_adapters: bool,
        num_logits: int,
    ) -> "_Run":
        num_wanted = max(num_rows, num_logits)
        arrays: dict[str, np.ndarray] = {
            "input_ids": np.zeros((num_rows, num_tokens), np.int64),
            "position_ids": np.zeros((num_rows, num_tokens), np.int64),
            "seqlens_k": np.zeros(num_rows, np.int32),
            "total_sequence_length": np.zeros((), np.int32),
        }
        if self.shape.takes_option:
            arrays[POSITIONS] = np.zeros(num_wanted, np.int64)
        session, pasts = self._session, dict[str, Bound]()
        if has_adapters:
            assert self._adapted is not None, "places are of a graph with adapters"
            assert self.adapters is not None, "the same"
            arrays[MASK] = self.adapters.empty_mask(num_rows)
            session, pasts = self._adapted, dict(self.adapters.arrays)
        inputs = self._memory.inputs(arrays, self._on_host)
        logits = self._logits.bind(num_wanted)
        outputs: dict[str, Bound] = dict(logits.outputs)
        for (past, present), buffer in zip(self._names, self._buffers, strict=True):
            pasts[past] = outputs[present] = buffer[first_slot : first_slot + num_rows]
        states = zip(state_names(len(self._states)), self._states, strict=True)
        for (past, present), state in states:
            pasts[past] = outputs[present] = state[first_slot : first_slot + num_rows]
        for name, array in self._of_slots.items():
            pasts[name] = array[first_slot : first_slot + num_rows]
        binding = session.bind({**inputs.bound, **pasts}, outputs)
        return _Run(binding, inputs, logits)


@dataclass(frozen=True, slots=True)
class _Run:
    """A bound range of slots, and the small inputs that are written before each run."""

    binding: Binding
    inputs: Inputs
    logits: BoundLogits

    def fill(self, rows: Sequence[np.ndarray], num_past: np.ndarray) -> None:
        arrays = self.inputs.arrays
        ids_BS = arrays["input_ids"]
        num_rows, num_tokens = ids_BS.shape
        if num_tokens == 1:
            num_new: np.ndarray = np.ones(num_rows, np.int64)
            np.concatenate(rows, out=ids_BS[:, 0], casting="safe")
        else:
            num_new = np.array([len(row) for row in rows])
            for index, row in enumerate(rows):
                ids_BS[index, : len(row)] = row
        # Rows that are padded have no past, so no position is beyond the longest row's last.
        places_S = np.arange(num_tokens)
        np.add(num_past[:, None], places_S, out=arrays["position_ids"])
        arrays["seqlens_k"][:] = num_past + num_new - 1
        arrays["total_sequence_length"][()] = (num_past + num_new).max()
        if POSITIONS in arrays:
            wanted_N = arrays[POSITIONS]
            last_B = np.arange(num_rows) * num_tokens + num_new - 1
            wanted_N[:] = last_B + np.arange(1 - len(wanted_N) // num_rows, 1)


def padded(
    rows: Sequence[np.ndarray], pad_token_id: int = 0, num_tokens: int | None = None
) -> dict[str, np.ndarray]:
    """Rows of ids as one right-padded batch, int64 [B, S], by the names of `TEXT_INPUTS`.

    S is `num_tokens`, or the length of the longest row.
    """
    num_tokens = num_tokens or max(map(len, rows))
    mask_BS = np.arange(num_tokens) < np.array([[len(row)] for row in rows])
    ids_BS = np.full(mask_BS.shape, pad_token_id, np.int64)
    ids_BS[mask_BS] = np.concatenate(rows)
    return dict(zip(TEXT_INPUTS, (ids_BS, mask_BS.astype(np.int64)), strict=True))


def without(signature: Signature, names: Collection[str]) -> Signature:
    """A graph's tensors without inputs that are bound elsewhere."""
    return replace(
        signature, inputs=tuple(spec for spec in signature.inputs if spec.name not in names)
    )


def _adapter_buffers(signature: Signature, shape: DecoderShape) -> AdapterBuffers:
    """Buffers of a graph with adapters, or `LoadError` unless it is otherwise the decoder's."""
    adapters = AdapterShape.of(signature)
    own = DecoderShape.of(without(signature, adapters.input_names), SLOTS)
    if own != shape:
        raise LoadError(f"the graph with adapters is of {own}, the decoder's of {shape}")
    return AdapterBuffers(adapters)


def _check_prefill(signature: Signature, shape: DecoderShape) -> bool:
    """Whether it goes on from a past, as those exported by older versions do not.

    Raises `LoadError` unless it reads texts, and gives logits and what goes into the cache.
    """
    size = shape.num_kv_heads * shape.head_size
    expected: dict[str, _Tensor] = {n: (np.dtype(np.int64), (-1, -1)) for n in TEXT_INPUTS}
    expected["logits"] = (np.dtype(np.float32), (-1, shape.vocab_size))
    expected |= {
        name: (shape.cache_type.dtype, (1, -1, size)) for _, name in cache_names(shape.num_layers)
    }
    continues = any(spec.name == PAST for spec in signature.inputs)
    if continues:
        dims = (-1, 2 * shape.num_layers * shape.num_kv_heads, -1, shape.head_size)
        expected[PAST] = (shape.cache_type.dtype, dims)
    tensors = (*signature.inputs, *signature.outputs)
    present = {spec.name: (spec.datatype.dtype, spec.dims) for spec in tensors}
    for name in sorted(expected.keys() | present.keys()):
        one, other = (_described(each.get(name)) for each in (present, expected))
        if one != other:
            raise LoadError(f"the graph for prompts has '{name}' as {one}, expected {other}")
    return continues


def _described(tensor: _Tensor | None) -> str:
    return f"{tensor[0].name} {list(tensor[1])}" if tensor else "nothing"
