"""Slots with a state beside the cache, over a graph of one convolution made by hand.

Its state is the last two tokens' vectors, and the result of the convolution is given back as
logits: numpy computes the same in two lines.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from service.contract.adapter import Adapter, Factors
from service.contract.tensors import TensorSpec
from service.errors import LoadError
from service.generation.decoders.adapter_buffers import MASK
from service.generation.decoders.decoder import INPUTS, SLOTS, OnnxDecoder
from service.generation.decoders.shape import DecoderShape
from service.generation.steps.scheduler import SchedulerLimits
from service.runtime.session import OnnxSession, SessionOptions
from tests.fakes.generation import Steps
from tests.service.generation.cache.test_prefix_reuse import serve

SIZE, WIDTH, CONTEXT = 6, 3, 32
RANDOM = np.random.default_rng(0)
WORDS = RANDOM.normal(size=(9, SIZE)).astype(np.float32)
FILTER = RANDOM.normal(size=(SIZE, 1, WIDTH)).astype(np.float32)
UP, DOWN = (RANDOM.normal(size=size).astype(np.float32) for size in ((SIZE, 1), (1, SIZE)))


def graph(*, has_adapters: bool = False) -> bytes:
    """Token vectors, a convolution with its state, and of that the tokens that are asked for.

    With adapters there is one place, whose factors change the vectors.
    """
    adapted = [
        helper.make_node("Cast", [MASK], ["is_used"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["hidden", "lora.words.A"], ["narrow"]),
        helper.make_node("Mul", ["narrow", "is_used"], ["used"]),
        helper.make_node("MatMul", ["used", "lora.words.B"], ["added"]),
        helper.make_node("Add", ["hidden", "added"], ["changed"]),
    ]
    nodes = [
        helper.make_node("Gather", ["words", "input_ids"], ["hidden"]),
        *(adapted if has_adapters else ()),
        helper.make_node(
            "Transpose", ["changed" if has_adapters else "hidden"], ["channels"], perm=[0, 2, 1]
        ),
        helper.make_node(
            "CausalConvWithState",
            ["channels", "filter", "", "past_state.0"],
            ["convolved", "present_state.0"],
            domain="com.microsoft",
        ),
        helper.make_node("Transpose", ["convolved"], ["tokens"], perm=[0, 2, 1]),
        helper.make_node("Reshape", ["tokens", "flat"], ["rows"]),
        helper.make_node("Gather", ["rows", "logit_positions"], ["logits"]),
    ]
    made = helper.make_tensor_value_info
    state: list[str | int | None] = ["batch", SIZE, WIDTH - 1]
    inputs = [
        *(made(name, TensorProto.INT64, ["batch", "tokens"]) for name in INPUTS[:2]),
        made("seqlens_k", TensorProto.INT32, ["batch"]),
        made("total_sequence_length", TensorProto.INT32, []),
        made("logit_positions", TensorProto.INT64, ["wanted"]),
        made("past_state.0", TensorProto.FLOAT, state),
    ]
    if has_adapters:
        inputs += [
            made(MASK, TensorProto.BOOL, ["batch", 1, 1]),
            made("lora.words.A", TensorProto.FLOAT, [SIZE, 1]),
            made("lora.words.B", TensorProto.FLOAT, [1, SIZE]),
        ]
    outputs = [
        made("logits", TensorProto.FLOAT, ["wanted", SIZE]),
        made("present_state.0", TensorProto.FLOAT, state),
    ]
    constants = [
        numpy_helper.from_array(WORDS, "words"),
        numpy_helper.from_array(FILTER, "filter"),
        numpy_helper.from_array(np.array([-1, SIZE], np.int64), "flat"),
    ]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_graph(nodes, "one convolution", inputs, outputs, constants)
    return helper.make_model(model, opset_imports=opsets, ir_version=10).SerializeToString()


@pytest.fixture
def decoder() -> OnnxDecoder:
    session = OnnxSession(graph(), SessionOptions())
    return OnnxDecoder(session, num_slots=4, max_tokens=CONTEXT, max_rows=4)


def expected(ids: Sequence[int], words: np.ndarray = WORDS) -> np.ndarray:
    last = np.concatenate([np.zeros((WIDTH - 1, SIZE)), words[list(ids)]])[-WIDTH:]
    convolved: np.ndarray = (last.T * FILTER[:, 0]).sum(axis=1)
    return convolved


def run(
    decoder: OnnxDecoder, slot: int, rows: Sequence[Sequence[int]], past: Sequence[int]
) -> np.ndarray:
    return decoder.run(slot, [np.array(row) for row in rows], past).whole().copy()


def agree(logits: np.ndarray, *rows: Sequence[int]) -> bool:
    return np.allclose(logits, [expected(row) for row in rows], atol=1e-6)


def test_padding_enters_no_state(decoder: OnnxDecoder) -> None:
    """Prompts of several lengths in one step, and their next tokens together."""
    assert agree(run(decoder, 1, [[1, 2, 3, 4], [5], [6, 7]], [0, 0, 0]), [2, 3, 4], [5], [6, 7])
    logits = run(decoder, 1, [[8], [1], [2]], [4, 1, 2])
    assert agree(logits, [3, 4, 8], [5, 1], [6, 7, 2])


def test_a_state_goes_on_over_chunks_and_begins_at_zero(decoder: OnnxDecoder) -> None:
    run(decoder, 0, [[1, 2, 3]], [0])
    assert agree(run(decoder, 0, [[4]], [3]), [2, 3, 4])
    assert agree(run(decoder, 0, [[5, 6, 7]], [4]), [5, 6, 7])
    assert agree(run(decoder, 0, [[5]], [0]), [5])


def test_a_state_moves_with_its_slot(decoder: OnnxDecoder) -> None:
    run(decoder, 2, [[1, 2, 3]], [0])
    decoder.copy(2, 0, 3)
    assert agree(run(decoder, 0, [[4]], [3]), [2, 3, 4])
    assert agree(run(decoder, 2, [[5]], [3]), [2, 3, 5])


def test_a_slot_that_was_only_claimed_moves_without_the_state_of_its_last_owner(
    decoder: OnnxDecoder,
) -> None:
    run(decoder, 2, [[1, 2, 3]], [0])
    decoder.copy(2, 0, 0)
    assert agree(run(decoder, 0, [[5]], [0]), [5])


def test_prompts_of_one_step_have_their_own_adapters() -> None:
    """Each has a run of its own, and the place of its adapter goes with it."""
    options = SessionOptions()
    decoder = OnnxDecoder(
        OnnxSession(graph(), options),
        num_slots=4,
        max_tokens=CONTEXT,
        max_rows=4,
        adapted=OnnxSession(graph(has_adapters=True), options),
    )
    assert decoder.adapters is not None
    decoder.adapters.write(1, Adapter("", {"words": Factors(UP, DOWN)}))
    rows = [np.array(row) for row in ([1, 2, 3], [4, 5], [6, 7])]
    logits = decoder.run(0, rows, [0, 0, 0], places=(1, 0, 1)).whole()
    of_adapter = WORDS + WORDS @ UP @ DOWN
    assert np.allclose(logits[0], expected([1, 2, 3], of_adapter), atol=1e-5)
    assert np.allclose(logits[1], expected([4, 5]), atol=1e-5)
    assert np.allclose(logits[2], expected([6, 7], of_adapter), atol=1e-5)


def test_a_state_of_other_tokens_is_never_used(decoder: OnnxDecoder) -> None:
    run(decoder, 0, [[1, 2, 3]], [0])
    with pytest.raises(AssertionError, match="states are not of these tokens"):
        decoder.copy(0, 1, 2)
    with pytest.raises(AssertionError, match="slot 0 has states of other tokens"):
        run(decoder, 0, [[4]], [2])


def test_sizes_are_read_of_the_graph_and_counted(decoder: OnnxDecoder) -> None:
    (state,) = decoder.shape.states
    assert (state.name, state.dims, decoder.shape.num_layers) == ("past_state.0", (SIZE, 2), 0)
    assert decoder.shape.num_bytes(CONTEXT) == SIZE * 2 * 4
    assert decoder.bounds(SchedulerLimits(max_draft_tokens=7)).max_draft_tokens == 0
    assert decoder.prefix_memory(10**6) is None


def test_a_state_without_a_size_is_refused() -> None:
    signature = OnnxSession(graph(), SessionOptions()).signature

    def unsized(spec: TensorSpec) -> TensorSpec:
        return replace(spec, dims=(-1, SIZE, -1)) if spec.name == "past_state.0" else spec

    inputs = tuple(map(unsized, signature.inputs))
    with pytest.raises(LoadError, match=r"'past_state.0' is TYPE_FP32 \[-1, 6, -1\]"):
        DecoderShape.of(replace(signature, inputs=inputs), SLOTS)


def test_a_prompt_copies_all_of_a_slot_with_states_or_nothing() -> None:
    """What has been said goes on from where it was; another ending begins anew."""
    steps = Steps(4, 128, SchedulerLimits(), has_states=True)
    first = serve(steps, "a" * 40)
    said = bytes(first.token_ids[: first.num_tokens - 1].tolist()).decode()
    other = serve(steps, "a" * 40 + "b")
    again = serve(steps, said + "and so on")
    assert (other.num_reused_tokens, again.num_reused_tokens) == (0, len(said))
