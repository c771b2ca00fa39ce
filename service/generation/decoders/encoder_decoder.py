"""Serve a network of an encoder and a decoder as the engine's `Decoder`: the source is the prompt.

A sequence's tokens are its source's, n of them, then its output's. The run that takes the source
encodes it once, and keeps the keys and values that every layer of the decoder attends to beside
that layer's own cache, in the sequence's slot. From there on the decoder alone runs:

    tokens of the sequence     0 ... n-2   n-1    n          n+1
    position in the decoder                0      1          2
    what the decoder reads                 start  output[0]  output[1]

The source's last token stands for the one that starts every output, so that a source whose first
n - 1 tokens were copied from another slot goes on as any sequence does: with one token. Steps bind
ranges of slots, the kept keys and values too: nothing is copied per step.
"""
# ruff: noqa: N806 - suffixes are array layouts: B rows, S tokens of sources

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from service.contract.tensors import Datatype, Signature, TensorSpec
from service.errors import LoadError
from service.generation.choosing.step_logits import StepLogits
from service.generation.decoders.decoder import (
    MAX_SLOTS,
    SLOTS,
    TEXT_INPUTS,
    OnnxDecoder,
    padded,
    without,
)
from service.generation.decoders.decoder_interface import SlotDecoder
from service.generation.decoders.opening import SPIN_US, CacheLimits, memory_of, needing_memory
from service.generation.decoders.shape import DecoderShape, is_alike, is_stated
from service.generation.steps.scheduler import SchedulerLimits
from service.runtime.memory import HostMemory, Memory
from service.runtime.session import OnnxSession, SessionOptions

ENCODER_FILENAME = "encoder.onnx"  # beside the decoder, which is the model's graph
ENCODER_SUFFIX = ".encoder.onnx"  # of a variant's: beside model.fp16.onnx, model.fp16.encoder.onnx
SOURCE_LENGTHS = "source_lengths"


@dataclass(frozen=True, slots=True)
class SourceLimits:
    """The form of an encoder's sources, and the start token of outputs."""

    max_tokens: int  # of one source
    pad_token_id: int
    start_token_id: int


@dataclass(frozen=True, slots=True)
class CrossShape:
    """Sizes of what an encoder leaves for its decoder: a key and a value for each layer."""

    names: tuple[str, ...]
    num_heads: int
    head_size: int
    datatype: Datatype

    @classmethod
    def of(cls, encoder: Signature, decoder: Signature) -> "CrossShape":
        """Read from both graphs, or `LoadError` where one does not give what the other takes."""
        taken = {spec.name: spec for spec in decoder.inputs if spec.name.startswith("cross.")}
        outputs = {spec.name: spec for spec in encoder.outputs}
        inputs = {spec.name for spec in encoder.inputs}
        if inputs != {*TEXT_INPUTS}:
            raise LoadError(
                f"{ENCODER_FILENAME} takes {sorted(inputs)}, expected {' and '.join(TEXT_INPUTS)}"
            )
        if not taken or SOURCE_LENGTHS not in {spec.name for spec in decoder.inputs}:
            raise LoadError(
                f"the decoder of an encoder takes {SOURCE_LENGTHS} and cross.*.key and .value; the "
                f"graph takes {sorted(spec.name for spec in decoder.inputs)}"
            )
        if not taken.keys() <= outputs.keys():
            raise LoadError(
                f"{ENCODER_FILENAME} gives {sorted(outputs)}, and the decoder takes {sorted(taken)}"
            )
        own = DecoderShape.of(without(decoder, {*taken, SOURCE_LENGTHS}), SLOTS)
        if len(taken) != 2 * own.num_layers:
            raise LoadError(
                f"the decoder has {own.num_layers} layers, and takes keys and values of an encoder "
                f"for {len(taken) / 2:g}"
            )
        first = next(iter(taken.values()))
        for name in taken:
            _check_alike(taken[name], outputs[name], first)
        _, num_heads, _, head_size = first.dims
        return cls(tuple(taken), num_heads, head_size, first.datatype)

    def num_bytes(self, max_tokens: int) -> int:
        """Keys and values of every layer."""
        per_token = len(self.names) * self.num_heads * self.head_size
        return per_token * self.datatype.dtype.itemsize * max_tokens


