"""The comparison of cached decoding finds graphs that are wrong, each by one small fault."""
# ruff: noqa: N806 - suffixes are array layouts: D hidden size, N columns, H heads

from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from export.checks import decoding
from export.checks.decoding import (
    DecoderParity,
    by_whole_row,
    compare_decoding,
    logits_rounding,
    measure_parity,
    num_steps_of,
    open_graph,
    random_rows,
)
from export.checks.kinds import measure_kinds, one_of_each_kind
from export.checks.rounding import rounding_of
from export.errors import ExportError
from export.graphs.cached_decoder import DecoderNetwork, trace_decoder
from export.precision.per_token import quantize_rows
from export.recipes.decoders import LIMITS
from models.networks.llama import Llama
from service.generation.choosing.step_logits import StepLogits
from service.generation.decoders.decoder import OnnxDecoder
from tests.export.graphs.test_rotary_decoder import FORMS
from tests.fakes.tiny_gpt import tiny_gpt
from tests.fakes.tiny_llama import tiny_llama

Fault = Callable[[onnx.GraphProto], None]


def attention_nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    return [node for node in graph.node if node.op_type == "GroupQueryAttention"]


def with_attribute(name: str, change: Callable[[float], float]) -> Fault:
    """Of every attention that has it."""

    def put_in(graph: onnx.GraphProto) -> None:
        given = [each for node in attention_nodes(graph) for each in node.attribute]
        for attribute in (each for each in given if each.name == name):
            if attribute.type == onnx.AttributeProto.INT:
                attribute.i = int(change(attribute.i))
            else:
                attribute.f = change(attribute.f)

    return put_in


def swapped_heads(graph: onnx.GraphProto) -> None:
    """The two heads of keys in the first layer, whose queries stay where they are."""
    joined = next(
        node for node in graph.node if node.output[0] == attention_nodes(graph)[0].input[0]
    )
    (weight,) = (each for each in graph.initializer if each.name in joined.input)
    values_DN = numpy_helper.to_array(weight).copy()
    if values_DN.shape[0] != 64:
        values_DN = values_DN.T
    assert values_DN.shape == (64, 128), "4 heads of queries, 2 of keys, 2 of values, of 16"
    values_DN[:, 64:96] = np.roll(values_DN[:, 64:96], 16, axis=1)
    right = values_DN if tuple(weight.dims) == values_DN.shape else values_DN.T
    weight.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(right), weight.name))


def positions_off_by_one(graph: onnx.GraphProto) -> None:
    """Of a table of learned positions."""
    (table,) = (each for each in graph.initializer if "positions" in each.name)
    rolled = np.roll(numpy_helper.to_array(table), 1, axis=0)
    table.CopyFrom(numpy_helper.from_array(rolled, table.name))


FAULTS: dict[str, Fault] = {
    "window one wider": with_attribute("local_window_size", lambda size: size + (size > 0)),
    "no window": with_attribute("local_window_size", lambda _: -1),
    "scale 1 % off": with_attribute("scale", lambda scale: scale * 1.01),
    "no softcap": with_attribute("softcap", lambda _: 0.0),
    "softcap 5 % off": with_attribute("softcap", lambda cap: cap * 1.05),
    "heads of keys swapped": swapped_heads,
    "no rotation": with_attribute("do_rotary", lambda _: 0),
}


@cache
def gemma() -> tuple[Llama, onnx.ModelProto]:
    """With windows and softcaps, and its right graph; neither is to be changed."""
    network = tiny_llama(**FORMS["gemma2"])
    return network, trace_decoder(network)


def with_fault(model: onnx.ModelProto, put_in: Fault) -> onnx.ModelProto:
    wrong = onnx.ModelProto.FromString(model.SerializeToString())
    put_in(wrong.graph)
    assert wrong != model
    return wrong


def refused(network: DecoderNetwork, model: onnx.ModelProto) -> None:
    with pytest.raises(ExportError, match="differs from recomputing"):
        LIMITS["fp32"].check(
            measure_parity(network, model, is_exact=True), lambda: logits_rounding(network)
        )


@pytest.fixture(params=["small", "large"])
def as_large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether networks count as large, of which fewer steps are compared."""
    is_large = bool(request.param == "large")
    if is_large:
        monkeypatch.setattr(decoding, "LARGE", 1)
    assert num_steps_of(gemma()[0]) == (8 if is_large else 64)
    return is_large


@pytest.mark.usefixtures("as_large")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_graph_with_one_fault_is_found(fault: str) -> None:
    network, model = gemma()
    refused(network, with_fault(model, FAULTS[fault]))


@pytest.mark.usefixtures("as_large")
def test_positions_that_are_off_by_one_are_found() -> None:
    network = tiny_gpt(num_layers=1)
    refused(network, with_fault(trace_decoder(network), positions_off_by_one))


class OnePlaceOff:
    """A decoder whose single tokens take the place behind their own."""

    def __init__(self, decoder: OnnxDecoder) -> None:
        self.decoder = decoder
        self.num_slots, self.max_tokens = decoder.num_slots, decoder.max_tokens

    def run(
        self, first_slot: int, rows: Sequence[np.ndarray], num_past: Sequence[int]
    ) -> StepLogits:
        return self.decoder.run(first_slot, rows, [past + (past > 0) for past in num_past])


class WrongSlot(OnePlaceOff):
    """A decoder that continues from its neighbour's keys and values."""

    def run(
        self, first_slot: int, rows: Sequence[np.ndarray], num_past: Sequence[int]
    ) -> StepLogits:
        if all(num_past):
            source = (first_slot + 1) % self.num_slots
            self.decoder.copy(source, first_slot, max(num_past))
        return self.decoder.run(first_slot, rows, num_past)


