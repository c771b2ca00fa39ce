"""Slots, addresses and bindings of the decoder, over a graph of one attention made by hand.

The graph's queries, keys and values are a token's vector plus its position's, and the result of
attention is given back as logits: numpy computes the same in three lines.
"""
# ruff: noqa: N806 - suffixes are array layouts: S tokens, H heads, h head size

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from service.contract.tensors import DATATYPES, Signature, TensorSpec
from service.errors import LoadError
from service.generation.decoders.decoder import (
    INPUTS,
    MAX_BINDINGS,
    MAX_SLOTS,
    SLOTS,
    OnnxDecoder,
)
from service.generation.decoders.opening import SPIN_US, CacheLimits, open_decoder
from service.generation.decoders.shape import DecoderShape
from service.runtime.device_memory import DeviceMemory
from service.runtime.session import OnnxSession, SessionOptions
from tests.fakes.sessions import spec

NUM_HEADS, HEAD_SIZE = 2, 8
SIZE = NUM_HEADS * HEAD_SIZE  # of a vector, and of the vocabulary: logits are vectors
MAX_TOKENS = 12
SLOT_BYTES = 2 * 1 * NUM_HEADS * HEAD_SIZE * 4 * MAX_TOKENS  # one layer in float32: 1,536
CACHE = ("past_key_values.0.key", "past_key_values.0.value")
OPTIONS = SessionOptions()
Shape = Sequence[str | int]
RANDOM = np.random.default_rng(0)
WORDS = RANDOM.normal(size=(SIZE, SIZE)).astype(np.float32)
POSITIONS = RANDOM.normal(size=(MAX_TOKENS, SIZE)).astype(np.float32)


def graph(*, takes_positions: bool = False, num_candidates: int = 0) -> bytes:
    """Token and position vectors, attention with a cache, and of that each row's last token.

    Or the tokens that are asked for. `num_candidates` of a row are given apart.
    """
    attended = ["attended", "present.0.key", "present.0.value"]
    taken = ["hidden", "hidden", "hidden", *CACHE, "seqlens_k", "total_sequence_length"]
    nodes = [
        helper.make_node("Gather", ["words", "input_ids"], ["word"]),
        helper.make_node("Gather", ["positions", "position_ids"], ["position"]),
        helper.make_node("Add", ["word", "position"], ["hidden"]),
        helper.make_node(
            "GroupQueryAttention",
            taken,
            attended,
            domain="com.microsoft",
            num_heads=NUM_HEADS,
            kv_num_heads=NUM_HEADS,
        ),
        helper.make_node("Cast", ["seqlens_k"], ["last_place"], to=TensorProto.INT64),
        helper.make_node("Gather", ["position_ids", "zero"], ["first_place"], axis=1),
        helper.make_node("Sub", ["last_place", "first_place"], ["last"]),
        helper.make_node("Unsqueeze", ["last", "one"], ["index"]),
        helper.make_node("GatherND", ["attended", "index"], ["logits"], batch_dims=1),
    ]
    if takes_positions:
        nodes[4:] = [
            helper.make_node("Reshape", ["attended", "flat"], ["tokens"]),
            helper.make_node("Gather", ["tokens", "logit_positions"], ["logits"]),
        ]
    cache: Shape = ["batch", NUM_HEADS, "cache", HEAD_SIZE]
    wanted = _tensor("logit_positions", TensorProto.INT64, ["wanted"])
    inputs = [
        *([wanted] if takes_positions else []),
        *(_tensor(name, TensorProto.INT64, ["batch", "tokens"]) for name in INPUTS[:2]),
        _tensor("seqlens_k", TensorProto.INT32, ["batch"]),
        _tensor("total_sequence_length", TensorProto.INT32, []),
        *(_tensor(name, TensorProto.FLOAT, cache) for name in CACHE),
    ]
    outputs = [
        _tensor("logits", TensorProto.FLOAT, ["batch", SIZE]),
        *(_tensor(name, TensorProto.FLOAT, cache) for name in attended[1:]),
    ]
    if num_candidates:
        nodes += [
            helper.make_node("TopK", ["logits", "count"], ["top_logits", "top_ids"]),
            helper.make_node("ReduceLogSumExp", ["logits", "one"], ["log_sum"], keepdims=0),
        ]
        best: Shape = ["batch", num_candidates]
        outputs += [
            _tensor("top_logits", TensorProto.FLOAT, best),
            _tensor("top_ids", TensorProto.INT64, best),
            _tensor("log_sum", TensorProto.FLOAT, ["batch"]),
        ]
    constants = [
        numpy_helper.from_array(np.array([num_candidates], np.int64), "count"),
        numpy_helper.from_array(WORDS, "words"),
        numpy_helper.from_array(POSITIONS, "positions"),
        numpy_helper.from_array(np.array(0, np.int64), "zero"),
        numpy_helper.from_array(np.array([-1, SIZE], np.int64), "flat"),
        numpy_helper.from_array(np.array([1], np.int64), "one"),
    ]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_graph(nodes, "one attention", inputs, outputs, constants)
    return helper.make_model(made, opset_imports=opsets, ir_version=10).SerializeToString()