def open_encoder_decoder(
    path: Path, options: SessionOptions, limits: CacheLimits, sources: SourceLimits
) -> "EncoderDecoder":
    """Load both graphs, with as many slots as the memory holds; `LoadError` where it holds none."""
    if limits.max_tokens <= sources.max_tokens:
        raise LoadError(
            f"max_context_tokens is {limits.max_tokens}, expected more than the "
            f"{sources.max_tokens} of the longest source: the output comes after it"
        )
    encoder_path = path.with_suffix(ENCODER_SUFFIX)
    if not encoder_path.is_file():
        encoder_path = path.with_name(ENCODER_FILENAME)
    if not encoder_path.is_file():
        raise LoadError(f"{ENCODER_FILENAME} is missing: the manifest says encoder-decoder")
    encoder = OnnxSession(encoder_path, options)
    decoder = OnnxSession(path, replace(options, spin_us=max(SPIN_US, options.spin_us)))
    cross = CrossShape.of(encoder.signature, decoder.signature)
    own = DecoderShape.of(without(decoder.signature, {*cross.names, SOURCE_LENGTHS}), SLOTS)
    slot_bytes = own.num_bytes(limits.max_tokens - sources.max_tokens)
    slot_bytes += cross.num_bytes(sources.max_tokens)
    num_slots = min(limits.max_bytes // slot_bytes, MAX_SLOTS)
    if not num_slots:
        raise LoadError(
            f"kv_cache_bytes is {limits.max_bytes}, but a sequence of {limits.max_tokens} tokens, "
            f"{sources.max_tokens} of them of a source, takes {slot_bytes}: raise it"
        )
    with needing_memory(path, options, num_slots * slot_bytes):
        return EncoderDecoder(
            encoder,
            decoder,
            sources,
            num_slots=num_slots,
            max_tokens=limits.max_tokens,
            max_rows=min(limits.max_rows, num_slots),
            memory=memory_of(options),
        )


class EncoderDecoder(SlotDecoder):
    """An encoder, and a decoder with a slot's source beside its cache: `[slots, H, T, Dh]` each."""

    def __init__(
        self,
        encoder: OnnxSession,
        decoder: OnnxSession,
        sources: SourceLimits,
        *,
        num_slots: int,
        max_tokens: int,
        max_rows: int,
        memory: Memory | None = None,
    ) -> None:
        """`max_tokens` are of source and output together."""
        memory = memory or HostMemory()
        self.num_slots = num_slots
        self.max_tokens = max_tokens
        self._encoder = encoder
        self._sources = sources
        shape = CrossShape.of(encoder.signature, decoder.signature)
        sizes = (num_slots, shape.num_heads, sources.max_tokens, shape.head_size)
        # Behind a source's length they are zero: what attention masks is multiplied all the same.
        self._cross: dict[str, Any] = {n: memory.zeros(sizes, shape.datatype) for n in shape.names}
        lengths = {SOURCE_LENGTHS: np.zeros(num_slots, np.int64)}
        self._sent = memory.inputs(lengths, decoder.inputs_on_host)
        self._lengths = self._sent.arrays[SOURCE_LENGTHS]  # of the slots' sources
        self._memory = memory
        self._start = np.array([sources.start_token_id], np.int32)
        self._decoder = OnnxDecoder(
            decoder,
            num_slots=num_slots,
            max_tokens=max_tokens - sources.max_tokens,
            max_rows=max_rows,
            by_slot={**self._sent.bound, **self._cross},
            memory=memory,
        )
        self.vocab_size = self._decoder.vocab_size

    def bounds(self, limits: SchedulerLimits) -> SchedulerLimits:
        """Limits that compute a source whole: its tokens depend on those after them.

        So no part of it is shared either.
        """
        return replace(
            super().bounds(limits),
            max_prefill_tokens=max(limits.max_prefill_tokens, self._sources.max_tokens),
            can_reuse_prefixes=False,
            has_whole_prompts=True,
        )

    def copy(self, source: int, target: int, num_tokens: int, start: int = 0) -> None:
        """Copy what a slot keeps of tokens `start` to `num_tokens`, its source whole."""
        num_source = int(self._lengths[source])
        if start < num_source:
            kept, num_before = list(self._cross.values()), int(self._lengths[target])
            tokens = slice(0, max(num_source, num_before))
            self._memory.copy_rows(kept, source, target, tokens, axis=2)
            self._lengths[target] = num_source
            self._sent.send()
        start, end = (max(0, index - num_source + 1) for index in (start, num_tokens))
        self._decoder.copy(source, target, end, start)

    def run(
        self,
        first_slot: int,
        rows: Sequence[np.ndarray],
        num_past: Sequence[int],
        num_logits: int = 1,
        places: Sequence[int] = (),
    ) -> StepLogits:
        """Logits [B, V], float32, of what follows each row, for slots `first_slot` and following.

        Rows are whole sources without a past, or one token each. The result is overwritten by the
        next run. Raises `ModelFailed`.
        """
        assert num_logits == 1, "there are no drafts"
        assert not any(places), "there are no adapters"
        if not any(num_past):
            self._encode(first_slot, rows)
        lengths_B = self._lengths[first_slot : first_slot + len(rows)]
        places_B = np.array(num_past) + [len(row) for row in rows] - lengths_B
        assert places_B.min() >= 0, "a part of a source"
        tokens = [row if place else self._start for row, place in zip(rows, places_B, strict=True)]
        return self._decoder.run(first_slot, tokens, places_B.tolist())

    def _encode(self, first_slot: int, rows: Sequence[np.ndarray]) -> None:
        """Put what the encoder makes of sources into their slots."""
        slots = slice(first_slot, first_slot + len(rows))
        inputs = padded(rows, self._sources.pad_token_id, self._sources.max_tokens)
        kept = {name: each[slots] for name, each in self._cross.items()}
        lengths, before = [len(ids) for ids in rows], self._lengths[slots].tolist()
        self._memory.run_rows(self._encoder, inputs, kept, lengths, before)
        self._lengths[slots] = lengths
        self._sent.send()


def _check_alike(taken: TensorSpec, output: TensorSpec, first: TensorSpec) -> None:
    """Raise `LoadError` unless an encoder gives what its decoder takes, the same in every layer."""
    for name, spec in (("the decoder", taken), (ENCODER_FILENAME, output)):
        if not is_stated(taken.dims, SLOTS.cache) or not is_alike(spec, first):
            raise LoadError(
                f"'{spec.name}' of {name} is {spec.datatype.config_name} {list(spec.dims)}, "
                f"expected [{', '.join(SLOTS.cache)}], the same in both graphs and in every layer"
            )
