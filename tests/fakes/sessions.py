"""Stand-ins at the edges of the server: sessions, requests and model folders.

`FakeSession` and `FakeDecoder` compute something so simple that a test can say which answer
belongs to which question, and do on command what real sessions do at bad moments: take
long, raise, answer in the wrong shape. Waits in here are bounded by `PATIENCE_S`.
"""

import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE, WordLevel
from tokenizers.pre_tokenizers import ByteLevel, Whitespace
from tokenizers.processors import TemplateProcessing

from service.batching.request import Item, Request
from service.contract.adapter import ADAPTER_FILENAME, Adapter, Factors, to_bytes
from service.contract.manifest import Manifest
from service.contract.queue_policies import QueuePolicies, QueuePolicy
from service.contract.tensors import DATATYPES, Arrays, Signature, TensorSpec
from service.errors import LoadError, ModelFailed
from service.generation.cache.prefix_store import PIECE_TOKENS
from service.generation.decoders.adapter_buffers import AdapterBuffers, AdapterShape
from service.generation.decoders.decoder_interface import SlotDecoder
from service.generation.decoders.opening import CacheLimits
from service.generation.sequence import Vocabulary
from service.records import Observer, RanBatch, Timings
from service.repository.row_trials import TrialStop
from service.runtime.session import OnnxSession, RunStop, Session, SessionOptions

PATIENCE_S = 20.0  # how long a test waits for what must happen, on a busy machine
WORDS = ("win", "prize", "free", "cash", "lunch", "home", "later", "sorry", "now", "the", "a")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
LABELS = ("ham", "spam", "maybe")
PAD_ID, UNKNOWN_ID, FIRST_ID, LAST_ID = range(4)

END_ID = 256  # FakeDecoder's end of text, after the 256 bytes
FULL_STOP_ID = ord(".")
LETTER_IDS = tuple(range(ord("a"), ord("z") + 1))

Compute = Callable[[Arrays], dict[str, np.ndarray]]
T = TypeVar("T")


class Holdable(Generic[T]):
    """Runs on an engine's thread that wait on command, and then raise `error` where one is set.

    `calls` is what they were given.
    """

    def __init__(self) -> None:
        self.calls: list[T] = []
        self.error: Exception | None = None
        self._changed = threading.Condition()
        self._num_may_end = math.inf  # runs, counted from the first

    def enter(self, call: T, stopping: RunStop | None = None) -> None:
        """Note a run, and keep it waiting while it is held and not stopped."""
        stopping = stopping or RunStop()
        stopping.then(self._wake)
        with self._changed:
            self.calls.append(call)
            number = len(self.calls)
            self._changed.notify_all()
            may_end = self._changed.wait_for(
                lambda: number <= self._num_may_end or stopping.is_stopped, PATIENCE_S
            )
        assert may_end, "a held run was never released"

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def hold(self, after: int = 0) -> None:
        """Let runs start and none of them end, but for those that run now and `after` more."""
        with self._changed:
            self._num_may_end = len(self.calls) + after
            self._changed.notify_all()

    def release(self) -> None:
        with self._changed:
            self._num_may_end = math.inf
            self._changed.notify_all()

    def wait_for_runs(self, count: int) -> None:
        """Block until `count` runs have started since the start, or since `calls` was cleared."""
        with self._changed:
            has_started = self._changed.wait_for(lambda: len(self.calls) >= count, PATIENCE_S)
        assert has_started, f"{len(self.calls)} runs started, expected {count}"


class FakeSession(Holdable[Arrays]):
    """A session that computes `compute`, and can be held, made to fail, and asked what it saw.

    A run that is stopped raises, unless `is_deaf`: `num_stopped` did. Trials of its rows while it
    loads are neither held nor noted.
    """

    def __init__(self, signature: Signature, compute: Compute) -> None:
        super().__init__()
        self.signature = signature
        self.compute = compute
        self.is_deaf = False
        self.num_stopped = 0

    @property
    def batches(self) -> list[Arrays]:
        """What it was given, in order."""
        return self.calls

    def run(
        self, inputs: Arrays, outputs: Sequence[str], stopping: RunStop | None = None
    ) -> list[np.ndarray]:
        if isinstance(stopping, TrialStop):
            return [self.compute(inputs)[name] for name in outputs]
        stopping = stopping if stopping and not self.is_deaf else RunStop()
        self.enter(inputs, stopping)
        if stopping.is_stopped:
            self.num_stopped += 1
            raise ModelFailed("the run was stopped")
        if self.error is not None:
            raise self.error
        results = self.compute(inputs)
        return [results[name] for name in outputs]


