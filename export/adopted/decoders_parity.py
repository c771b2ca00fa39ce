"""Whether a decoder over slots computes what the graph that it was made of computes.

The graph as it was runs first, one row at a time from an empty past: its greedy tokens and their
logits are kept, and its session ends before the other one opens. Then the same tokens go through
the server's own decoder: all rows together, in slots that nothing used and in slots that others
did, a row alone, and a long prompt in chunks. By ONNX Runtime alone.
"""
# ruff: noqa: N806 - suffixes are array layouts: S tokens, V vocabulary

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from export.adopted.decoders_ends import BRANCH, IDS, LOGITS, MASK, POSITIONS, Ends
from export.errors import ExportError, reason_of_runtime
from service.errors import LoadError, ModelFailed
from service.generation.decoders.decoder import OnnxDecoder
from service.generation.decoders.shape import cache_names
from service.runtime.cpus import available_cpus
from service.runtime.session import OnnxSession, SessionOptions

PROMPT_TOKENS = (1, 5, 12, 30)
ALONE = 2  # the prompt that is run alone too
NUM_STEPS = 12
LONG_TOKENS, CHUNK_TOKENS = 40, 16
MAX_WINDOW = 1024  # tokens that a network looks back, up to which the long prompt goes beyond them
BEYOND_WINDOW = 8
# Of the largest logit of a step, by what a graph computes in. Random networks of two to sixteen
# layers differ by 1e-6 to 3e-6 in float32, and by 4e-4 to 1e-3 in float16.
LIMITS: Mapping[str, float] = {"float32": 1e-5, "float16": 1e-2}
# Where products round activations, a chunk may be rounded by a scale of its own: up to 0.08 on
# random networks. A wrong mask or position moves logits by 0.3 and more.
CHUNK_LIMIT = 0.2

Row = list[int]


@dataclass(frozen=True, slots=True)
class Greedy:
    """Prompts, the tokens that the graph as it was continues them with, and its logits."""

    prompts: Sequence[Row]
    tokens: Sequence[Row]
    logits: Sequence[np.ndarray]  # float32 [steps, vocabulary] of each prompt
    long: Row  # a prompt for chunks
    long_logits: np.ndarray  # float32 [vocabulary] of its last token


@dataclass(frozen=True, slots=True)
class Differences:
    """The largest differences of logits, in parts of the largest one, and equal greedy tokens."""

    together: float
    used_slots: float
    alone: float
    chunks: float
    same_tokens: int
    num_tokens: int

    @property
    def of_rows(self) -> float:
        return max(self.together, self.used_slots, self.alone)

    def to_dict(self) -> dict[str, float]:
        """Rounded, for a manifest."""
        return {name: float(f"{value:.2g}") for name, value in asdict(self).items()}


def greedy(path: Path, ends: Ends, max_tokens: int, window: int = 0) -> Greedy:
    """Greedy tokens and logits of a graph as it was, after prompts. Raises `ExportError`.

    `max_tokens` are of its longest text, and `window` is how many tokens its network looks back, 0
    for all.
    """
    random = np.random.default_rng(0)
    num_long = max(LONG_TOKENS, window + BEYOND_WINDOW if window <= MAX_WINDOW else 0)
    sizes = (*(min(size, max_tokens - NUM_STEPS) for size in PROMPT_TOKENS), num_long)
    *prompts, long = (
        random.integers(0, ends.vocab_size, max(1, min(size, max_tokens))).tolist()
        for size in sizes
    )
    try:
        original = _Original(OnnxSession(path, _options()), ends)
        runs = [original.continued(prompt, NUM_STEPS) for prompt in prompts]
        _, (long_logits,) = original.continued(long, 1)
    except (LoadError, ModelFailed) as error:
        reason = reason_of_runtime(error)
        raise ExportError(f"{path.name} does not run as it is: {reason}") from error
    tokens, logits = zip(*runs, strict=True)
    return Greedy(prompts, tokens, logits, long, long_logits)