def _tensor(name: str, kind: int, shape: Shape) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def attended(ids: Sequence[int]) -> np.ndarray:
    """What the graph computes for the last of these tokens."""
    hidden_SHh = (WORDS[list(ids)] + POSITIONS[: len(ids)]).reshape(-1, NUM_HEADS, HEAD_SIZE)
    scores_HS = np.einsum("shd,hd->hs", hidden_SHh, hidden_SHh[-1]) / np.sqrt(HEAD_SIZE)
    weights_HS = np.exp(scores_HS - scores_HS.max(axis=1, keepdims=True))
    weights_HS /= weights_HS.sum(axis=1, keepdims=True)
    attended_Hh: np.ndarray = np.einsum("hs,shd->hd", weights_HS, hidden_SHh)
    return attended_Hh.reshape(-1)


def make_decoder(
    num_slots: int = 6,
    *,
    takes_positions: bool = False,
    num_candidates: int = 0,
    memory: DeviceMemory | None = None,
) -> OnnxDecoder:
    made = graph(takes_positions=takes_positions, num_candidates=num_candidates)
    session = OnnxSession(made, OPTIONS)
    return OnnxDecoder(
        session, num_slots=num_slots, max_tokens=MAX_TOKENS, max_rows=num_slots, memory=memory
    )


def run(
    decoder: OnnxDecoder, first_slot: int, rows: Sequence[Sequence[int]], num_past: Sequence[int]
) -> np.ndarray:
    return decoder.run(first_slot, [np.array(row) for row in rows], num_past).whole().copy()


def rows_of(decoder: OnnxDecoder) -> np.ndarray:
    """The memory of logits."""
    rows = decoder._logits.rows
    assert isinstance(rows, np.ndarray)
    return rows


def check(found: np.ndarray, sequences: Sequence[Sequence[int]]) -> None:
    wanted = np.stack([attended(ids) for ids in sequences])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


@pytest.fixture(params=[False, True], ids=["last", "positions"])
def decoder(request: pytest.FixtureRequest) -> OnnxDecoder:
    """Over a graph that gives each row's last logits, and over one that is told which."""
    return make_decoder(takes_positions=request.param)


@pytest.fixture(params=["last", "positions", "last on device", "positions on device"])
def either(request: pytest.FixtureRequest) -> OnnxDecoder:
    """The same, and over memory that is taken for a device's."""
    memory = DeviceMemory("cpu") if "device" in request.param else None
    return make_decoder(takes_positions="positions" in request.param, memory=memory)


# --- what a run computes --------------------------------------------------------------------------