@dataclass(frozen=True, slots=True)
class DecoderRun:
    """What a decoder was asked to compute: new ids by row, and how many each slot had."""

    first_slot: int
    rows: tuple[tuple[int, ...], ...]
    num_past: tuple[int, ...]
    places: tuple[int, ...] = ()  # of adapters, by row


ADAPTED = "layers.0.attention.query"  # the product that a fake decoder's adapters change


def shifting(shift: int, base: str = "writer") -> Adapter:
    """An adapter that a fake decoder takes."""
    return Adapter(base, {ADAPTED: Factors(np.ones((1, 1)), np.full((1, 1), float(shift)))})


def write_adapter(
    repository: Path, name: str, shift: int = 1, base: str = "tale", version: int = 1
) -> Path:
    """The folder of an adapter of a fake decoder."""
    folder = repository / name / str(version)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ADAPTER_FILENAME).write_bytes(to_bytes(shifting(shift, base)))
    return folder.parent


def adapted_id(token_id: int, shift: int) -> int:
    """What a fake decoder keeps of a token, with an adapter; the same where the shift is 0."""
    return token_id + 1000 * shift


SCRIPT_MARK = b"[a]"


class FakeDecoder(Holdable[DecoderRun], SlotDecoder):
    """A decoder of bytes: its favourite next token is `next_id` of all tokens in the slot.

    A cache that is wrong in any token or its place gives another answer. It refuses what ONNX
    Runtime's attention does not take, and with `has_states` a part of a slot. With an adapter of
    shift s, a slot has each token as `adapted_id(token, s)`.
    """

    def __init__(
        self, num_slots: int = 8, max_tokens: int = 64, vocab_size: int = 257, num_places: int = 0
    ) -> None:
        super().__init__()
        shape = AdapterShape(num_places, 1, {ADAPTED: (1, 1)})
        self.adapters = AdapterBuffers(shape) if num_places else None
        self.num_slots = num_slots
        self.max_tokens = max_tokens
        self.vocab_size = vocab_size
        self.max_logits_per_row = 8
        self.pads_prompts = True
        self.slots: list[list[int]] = [[] for _ in range(num_slots)]
        self.copies: list[tuple[int, int, int]] = []  # source, target, tokens
        self.script = b""  # what it says behind the last `[a]` of a prompt, if anything is set

    def copy(self, source: int, target: int, num_tokens: int, start: int = 0) -> None:
        assert num_tokens <= len(self.slots[source]), "copies what was never computed"
        is_whole = num_tokens in (0, len(self.slots[source]))
        assert is_whole or not self.has_states, "copies a part of a state"
        assert start <= len(self.slots[target]), "leaves a gap"
        self.copies.append((source, target, num_tokens))
        kept = self.slots[target][:start] if start else []
        self.slots[target] = kept + self.slots[source][start:num_tokens]

    def prefix_memory(self, max_bytes: int) -> "FakePieces | None":
        has_room = max_bytes >= PIECE_TOKENS and not self.has_states
        return FakePieces(self.slots, max_bytes) if has_room else None

    def run(
        self,
        first_slot: int,
        rows: Sequence[np.ndarray],
        num_past: Sequence[int],
        num_logits: int = 1,
        places: Sequence[int] = (),
    ) -> np.ndarray:
        ids = tuple(tuple(row.tolist()) for row in rows)
        self.enter(DecoderRun(first_slot, ids, tuple(num_past), tuple(places)))
        if self.error is not None:
            raise self.error
        ids = self._adapted(ids, places)
        is_decoding = all(len(row) == 1 for row in ids)
        assert is_decoding or len(ids) == 1 or not any(num_past), "no such step in ONNX Runtime"
        for slot, past in enumerate(num_past if self.has_states else (), first_slot):
            assert past in (0, len(self.slots[slot])), "goes on from a state of other tokens"
        if num_logits > 1:
            assert num_logits <= self.max_logits_per_row
            (row,), (past,) = ids, num_past
            ends = range(len(row) - num_logits + 1, len(row) + 1)
            return np.stack([self._logits_after(first_slot, row[:end], past) for end in ends])
        logits = [
            self._logits_after(slot, row, past)
            for slot, (row, past) in enumerate(zip(ids, num_past, strict=True), first_slot)
        ]
        return np.stack(logits)

    def _adapted(
        self, rows: tuple[tuple[int, ...], ...], places: Sequence[int]
    ) -> tuple[tuple[int, ...], ...]:
        if not places:
            return rows
        assert self.adapters is not None, "the decoder takes no adapters"
        of_places = self.adapters.arrays[f"lora.{ADAPTED}.B"][:, 0]
        shifts = [int(of_places[place - 1]) if place else 0 for place in places]
        return tuple(
            tuple(adapted_id(token, shift) for token in row)
            for row, shift in zip(rows, shifts, strict=True)
        )

    def _logits_after(self, slot: int, row: tuple[int, ...], num_past: int) -> np.ndarray:
        assert num_past <= len(self.slots[slot]), "continues what was never computed"
        self.slots[slot] = [*self.slots[slot][:num_past], *row]
        assert 1 <= len(self.slots[slot]) <= self.max_tokens, "beyond the buffers"
        if self.script:
            return self._scripted(bytes(self.slots[slot]))
        return next_logits(self.slots[slot], self.vocab_size)

    def _scripted(self, text: bytes) -> np.ndarray:
        num_said = len(text) - text.rindex(SCRIPT_MARK) - len(SCRIPT_MARK)
        logits = np.full(self.vocab_size, -40.0, np.float32)
        logits[self.script[num_said] if num_said < len(self.script) else END_ID] = 0.0
        return logits


