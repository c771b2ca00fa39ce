"""A decoder's graph over blocks must compute what PyTorch does; the CPU has no PagedAttention.

The graph is run in float32 by ONNX's reference evaluator, with the operator in NumPy. Prompts of
several lengths are packed into one run over scattered blocks, then one token and three tokens at
once follow each. It is compared with a network whose weights are rounded as the graph's are, so
that only the order of sums differs. Unverified on CUDA: docs/cuda.md.
"""
# ruff: noqa: N806 - suffixes are array layouts: S tokens, V vocabulary

import copy
from collections.abc import Sequence

import numpy as np
import onnx
import torch
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from export.checks import paged_attention
from export.checks.decoding import PROMPT_TOKENS, Row, random_rows
from export.errors import ExportError
from export.graphs.graph import DTYPES
from export.graphs.paged_decoder import INPUTS
from export.graphs.widened import widened
from models.networks.gpt import GPT
from service.contract.manifest import Precision
from service.generation.decoder import cache_names

MAX_ABS_ERROR = 1e-3  # of logits, as cached decoding in float32 is allowed
BLOCK_SIZE = 8  # the server's are larger; so a short row has several
NUM_READ = 5  # inputs of the operator behind query, key and value: those that follow are left out
PARTS = (1, 3)  # tokens that follow the prompts, in one run each
Arrays = dict[str, np.ndarray]


class PagedAttention(OpRun):
    """The operator for the evaluator; query, key and value come as one."""

    op_domain = "com.microsoft"

    def _run(
        self,
        packed: np.ndarray,
        key: None,
        value: None,
        *others: np.ndarray | None,
        num_heads: int = 0,
        kv_num_heads: int = 0,
        scale: float = 0.0,
        **_: object,
    ) -> tuple[np.ndarray, ...]:
        assert key is value is None
        *caches_and_lengths, bounds = others
        key_cache, value_cache, starts, past, table = caches_and_lengths[:NUM_READ]
        assert key_cache is not None
        assert value_cache is not None
        assert starts is not None
        assert past is not None
        assert table is not None
        assert bounds is not None
        check_bounds(bounds, starts, past)
        size = packed.shape[1] // (num_heads + 2 * kv_num_heads)
        ends = np.cumsum([num_heads * size, kv_num_heads * size])
        query, keys, values = np.split(packed, ends, axis=1)
        attention = paged_attention.PagedAttention(num_heads, kv_num_heads, scale)
        context = attention(query, keys, values, key_cache, value_cache, starts, past, table)
        return context.astype(packed.dtype), key_cache, value_cache


def check_bounds(bounds: np.ndarray, starts: np.ndarray, past: np.ndarray) -> None:
    """Bounds of a run hold for it; the operator trusts them."""
    new = np.diff(starts)
    longest = (past + new).max()
    assert new.max() <= bounds[0], "a row has more new tokens than its bound says"
    assert longest <= bounds[1], "a row has more tokens than its bound says"
    assert bounds[2] <= longest, "the longest row has fewer tokens than its bound says"


class PagedRunner:
    """Runs a graph over blocks in float32, its caches kept between runs."""

    def __init__(
        self, model: onnx.ModelProto, network: GPT, num_blocks: int, block_size: int
    ) -> None:
        config = network.config
        self._evaluator = ReferenceEvaluator(widened(model), new_ops=[PagedAttention])
        sizes = (num_blocks, block_size, config.num_heads, config.head_size)
        self._names = cache_names(config.num_layers)
        # What was never written must not be read: it would spoil every output.
        self.caches = {past: np.full(sizes, np.nan, np.float32) for past, _ in self._names}

    def __call__(self, inputs: Arrays) -> np.ndarray:
        """Logits [wanted, V]."""
        logits, *presents = self._evaluator.run(None, inputs | self.caches)
        for (past, _), present in zip(self._names, presents, strict=False):
            self.caches[past] = present
        return np.asarray(logits)


def check_paged(network: GPT, model: onnx.ModelProto, precision: Precision) -> dict[str, float]:
    """The largest difference of logits, or `ExportError` where it is too large."""
    config = network.config
    longest = config.max_positions
    rows = random_rows(config.vocab_size, [n + sum(PARTS) for n in PROMPT_TOKENS], longest)
    ends_of_parts = [np.cumsum([len(row) - sum(PARTS), *PARTS]) for row in rows]
    per_row = -(-longest // BLOCK_SIZE)
    table = np.random.default_rng(1).permutation(per_row * len(rows)).reshape(len(rows), -1)
    run = PagedRunner(model, network, table.size, BLOCK_SIZE)
    rounded = copy.deepcopy(network).to(DTYPES.get(precision, torch.float32)).float()
    error, past = 0.0, np.zeros(len(rows), int)
    for part in range(1 + len(PARTS)):
        ends = np.array([ends[part] for ends in ends_of_parts])
        logits = run(_packed(rows, past, ends, table))
        expected = np.concatenate(
            [
                _torch_logits(rounded, row[:end])[start:]
                for row, start, end in zip(rows, past, ends, strict=True)
            ]
        )
        error = float(np.maximum(error, np.abs(logits - expected).max()))
        past = ends
    if not error <= MAX_ABS_ERROR:  # also where it is not a number
        raise ExportError(
            f"decoding over blocks differs from PyTorch by up to {error:.2e}, the limit is "
            f"{MAX_ABS_ERROR:g}"
        )
    return {"max_abs_error": float(f"{error:.2e}")}


def _packed(rows: Sequence[Row], past: np.ndarray, ends: np.ndarray, table: np.ndarray) -> Arrays:
    """The inputs of a run of the tokens from `past` to `ends`, all logits of which are wanted."""
    parts = [np.arange(start, end) for start, end in zip(past, ends, strict=True)]
    tokens = [np.array(row)[part] for row, part in zip(rows, parts, strict=True)]
    counts = np.append(0, np.cumsum(ends - past))
    arrays = (
        np.concatenate(tokens).astype(np.int64),
        np.concatenate(parts).astype(np.int64),
        counts.astype(np.int32),
        past.astype(np.int32),
        table.astype(np.int32),
        np.array([(ends - past).max(), ends.max(), ends.max()], np.int32),
        np.arange(counts[-1]),
    )
    return dict(zip(INPUTS, arrays, strict=True))


def _torch_logits(network: GPT, row: Row) -> np.ndarray:
    with torch.inference_mode():
        logits_SV: np.ndarray = network(torch.tensor([row]))[0].float().numpy()
    return logits_SV