@pytest.mark.usefixtures("as_large")
@pytest.mark.parametrize("fault", [OnePlaceOff, WrongSlot])
@pytest.mark.parametrize("is_rounded", [False, True])
def test_a_decoder_that_reads_another_place_or_slot_is_found(
    fault: type[OnePlaceOff], is_rounded: bool
) -> None:
    """Rounded graphs are compared with themselves, and that is enough for it."""
    network, model = gemma()
    prompts = random_rows(network.config.vocab_size, (1, 7, 12), 12)
    decoder = open_graph(quantize_rows(model) if is_rounded else model, 76, len(prompts) + 2)
    recompute = by_whole_row(decoder)

    def compared(rows: OnnxDecoder | OnePlaceOff) -> DecoderParity:
        by_network = decoding._with_network(network)
        return compare_decoding(
            rows, prompts, by_network, recompute, (4,), num_steps=num_steps_of(network)
        )

    limits = LIMITS["int8" if is_rounded else "fp32"]
    limits.check(compared(decoder), lambda: logits_rounding(network))
    with pytest.raises(ExportError, match="differs from recomputing"):
        limits.check(compared(fault(decoder)), lambda: logits_rounding(network))


# --- large networks, whose graph in float32 is not compared ---------------------------------------


def test_a_network_of_each_kind_has_the_first_layer_of_each() -> None:
    """Of Gemma 3's five layers with a window and one without, two; words are cut."""
    network = tiny_llama(
        num_layers=6,
        vocab_size=2_000,
        **{**FORMS["gemma3"], "windows": (8,) * 5 + (0,), "layer_ropes": (1,) * 5 + (0,)},
    )
    small = one_of_each_kind(network)
    assert isinstance(small, Llama)
    assert small.config.windows == (8, 0)
    assert small.config.vocab_size == 1_024
    assert [*small.layers] == [network.layers[0], network.layers[5]]
    assert network.config.num_layers == 6


@pytest.mark.parametrize("form", ["gemma3", "smollm3"])
def test_kinds_of_layers_are_traced_as_pytorch_computes_them(form: str) -> None:
    small, parity = measure_kinds(tiny_llama(**FORMS[form]))
    LIMITS["fp32"].check(parity, lambda: logits_rounding(small))


def _given(model: onnx.ModelProto, _: DecoderNetwork) -> onnx.ModelProto:
    return model


def test_a_kind_with_a_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fault in what traces, for a network whose rounded graph alone is made."""
    from export.checks import kinds

    model = trace_decoder(one_of_each_kind(gemma()[0]))
    for put_in in FAULTS.values():
        wrong = with_fault(model, put_in)
        monkeypatch.setattr(kinds, "trace_decoder", partial(_given, wrong))
        small, parity = measure_kinds(gemma()[0])
        with pytest.raises(ExportError, match="differs from recomputing"):
            LIMITS["fp32"].check(parity, partial(logits_rounding, small))


def test_a_window_longer_than_the_usual_prompts_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100 tokens, by a prompt of 109: one token more in it is found."""
    from export.checks import kinds

    network = tiny_llama(max_positions=256, windows=(100, 0, 0))
    small, parity = measure_kinds(network)
    LIMITS["fp32"].check(parity, lambda: logits_rounding(small))
    wider = FAULTS["window one wider"]
    monkeypatch.setattr(
        kinds, "trace_decoder", lambda network: with_fault(trace_decoder(network), wider)
    )
    small, parity = measure_kinds(network)
    with pytest.raises(ExportError, match="max_abs_error"):
        LIMITS["fp32"].check(parity, lambda: logits_rounding(small))


def test_a_gpt_of_one_layer_is_traced_as_pytorch_computes_it() -> None:
    small, parity = measure_kinds(tiny_gpt())
    assert small.config.num_layers == 1
    LIMITS["fp32"].check(parity, lambda: logits_rounding(small))


# --- what float32 costs a network -----------------------------------------------------------------


@pytest.mark.parametrize("form", ["llama", "phi-4-mini"])
def test_steep_networks_are_within_what_float32_costs_them(form: str) -> None:
    """With weights three times as large, whose logits are off by up to 0.0009."""
    network = tiny_llama(**FORMS[form])
    with torch.no_grad():
        for weight in (each for each in network.parameters() if each.dim() == 2):
            weight.mul_(3)
    parity = measure_parity(network, trace_decoder(network), is_exact=True)
    LIMITS["fp32"].check(parity, lambda: logits_rounding(network))


def test_the_rounding_of_a_sum_is_that_of_float32() -> None:
    """2 ** 24 + 1 is no number of float32."""
    large = torch.tensor([2.0**24])
    assert rounding_of(lambda: large + 1) == 1.0
    assert rounding_of(lambda: large * 2) == 0.0


def test_the_rounding_is_asked_for_where_the_limit_does_not_suffice() -> None:
    def unasked() -> float:
        raise AssertionError

    LIMITS["fp32"].check(DecoderParity(9e-6, 0, 0, 0, 0), unasked)
    LIMITS["fp32"].check(DecoderParity(2e-4, 0, 0, 0, 0), lambda: 6e-5)
    with pytest.raises(ExportError, match=r"max_abs_error is 3\.00e-04, the limit is 0\.00024"):
        LIMITS["fp32"].check(DecoderParity(3e-4, 0, 0, 0, 0), lambda: 6e-5)