class FakePieces:
    """Pieces of a fake decoder's slots: a token takes a byte."""

    piece_bytes = PIECE_TOKENS

    def __init__(self, slots: list[list[int]], max_bytes: int) -> None:
        self.num_places = max_bytes // PIECE_TOKENS
        self._slots = slots
        self.pieces: dict[int, list[int]] = {}  # by place

    def write(self, place: int, slot: int, start: int) -> None:
        assert start + PIECE_TOKENS <= len(self._slots[slot]), "keeps what was never computed"
        assert 0 <= place < self.num_places, "a place that there is not"
        self.pieces[place] = self._slots[slot][start : start + PIECE_TOKENS]

    def read(self, place: int, slot: int, start: int) -> None:
        assert start <= len(self._slots[slot]), "leaves a gap"
        self._slots[slot] = self._slots[slot][:start] + self.pieces[place]


def next_id(ids: Sequence[int]) -> int:
    """A small letter that depends on every id and its place; after a full stop, the end."""
    if ids[-1] == FULL_STOP_ID:
        return END_ID
    total = sum(place * token for place, token in enumerate(ids, start=1))
    # 31 divides no letter's byte, so that each one changes the sum.
    return LETTER_IDS[total % 31 % len(LETTER_IDS)]


def next_logits(ids: Sequence[int], vocab_size: int = 257) -> np.ndarray:
    """Float32 [V]: best for `next_id`, 1 less for each letter after it, around; little else."""
    logits = np.full(vocab_size, -40.0, np.float32)
    best = next_id(ids)
    if best == END_ID:
        logits[best] = 0.0
        return logits
    order = (np.array(LETTER_IDS) - best) % len(LETTER_IDS)
    logits[list(LETTER_IDS)] = -order
    return logits


def greedy_ids(prompt_ids: Sequence[int], num_tokens: int, shift: int = 0) -> list[int]:
    """What `FakeDecoder` continues a prompt with, the end included, at temperature 0.

    `shift` is of its adapter.
    """
    ids = list(prompt_ids)
    while len(ids) < len(prompt_ids) + num_tokens and ids[-1] != END_ID:
        ids.append(next_id([adapted_id(token_id, shift) for token_id in ids]))
    return ids[len(prompt_ids) :]


def greedy_text(prompt: str, num_tokens: int, shift: int = 0) -> str:
    """The same for text: a token is a byte."""
    ids = greedy_ids(prompt_ids(prompt), num_tokens, shift)
    return bytes(token for token in ids if token != END_ID).decode(errors="replace")