def differences(path: Path, expected: Greedy) -> Differences:
    """The differences of a decoder over slots. Raises `ExportError` where it does not run."""
    num_rows = len(expected.prompts)
    longest = max(map(len, expected.prompts)) + NUM_STEPS
    try:
        decoder = OnnxDecoder(
            OnnxSession(path, _options()),
            num_slots=num_rows + 1,
            max_tokens=max(longest, len(expected.long)),
            max_rows=num_rows,
        )
        together = _rerun(decoder, expected, range(num_rows), 0)
        used = _rerun(decoder, expected, range(num_rows), 1)
        alone = _rerun(decoder, expected, [ALONE], 0)
        chunks = _in_chunks(decoder, expected.long)
    except (LoadError, ModelFailed) as error:
        reason = reason_of_runtime(error)
        raise ExportError(f"the graph does not run over slots: {reason}") from error
    same = sum(
        int((rows.argmax(axis=-1) == np.array(tokens)).sum())
        for rows, tokens in zip(together, expected.tokens, strict=True)
    )
    return Differences(
        _largest(together, expected.logits),
        _largest(used, expected.logits),
        _largest(alone, expected.logits[ALONE : ALONE + 1]),
        _largest([chunks], [expected.long_logits[None]]),
        same,
        num_rows * NUM_STEPS,
    )


def _options() -> SessionOptions:
    return SessionOptions(num_threads=available_cpus())


def _largest(observed: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """The largest difference, in parts of the largest logit of its step; infinite for no number."""
    shares = [
        np.abs(one - other).max(axis=-1) / np.maximum(np.abs(other).max(axis=-1), 1e-9)
        for one, other in zip(observed, expected, strict=True)
    ]
    return max(float(np.nan_to_num(share, nan=np.inf).max()) for share in shares)


class _Original:
    """A graph as it was: a past goes in, and comes out longer."""

    def __init__(self, session: OnnxSession, ends: Ends) -> None:
        self._session = session
        self._ends = ends
        self._names = {ours: value.name for ours, value in ends.tensors.items()}
        self._dtypes = {spec.name: spec.datatype.dtype for spec in session.signature.inputs}

    def continued(self, prompt: Row, num_steps: int) -> tuple[Row, np.ndarray]:
        """The greedy tokens after a prompt, and their logits [steps, vocabulary]."""
        ends, names = self._ends, cache_names(self._ends.num_layers)
        size = (1, ends.num_heads, 0, ends.head_size)
        caches: list[np.ndarray] = [
            np.zeros(size, self._dtypes[self._names[past]]) for past, _ in names
        ]
        outputs = [self._names[name] for name in (LOGITS, *(present for _, present in names))]
        new, tokens, logits = prompt, Row(), list[np.ndarray]()
        for _ in range(num_steps):
            num_past = caches[0].shape[2]
            pasts = [self._names[past] for past, _ in names]
            given = self._given(new, num_past) | dict(zip(pasts, caches, strict=True))
            rows_1SV, *caches = self._session.run(given, outputs)
            logits.append(rows_1SV[0, -1].astype(np.float32))
            tokens.append(int(logits[-1].argmax()))
            new = tokens[-1:]
        return tokens, np.array(logits)

    def _given(self, new: Row, num_past: int) -> dict[str, np.ndarray]:
        end = num_past + len(new)
        values = {
            IDS: np.array([new]),
            POSITIONS: np.arange(num_past, end)[None],
            MASK: np.ones((1, end)),
        }
        given = {
            name: values[ours].astype(self._dtypes[name])
            for ours, name in self._names.items()
            if ours in values
        }
        given |= dict(self._ends.constants)
        if BRANCH in given:
            given[BRANCH] = np.array([num_past > 0])
        return given


def _rerun(
    decoder: OnnxDecoder, expected: Greedy, rows: Sequence[int], first_slot: int
) -> list[np.ndarray]:
    """Logits [steps, vocabulary] of each row, after the same tokens."""
    new = [np.array(expected.prompts[row], np.int32) for row in rows]
    num_past = [0] * len(rows)
    steps = []
    for step in range(NUM_STEPS):
        steps.append(decoder.run(first_slot, new, num_past).whole().copy())
        num_past = [past + len(row) for past, row in zip(num_past, new, strict=True)]
        new = [np.array([expected.tokens[row][step]], np.int32) for row in rows]
    return [*np.array(steps).swapaxes(0, 1)]


def _in_chunks(decoder: OnnxDecoder, long: Row) -> np.ndarray:
    """Logits [1, vocabulary] of the last token of a prompt that is computed in parts."""
    for start in range(0, len(long), CHUNK_TOKENS):
        part = np.array(long[start : start + CHUNK_TOKENS], np.int32)
        logits = decoder.run(1, [part], [start])
    return logits.whole()
