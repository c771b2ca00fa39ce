"""Stand-ins at the edges of the server: sessions, requests and model folders.

`FakeSession` computes something so simple that a test can say which answer belongs to
which question, and does on command what real sessions do at bad moments: take long,
raise, answer in the wrong shape. Waits in here are bounded by `PATIENCE_S`.
"""

import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from service.datatypes import DATATYPES
from service.errors import LoadError
from service.manifest import Manifest
from service.model_config import Signature, TensorSpec
from service.request import Arrays, Item, RanBatch, Request, Timings
from service.runtime import SessionOptions

PATIENCE_S = 20.0  # how long a test waits for what must happen, on a busy machine
WORDS = ("win", "prize", "free", "cash", "lunch", "home", "later", "sorry", "now", "the", "a")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
LABELS = ("ham", "spam", "maybe")
PAD_ID, UNKNOWN_ID, FIRST_ID, LAST_ID = range(4)

Compute = Callable[[Arrays], dict[str, np.ndarray]]


class FakeSession:
    """A session that computes `compute`, and can be held, made to fail, and asked what it saw."""

    def __init__(self, signature: Signature, compute: Compute) -> None:
        self.signature = signature
        self.compute = compute
        self.batches: list[Arrays] = []  # what it was given, in order
        self._changed = threading.Condition()
        self._num_may_end = math.inf  # runs, counted from the first

    def run(self, inputs: Arrays, outputs: Sequence[str]) -> list[np.ndarray]:
        with self._changed:
            self.batches.append(inputs)
            number = len(self.batches)
            self._changed.notify_all()
            may_end = self._changed.wait_for(lambda: number <= self._num_may_end, PATIENCE_S)
        assert may_end, "a held session was never released"
        results = self.compute(inputs)
        return [results[name] for name in outputs]

    def hold(self, after: int = 0) -> None:
        """Let runs start and none of them end, but for those that run now and `after` more."""
        with self._changed:
            self._num_may_end = len(self.batches) + after
            self._changed.notify_all()

    def release(self) -> None:
        with self._changed:
            self._num_may_end = math.inf
            self._changed.notify_all()

    def wait_for_runs(self, count: int) -> None:
        """Block until `count` runs have started since the session was made."""
        with self._changed:
            has_started = self._changed.wait_for(lambda: len(self.batches) >= count, PATIENCE_S)
        assert has_started, f"{len(self.batches)} runs started, expected {count}"


class FakeObserver:
    """Keeps the batches that ran."""

    def __init__(self) -> None:
        self.batches: list[RanBatch] = []

    def batch_ran(self, batch: RanBatch) -> None:
        self.batches.append(batch)


def spec(name: str, datatype: str, *dims: int) -> TensorSpec:
    return TensorSpec(name, DATATYPES[datatype], dims)


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
    """A tokenizer of whole words: [CLS] word word ... [SEP]."""
    vocabulary = {word: index for index, word in enumerate(SPECIAL + WORDS)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=SPECIAL[UNKNOWN_ID]))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", FIRST_ID), ("[SEP]", LAST_ID)]
    )
    tokenizer.save(str(path))


def token_ids(text: str) -> list[int]:
    """What `write_tokenizer`'s tokenizer makes of words that it knows or not."""
    known = {word: index for index, word in enumerate(SPECIAL + WORDS)}
    return [FIRST_ID, *(known.get(word, UNKNOWN_ID) for word in text.split()), LAST_ID]


def classifier_manifest(**changes: Any) -> Manifest:  # noqa: ANN401
    fields: dict[str, Any] = {"labels": LABELS, "max_tokens": 12, "pad_token_id": PAD_ID}
    return Manifest(task="text-classification", precision="fp32", **fields | changes)


def embedder_manifest(**changes: Any) -> Manifest:  # noqa: ANN401
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
        write_tokenizer(folder / "tokenizer.json")
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


def raw_manifest(**changes: Any) -> str:  # noqa: ANN401
    """A classifier's `manifest.json` with fields changed to what `Manifest` would refuse."""
    return json.dumps(json.loads(classifier_manifest().to_json()) | changes)