def prompt_ids(text: str) -> list[int]:
    """What `write_byte_tokenizer`'s tokenizer makes of a text."""
    return list(text.encode())


def byte_vocabulary() -> Vocabulary:
    """Token i is byte i, and `END_ID` ends a text."""
    return Vocabulary((*(bytes([value]) for value in range(256)), b""), (END_ID,))


def write_byte_tokenizer(path: Path) -> None:
    """A tokenizer of bytes in GPT-2's spelling, without merges, with one special token."""
    tokenizer = Tokenizer(BPE(_byte_spellings(), []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(path))


def _byte_spellings() -> dict[str, int]:
    """GPT-2's alphabet is in the order of its bytes, those that cannot be printed last."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted(set(range(256)) - set(printable))
    spellings = {chr(value): value for value in printable}
    return spellings | {chr(256 + place): value for place, value in enumerate(others)}


class FakeObserver(Observer):
    """Keeps the batches that ran."""

    def __init__(self) -> None:
        self.batches: list[RanBatch] = []

    def batch_ran(self, batch: RanBatch) -> None:
        self.batches.append(batch)


def spec(name: str, datatype: str, *dims: int) -> TensorSpec:
    """A tensor of a graph, whose first axis is that of all others where it is free."""
    return TensorSpec(
        name, DATATYPES[datatype], dims, first_axis="rows" if dims[:1] == (-1,) else ""
    )


def tensor_request(
    *values: float, lengths: Sequence[int] | None = None, deadline_s: float | None = None
) -> Request:
    """A request of one item per value, one row each: input `x`, float32 [1, 1]."""
    request = Request(Timings(0.0), deadline_s)
    request.items = tuple(
        Item(request, {"x": np.array([[value]], np.float32)}, 1, length)
        for value, length in zip(values, lengths or [1] * len(values), strict=True)
    )
    return request


def up_to(num_requests: int) -> QueuePolicies:
    """Policies under which `num_requests` may wait."""
    return QueuePolicies(QueuePolicy(num_requests))


def doubling_session() -> FakeSession:
    """`y` is twice `x`, row by row."""
    signature = Signature((spec("x", "FP32", -1, 1),), (spec("y", "FP32", -1, 1),))
    return FakeSession(signature, lambda inputs: {"y": inputs["x"] * 2})


def simple_session() -> FakeSession:
    """Triton's example model `simple`: the sum and the difference of two INT32 rows of 16."""
    names = ("INPUT0", "INPUT1"), ("OUTPUT0", "OUTPUT1")
    inputs, outputs = (tuple(spec(name, "INT32", -1, 16) for name in side) for side in names)

    def compute(inputs: Arrays) -> dict[str, np.ndarray]:
        first, second = inputs["INPUT0"], inputs["INPUT1"]
        return {"OUTPUT0": first + second, "OUTPUT1": first - second}

    return FakeSession(Signature(inputs, outputs), compute)


def strings_session() -> FakeSession:
    """A graph of strings: gives back what it takes, BYTES [-1, -1]."""
    signature = Signature((spec("IN", "BYTES", -1, -1),), (spec("OUT", "BYTES", -1, -1),))
    return FakeSession(signature, lambda inputs: {"OUT": inputs["IN"]})


def text_session(output: str, size: int) -> FakeSession:
    """A text model: value j of a row is `text_values(ids)[j]`, whatever it was padded to."""
    inputs = tuple(spec(name, "INT64", -1, -1) for name in ("input_ids", "attention_mask"))

    def compute(arrays: Arrays) -> dict[str, np.ndarray]:
        pairs = zip(arrays["input_ids"], arrays["attention_mask"], strict=True)
        rows = [text_values(row[mask == 1].tolist(), size) for row, mask in pairs]
        return {output: np.stack(rows)}

    return FakeSession(Signature(inputs, (spec(output, "FP32", -1, size),)), compute)


def text_values(ids: Sequence[int], size: int) -> np.ndarray:
    """What `text_session` answers for one text: depends on every id and its place."""
    total = sum(place * token for place, token in enumerate(ids, start=1))
    return np.array([total % (7 + index) / 4 for index in range(size)], np.float32)


def write_tokenizer(path: Path) -> None:
    """A tokenizer of whole words: [CLS] word word ... [SEP], and as many again of a pair."""
    vocabulary = {word: index for index, word in enumerate(SPECIAL + WORDS)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=SPECIAL[UNKNOWN_ID]))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", FIRST_ID), ("[SEP]", LAST_ID)],
    )
    tokenizer.save(str(path))