def test_prompts_of_any_length_then_tokens(either: OnnxDecoder) -> None:
    """Prompts of 1, 5 and 3 tokens in slots 2 to 4; then 7 tokens each, one by one."""
    rows = [[3], [1, 4, 1, 5, 9], [2, 6, 5]]
    check(run(either, 2, rows, [0, 0, 0]), rows)
    for token in range(7):
        past = [len(row) for row in rows]
        rows = [[*row, token + place] for place, row in enumerate(rows)]
        check(run(either, 2, [row[-1:] for row in rows], past), rows)
    assert max(map(len, rows)) == MAX_TOKENS


def test_prompt_of_one_token_is_a_prompt(either: OnnxDecoder) -> None:
    """In a slot that is full, in the same step as one that is decoding."""
    full = [5] * MAX_TOKENS
    run(either, 0, [full[:-1], full], [0, 0])
    check(run(either, 0, [[5], [7]], [MAX_TOKENS - 1, 0]), [full, [7]])


def test_sequence_fills_its_slot_to_the_last_place(either: OnnxDecoder) -> None:
    """12 of 12 tokens: at once, in the last chunk, and as the last token."""
    ids = list(range(MAX_TOKENS))
    check(run(either, 5, [ids], [0]), [ids])
    run(either, 5, [ids[:7]], [0])
    check(run(either, 5, [ids[7:]], [7]), [ids])
    check(run(either, 5, [ids[11:]], [11]), [ids])


def test_padding_may_reach_to_the_last_place(either: OnnxDecoder) -> None:
    """A row of one token beside one of 12, which is all there are positions for; both are right."""
    rows = [[8], list(range(MAX_TOKENS))]
    check(run(either, 0, rows, [0, 0]), rows)


def test_logits_are_overwritten_by_the_next_run(decoder: OnnxDecoder) -> None:
    """One array for all runs, with as many rows as the run had."""
    first = decoder.run(0, [np.array([1]), np.array([2])], [0, 0]).whole()
    assert first.shape == (2, SIZE)
    second = decoder.run(3, [np.array([3])], [0]).whole()
    assert second.shape == (1, SIZE)
    assert np.shares_memory(first, second)
    check(first[:1], [[3]])


def test_copied_tokens_stand_for_computed_ones(either: OnnxDecoder) -> None:
    """4 of 6 tokens; the target goes on by itself, and the source is as it was."""
    ids = [3, 1, 4, 1, 5, 9]
    run(either, 4, [ids], [0])
    either.copy(4, 1, 4)
    check(run(either, 1, [[2, 6]], [4]), [[3, 1, 4, 1, 2, 6]])
    check(run(either, 4, [[8]], [6]), [[*ids, 8]])


@pytest.mark.parametrize("memory", [None, DeviceMemory("cpu")], ids=["host", "device"])
def test_one_row_has_the_logits_of_several_tokens(memory: DeviceMemory | None) -> None:
    """4 of 6 tokens after a past of 3, beside a used slot; the run after it has one again."""
    decoder = make_decoder(takes_positions=True, memory=memory)
    ids = [3, 1, 4, 1, 5, 9, 2, 6, 5]
    run(decoder, 2, [ids[:3], [7, 7]], [0, 0])
    for _ in range(2):  # as when what was computed is given back and computed anew
        found = decoder.run(2, [np.array(ids[3:])], [3], num_logits=4).whole().copy()
        check(found, [ids[:end] for end in range(6, 10)])
    check(run(decoder, 2, [[8]], [5]), [[*ids[:5], 8]])
    check(run(decoder, 3, [[9]], [2]), [[7, 7, 9]])


def test_a_graph_that_gives_the_last_logits_gives_no_others() -> None:
    assert make_decoder().max_logits_per_row == 1
    assert make_decoder(takes_positions=True).max_logits_per_row > 1


