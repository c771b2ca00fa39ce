"""Opens decoders over slots with as much cache as the memory of their device holds.

docs/how-to/cuda.md says what was verified on CUDA.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from service.errors import LoadError, ModelFailed
from service.generation.decoders.adapter_buffers import ADAPTERS_SUFFIX
from service.generation.decoders.decoder import MAX_SLOTS, PREFILL_SUFFIX, SLOTS, OnnxDecoder
from service.generation.decoders.shape import DecoderShape
from service.runtime.device_errors import megabytes, out_of_memory
from service.runtime.device_memory import DeviceMemory
from service.runtime.memory import HostMemory, Memory
from service.runtime.session import OnnxSession, SessionOptions, num_bytes_of
from service.runtime.shared_weights import SharedWeights

# A step is some hundred short operators: a thread that sleeps between two wakes up too late.
SPIN_US = 50


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """The bounds of a decoder's buffers."""

    max_tokens: int  # of one sequence
    max_rows: int  # of one run
    max_bytes: int


def open_beside(
    path: Path, suffix: str, options: SessionOptions, weights: SharedWeights | None = None
) -> OnnxSession | None:
    """A further graph of a decoder's, if there is one; a device has none.

    `weights` are the decoder's, which it shares.

    The graph for prompts saves their padding, which costs a processor more than putting their keys
    and values into slots does; the one with adapters runs where a row has one.
    """
    if options.device != "cpu":
        return None
    beside = path.with_suffix(suffix)
    return OnnxSession(beside, options, weights) if beside.is_file() else None


def open_decoder(path: Path, options: SessionOptions, limits: CacheLimits) -> "OnnxDecoder":
    """Load a graph, with as many slots as the memory holds; `LoadError` where it holds none."""
    options = replace(options, spin_us=max(SPIN_US, options.spin_us))
    session = OnnxSession(path, options)
    slot_bytes = DecoderShape.of(session.signature, SLOTS).num_bytes(limits.max_tokens)
    num_slots = min(limits.max_bytes // slot_bytes, MAX_SLOTS)
    if not num_slots:
        raise LoadError(
            f"kv_cache_bytes is {limits.max_bytes}, but one sequence of {limits.max_tokens} "
            f"tokens takes {slot_bytes}: raise it, or lower max_context_tokens"
        )
    with needing_memory(path, options, num_slots * slot_bytes):
        return OnnxDecoder(
            session,
            num_slots=num_slots,
            max_tokens=limits.max_tokens,
            max_rows=min(limits.max_rows, num_slots),
            prefill=open_beside(path, PREFILL_SUFFIX, options, session.weights),
            adapted=open_beside(path, ADAPTERS_SUFFIX, options, session.weights),
            memory=memory_of(options),
        )


@contextmanager
def needing_memory(path: Path, options: SessionOptions, cache_bytes: int) -> Iterator[None]:
    """Raise `LoadError` with what a decoder needs, where its device has too little memory."""
    try:
        yield
    except ModelFailed as error:
        needed = megabytes(num_bytes_of(path))
        purpose = f"the graph's files have {needed}, the KV cache takes {megabytes(cache_bytes)}"
        raise LoadError(out_of_memory(options.device, purpose, str(error))) from error


def memory_of(options: SessionOptions) -> Memory:
    """The memory of the device that a session runs on. Raises `LoadError`."""
    if options.device == "cpu":
        return HostMemory()
    return DeviceMemory(options.device, options.device_id)