def token_ids(text: str) -> list[int]:
    """What `write_tokenizer`'s tokenizer makes of words that it knows or not."""
    known = {word: index for index, word in enumerate(SPECIAL + WORDS)}
    return [FIRST_ID, *(known.get(word, UNKNOWN_ID) for word in text.split()), LAST_ID]


def classifier_manifest(**changes: Any) -> Manifest:
    fields: dict[str, Any] = {"labels": LABELS, "max_tokens": 12, "pad_token_id": PAD_ID}
    return Manifest(task="text-classification", precision="fp32", **fields | changes)


def embedder_manifest(**changes: Any) -> Manifest:
    fields: dict[str, Any] = {"embedding_size": 4, "max_tokens": 12, "pad_token_id": PAD_ID}
    return Manifest(task="embedding", precision="fp32", **fields | changes)


def write_model(
    repository: Path,
    name: str,
    manifest: Manifest | None = None,
    config: str = "",
    version: int = 1,
) -> Path:
    """A model's folder with an empty graph: for sessions that open nothing."""
    folder = repository / name / str(version)
    folder.mkdir(parents=True)
    (folder / "model.onnx").touch()
    if config:
        (folder.parent / "config.pbtxt").write_text(config)
    if manifest is not None:
        (folder / "manifest.json").write_text(manifest.to_json())
        is_generative = manifest.task == "text-generation"
        write = write_byte_tokenizer if is_generative else write_tokenizer
        write(folder / "tokenizer.json")
    return folder.parent


class FakeSessions:
    """Opens sessions by the name of the model's folder; refuses those it does not know."""

    def __init__(self, **makers: Callable[[], FakeSession]) -> None:
        self._makers = makers
        self.opened: dict[str, list[FakeSession]] = {}
        self.options: list[SessionOptions] = []

    def __call__(self, path: Path, options: SessionOptions) -> FakeSession:
        name = path.parent.parent.name
        if name not in self._makers:
            raise LoadError(f"{path.name}: cannot be parsed")
        session = self._makers[name]()
        self.opened.setdefault(name, []).append(session)
        self.options.append(options)
        return session

    def __iter__(self) -> Iterator[FakeSession]:
        return chain.from_iterable(self.opened.values())

    def __getitem__(self, name: str) -> FakeSession:
        """The session of a model that has one."""
        (session,) = self.opened[name]
        return session


class RealSessions(FakeSessions):
    """Opens graphs as a server does, but for models that have a made-up session."""

    def __call__(self, path: Path, options: SessionOptions) -> Session:  # type: ignore[override]
        if path.parent.parent.name in self._makers:
            return super().__call__(path, options)
        return OnnxSession(path, options)


def generator_manifest(**changes: Any) -> Manifest:
    fields: dict[str, Any] = {
        "max_tokens": 64,
        "pad_token_id": END_ID,
        "eos_token_ids": (END_ID,),
        "example": "once upon a time",
    }
    return Manifest(task="text-generation", precision="fp32", **fields | changes)


class FakeDecoders:
    """Opens a `FakeDecoder` for every generative model, with the context that is asked for."""

    def __init__(self, num_slots: int = 8, num_places: int = 2) -> None:
        self._num_slots = num_slots
        self._num_places = num_places  # for adapters; 0: they take none
        self.opened: dict[str, FakeDecoder] = {}

    def __call__(self, path: Path, options: SessionOptions, limits: CacheLimits) -> FakeDecoder:
        decoder = FakeDecoder(self._num_slots, limits.max_tokens, num_places=self._num_places)
        self.opened[path.parent.parent.name] = decoder
        return decoder

    def __iter__(self) -> Iterator[FakeDecoder]:
        return iter(self.opened.values())

    def __getitem__(self, name: str) -> FakeDecoder:
        return self.opened[name]


def raw_manifest(**changes: Any) -> str:
    """A classifier's `manifest.json` with fields changed to what `Manifest` would refuse."""
    return json.dumps(json.loads(classifier_manifest().to_json()) | changes)