def test_a_device_sends_candidates_and_the_rows_that_are_asked_for() -> None:
    """The 4 best of 16 logits, in the order of their ids, and one whole row of two."""
    decoder = make_decoder(num_candidates=4, memory=DeviceMemory("cpu"))
    rows = [[3, 1, 4], [1, 5]]
    logits = decoder.run(2, [np.array(row) for row in rows], [0, 0])
    assert logits.candidates is not None
    candidates = logits.candidates.by_id()
    for index, row in enumerate(rows):
        wanted = attended(row)
        best = np.sort(np.argsort(-wanted)[:4])
        assert candidates.ids[index].tolist() == best.tolist()
        np.testing.assert_allclose(candidates.logits[index], wanted[best], atol=1e-5)
        assert candidates.log_sums[index] == pytest.approx(np.log(np.exp(wanted).sum()), abs=1e-5)
    check(np.stack(logits.whole_rows([1])), rows[1:])
    assert candidates.vocab_size == SIZE


def test_in_the_host_s_memory_there_are_no_candidates() -> None:
    """Whole rows are at hand, whatever the graph gives besides."""
    decoder = make_decoder(num_candidates=4)
    assert decoder.run(0, [np.array([1])], [0]).candidates is None


# --- where it is computed -------------------------------------------------------------------------


def test_cache_is_written_in_place_and_nothing_grows(decoder: OnnxDecoder) -> None:
    """Past and present of a run are one address within the buffers made at the start."""
    buffers = decoder._buffers
    assert sum(buffer.nbytes for buffer in buffers) == 6 * SLOT_BYTES
    for place in range(MAX_TOKENS):
        run(decoder, 2, [[place], [place]], [place, place])
    (bound,) = decoder._bound.values()
    outputs = bound.binding._binding.get_outputs()
    addresses = [buffer[2:].ctypes.data for buffer in buffers]
    assert [value.data_ptr() for value in outputs] == [rows_of(decoder).ctypes.data, *addresses]
    assert decoder._buffers is buffers
    for buffer in buffers:
        assert buffer[2:4].all()
        np.testing.assert_allclose(
            buffer[2].swapaxes(0, 1).reshape(MAX_TOKENS, SIZE), WORDS[:MAX_TOKENS] + POSITIONS
        )


@pytest.mark.parametrize("num_tokens", [1, 5, MAX_TOKENS])
def test_slots_outside_the_range_stay_as_they_were(num_tokens: int, decoder: OnnxDecoder) -> None:
    """Bytes of slots 0, 1, 4 and 5 while 2 and 3 are prefilled and decoded."""
    rng = np.random.default_rng(1)
    for buffer in decoder._buffers:
        buffer[:] = rng.normal(size=buffer.shape)
    outside = [0, 1, 4, 5]
    before = [buffer[outside].tobytes() for buffer in decoder._buffers]
    run(decoder, 2, [[1] * num_tokens, [2]], [0, 0])
    run(decoder, 2, [[3], [4]], [min(num_tokens, MAX_TOKENS - 1), 1])
    assert [buffer[outside].tobytes() for buffer in decoder._buffers] == before


def test_step_writes_one_place_of_each_row(decoder: OnnxDecoder) -> None:
    """What a slot had before, and what another used behind it, is not touched."""
    run(decoder, 0, [[1] * MAX_TOKENS] * 2, [0, 0])
    before = [buffer.copy() for buffer in decoder._buffers]
    run(decoder, 0, [[2], [3]], [4, 9])
    for buffer, old in zip(decoder._buffers, before, strict=True):
        changed = np.argwhere((buffer != old).any(axis=(1, 3)))
        assert changed.tolist() == [[0, 4], [1, 9]]


def test_bindings_are_bounded_and_right_after_eviction() -> None:
    """23 slots have 276 ranges, 256 are kept; the first is bound anew, and then is newest."""
    num_slots = 23
    decoder = make_decoder(num_slots)
    ranges = [(first, n) for first in range(num_slots) for n in range(1, num_slots - first + 1)]
    assert len(ranges) == 276
    for first, num_rows in ranges:
        rows = [[(first + row) % SIZE] for row in range(num_rows)]
        check(run(decoder, first, rows, [0] * num_rows), rows)
        assert len(decoder._bound) <= MAX_BINDINGS
    assert [key[:2] for key in decoder._bound] == ranges[-MAX_BINDINGS:]
    run(decoder, 0, [[3, 1]], [0])
    assert [key[:2] for key in decoder._bound] == ranges[-MAX_BINDINGS:], "prompts are bound once"
    check(run(decoder, 0, [[4]], [2]), [[3, 1, 4]])
    assert list(decoder._bound)[-2:] == [(*ranges[-1], 1, False), (0, 1, 1, False)]
    assert len(decoder._bound) == MAX_BINDINGS


