"""A decoder's graph over blocks must compute what PyTorch does; the CPU has no PagedAttention.

The graph is run in float32 by ONNX's reference evaluator, with the operator in NumPy. Prompts of
several lengths are packed into one run over scattered blocks, then one token and three tokens at
once follow each. It is compared with a network whose weights are rounded as the graph's are, so
that only the order of sums differs. Unverified on CUDA: docs/how-to/cuda.md.
"""
# ruff: noqa: N806 - suffixes are array layouts: S tokens, V vocabulary

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
import torch
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from export.checks import paged_attention
from export.checks.decoding import PROMPT_TOKENS, Row, random_rows
from export.errors import ExportError
from export.graphs.cached_decoder import DecoderNetwork
from export.graphs.graph import DTYPES
from export.graphs.paged_decoder import INPUTS
from export.graphs.widened import widened
from models.networks.llama import GroupedAttentionCore, Llama
from models.networks.ropes import Rope
from service.contract.manifest import Precision
from service.generation.decoders.shape import cache_names

MAX_ABS_ERROR = 1e-3  # of logits, as cached decoding in float32 is allowed
BLOCK_SIZE = 8  # the server's are larger; so a short row has several
# Inputs of the operator behind query, key and value.
CACHES_AND_LENGTHS = ("key_cache", "value_cache", "starts", "past_seqlens", "block_table")
LEFT_OUT = ("slot_mapping", "head_sink", "k_scale", "v_scale")
BOUNDS = "attention_metadata"
OTHERS = (
    *CACHES_AND_LENGTHS,
    *("cos_cache", "sin_cache", "slot_mapping", "head_sink", "q_norm_weight", "k_norm_weight"),
    *("k_scale", "v_scale", BOUNDS),
)
PARTS = (1, 3)  # tokens that follow the prompts, in one run each
Arrays = dict[str, np.ndarray]


class PagedAttention(OpRun):
    """The operator for the evaluator; queries, keys and values may come as one."""

    op_domain = "com.microsoft"

    def _run(
        self,
        query: np.ndarray,
        key: np.ndarray | None,
        value: np.ndarray | None,
        *others: np.ndarray | None,
        num_heads: int = 0,
        kv_num_heads: int = 0,
        scale: float = 0.0,
        do_rotary: int = 0,
        local_window_size: int = -1,
        softcap: float = 0.0,
        qk_norm_epsilon: float = 1e-6,
    ) -> tuple[np.ndarray, ...]:
        given = dict(zip(OTHERS, others, strict=True))
        key_cache, value_cache, starts, past, table, bounds = (
            _present(given, name) for name in (*CACHES_AND_LENGTHS, BOUNDS)
        )
        assert not any(given[name] is not None for name in LEFT_OUT), "no graph of ours has them"
        check_bounds(bounds, starts, past)
        if key is None or value is None:
            size = query.shape[1] // (num_heads + 2 * kv_num_heads)
            ends = np.cumsum([num_heads * size, kv_num_heads * size])
            query, key, value = np.split(query, ends, axis=1)
        attention = paged_attention.PagedAttention(
            num_heads,
            kv_num_heads,
            scale,
            do_rotary=bool(do_rotary),
            local_window_size=local_window_size,
            softcap=softcap,
            qk_norm_epsilon=qk_norm_epsilon,
        )
        of_queries, of_keys = given["q_norm_weight"], given["k_norm_weight"]
        context = attention(
            *(query, key, value, key_cache, value_cache, starts, past, table),
            given["cos_cache"],
            given["sin_cache"],
            norms=None if of_queries is None or of_keys is None else (of_queries, of_keys),
        )
        return context.astype(query.dtype), key_cache, value_cache


def _present(given: dict[str, np.ndarray | None], name: str) -> np.ndarray:
    value = given[name]
    assert value is not None, f"{name} is given"
    return value


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
        self, model: onnx.ModelProto, network: DecoderNetwork, num_blocks: int, block_size: int
    ) -> None:
        config = network.config
        self._evaluator = ReferenceEvaluator(widened(model), new_ops=[PagedAttention])
        sizes = (num_blocks, block_size, config.num_kv_heads, config.head_size)
        self._names = cache_names(config.num_layers)
        # What was never written must not be read: it would spoil every output.
        self.caches = {past: np.full(sizes, np.nan, np.float32) for past, _ in self._names}

    def __call__(self, inputs: Arrays) -> np.ndarray:
        """Logits [wanted, V]."""
        logits, *presents = self._evaluator.run(None, inputs | self.caches)
        for (past, _), present in zip(self._names, presents, strict=False):
            self.caches[past] = present
        return np.asarray(logits)


def check_paged(
    network: DecoderNetwork, model: onnx.ModelProto, precision: Precision
) -> dict[str, float]:
    """The largest difference of logits, or `ExportError` where it is too large."""
    config = network.config
    longest = config.max_positions
    rows = random_rows(config.vocab_size, [n + sum(PARTS) for n in PROMPT_TOKENS], longest)
    ends_of_parts = [np.cumsum([len(row) - sum(PARTS), *PARTS]) for row in rows]
    per_row = -(-longest // BLOCK_SIZE)
    table = np.random.default_rng(1).permutation(per_row * len(rows)).reshape(len(rows), -1)
    run = PagedRunner(model, network, table.size, BLOCK_SIZE)
    rounded = _rounded(network, DTYPES.get(precision, torch.float32))
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


@dataclass(frozen=True, slots=True)
class _RoundedRope:
    """A rope whose tables have the values that a type can hold."""

    rope: Rope
    dtype: torch.dtype

    def tables(
        self, num_positions: int, device: torch.device | None = None
    ) -> tuple[torch.Tensor, ...]:
        tables = self.rope.tables(num_positions, device)
        return tuple(table.to(self.dtype).float() for table in tables)


def _rounded(network: DecoderNetwork, dtype: torch.dtype) -> DecoderNetwork:
    """A copy whose weights, tables and factors have the values that a type can hold."""
    rounded = copy.deepcopy(network).to(dtype).float()
    if isinstance(rounded, Llama):
        scale, softcap = rounded.config.embedding_scale, rounded.config.final_softcap
        scale, softcap = torch.tensor([scale, softcap], dtype=dtype).tolist()
        rounded.config = replace(rounded.config, embedding_scale=scale, final_softcap=softcap)
    for module in rounded.modules():
        if isinstance(module, GroupedAttentionCore) and module.rope is not None:
            module.rope = _RoundedRope(module.rope, dtype)  # type: ignore[assignment]
    return rounded


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


def _torch_logits(network: DecoderNetwork, row: Row) -> np.ndarray:
    with torch.inference_mode():
        logits_SV: np.ndarray = network(torch.tensor([row]))[0].float().numpy()
    return logits_SV