def test_range_that_was_bound_is_not_bound_again(decoder: OnnxDecoder) -> None:
    """And its use makes it the last to go."""
    run(decoder, 0, [[1]], [0])
    bound = decoder._bound[0, 1, 1, False]
    run(decoder, 1, [[1]], [0])
    check(run(decoder, 0, [[2]], [1]), [[1, 2]])
    assert decoder._bound[0, 1, 1, False] is bound
    assert list(decoder._bound) == [(1, 1, 1, False), (0, 1, 1, False)]


# --- how many slots -------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(graph())
    return path


@pytest.mark.parametrize(
    ("max_tokens", "max_bytes", "num_slots"),
    [
        (MAX_TOKENS, SLOT_BYTES, 1),
        (MAX_TOKENS, 2 * SLOT_BYTES - 1, 1),
        (MAX_TOKENS, 5 * SLOT_BYTES, 5),
        (MAX_TOKENS // 2, 5 * SLOT_BYTES, 10),
        (MAX_TOKENS, 10_000 * SLOT_BYTES, MAX_SLOTS),
    ],
)
def test_slots_follow_from_memory(
    max_tokens: int, max_bytes: int, num_slots: int, path: Path
) -> None:
    """2 halves * 1 layer * 2 heads * 8 values * 4 bytes * 12 tokens = 1,536 bytes a slot."""
    assert SLOT_BYTES == 1_536
    decoder = open_decoder(path, OPTIONS, CacheLimits(max_tokens, 64, max_bytes))
    assert (decoder.num_slots, decoder.max_tokens) == (num_slots, max_tokens)
    assert sum(buffer.nbytes for buffer in decoder._buffers) <= max_bytes


def test_threads_of_a_decoder_poll_within_a_run(path: Path) -> None:
    """But not after it."""
    decoder = open_decoder(path, OPTIONS, CacheLimits(MAX_TOKENS, 3, 8 * SLOT_BYTES))
    options = decoder._session._session.get_session_options()
    assert options.get_session_config_entry("session.intra_op.spin_duration_us") == str(SPIN_US)
    assert options.get_session_config_entry("session.force_spinning_stop") == "1"


def test_a_longer_time_of_polling_holds_for_decoders_too(path: Path) -> None:
    limits = CacheLimits(MAX_TOKENS, 3, 8 * SLOT_BYTES)
    for spin_us, expected in ((SPIN_US - 1, SPIN_US), (SPIN_US + 1, SPIN_US + 1)):
        decoder = open_decoder(path, replace(OPTIONS, spin_us=spin_us), limits)
        options = decoder._session._session.get_session_options()
        entry = options.get_session_config_entry("session.intra_op.spin_duration_us")
        assert entry == str(expected)


def test_memory_for_no_slot_is_refused_with_both_numbers(path: Path) -> None:
    expected = "kv_cache_bytes is 1535, but one sequence of 12 tokens takes 1536: raise it, or"
    with pytest.raises(LoadError, match=expected):
        open_decoder(path, OPTIONS, CacheLimits(MAX_TOKENS, 64, SLOT_BYTES - 1))


def test_runs_have_no_more_rows_than_are_asked_for(path: Path) -> None:
    """Logits are kept for 3 rows, or for all slots where these are fewer."""
    for max_bytes, num_rows in ((8 * SLOT_BYTES, 3), (2 * SLOT_BYTES, 2)):
        decoder = open_decoder(path, OPTIONS, CacheLimits(MAX_TOKENS, 3, max_bytes))
        assert rows_of(decoder).shape == (num_rows, SIZE)


# --- what is no decoder ---------------------------------------------------------------------------

HALF_CACHE = [f"{layer}.{part}" for layer in (0, 1) for part in ("key", "value")]
SIGNATURE = Signature(
    (
        spec("input_ids", "INT64", -1, -1),
        spec("position_ids", "INT64", -1, -1),
        spec("seqlens_k", "INT32", -1),
        spec("total_sequence_length", "INT32"),
        *(spec(f"past_key_values.{name}", "FP16", -1, 4, -1, 16) for name in HALF_CACHE),
    ),
    (
        spec("logits", "FP32", -1, 257),
        *(spec(f"present.{name}", "FP16", -1, 4, -1, 16) for name in HALF_CACHE),
    ),
)


def test_shape_is_read_from_the_graph() -> None:
    """2 * 2 layers * 4 heads * 16 values * 2 bytes * 100 tokens = 51,200 bytes a slot."""
    shape = DecoderShape.of(SIGNATURE, SLOTS)
    assert shape == DecoderShape(2, 4, 16, 257, DATATYPES["FP16"], takes_option=False)
    assert shape.num_bytes(100) == 51_200


def without(name: str) -> Signature:
    return Signature(
        tuple(tensor for tensor in SIGNATURE.inputs if tensor.name != name),
        tuple(tensor for tensor in SIGNATURE.outputs if tensor.name != name),
    )


def changed(name: str, **changes: object) -> Signature:
    def change(tensors: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        return tuple(
            replace(tensor, **changes) if tensor.name == name else tensor  # type: ignore[arg-type]
            for tensor in tensors
        )

    return Signature(change(SIGNATURE.inputs), change(SIGNATURE.outputs))


@pytest.mark.parametrize(
    "name", [*INPUTS, "past_key_values.0.key", "past_key_values.1.value", "logits", "present.1.key"]
)
def test_graph_without_one_of_its_tensors_is_no_decoder(name: str) -> None:
    """The refusal names what a decoder takes and gives, and what the graph does."""
    with pytest.raises(LoadError, match=r"a decoder takes input_ids, .* gives logits") as caught:
        DecoderShape.of(without(name), SLOTS)
    for tensor in SIGNATURE.inputs + SIGNATURE.outputs:
        assert (f"'{tensor.name}'" in str(caught.value)) == (tensor.name != name)


def test_encoder_is_no_decoder() -> None:
    encoder = Signature(
        (spec("input_ids", "INT64", -1, -1), spec("attention_mask", "INT64", -1, -1)),
        (spec("logits", "FP32", -1, 2),),
    )
    with pytest.raises(LoadError, match=r"takes \['attention_mask', 'input_ids'\]"):
        DecoderShape.of(encoder, SLOTS)


def test_an_input_of_the_graph_that_no_value_fills_is_refused() -> None:
    more = Signature((*SIGNATURE.inputs, spec("attention_bias", "FP32", -1)), SIGNATURE.outputs)
    with pytest.raises(LoadError, match="attention_bias"):
        DecoderShape.of(more, SLOTS)


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("past_key_values.0.key", (-1, 4, 16)),
        ("past_key_values.0.key", (-1, -1, -1, 16)),
        ("past_key_values.0.value", (-1, 4, -1, -1)),
        ("past_key_values.0.key", (2, 4, -1, 16)),
        ("past_key_values.1.key", (-1, 8, -1, 16)),
        ("logits", (-1, -1)),
        ("logits", (257,)),
        ("logits", (-1, -1, 257)),
    ],
)
def test_tensor_of_another_shape_is_refused_by_its_name(name: str, dims: tuple[int, ...]) -> None:
    """Buffers are made from these numbers before anything runs."""
    with pytest.raises(LoadError, match=name):
        DecoderShape.of(changed(name, dims=dims), SLOTS)
