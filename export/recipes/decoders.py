"""Export one decoder: trace, quantise, check, measure, write. Each step may refuse.

Knows nothing of the command line; a callback reports progress.
docs/how-to/cuda.md says what was verified on CUDA.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import onnx

from export.checks.adapted_decoding import check_adapted
from export.checks.decoding import (
    DecoderParity,
    ParityLimits,
    is_large,
    logits_rounding,
    measure_parity,
)
from export.checks.kinds import measure_kinds
from export.checks.norms_apart import with_norms_apart
from export.checks.paged_decoding import check_paged
from export.checks.perplexity import graph_perplexity, network_perplexity, windows_of
from export.checks.provider_support import check_supported
from export.checks.traced_decoding import check_traced
from export.errors import ExportError
from export.examples import example_fields
from export.general_examples import examples_for
from export.graphs.adapted_decoder import AdapterPlan, trace_adapted
from export.graphs.cached_decoder import OPERATOR, AnyDecoder, DecoderNetwork, trace_decoder
from export.graphs.candidates import with_candidates
from export.graphs.files import settled
from export.graphs.gated_layers import turned_channels
from export.graphs.graph import check_fused, fused_ops
from export.graphs.int8_cache import Largest, at_all_places, with_int8_cache
from export.graphs.paged_decoder import trace_paged_decoder
from export.graphs.prefill import trace_prefill
from export.graphs.traced.decoder import trace_traced
from export.graphs.traced.prefill import trace_traced_prefill
from export.graphs.traced.turned import turned_channels as turned_in_traced
from export.graphs.widened import widened
from export.precision.blockwise import quantize_blocks
from export.precision.experts import with_rounded_experts
from export.precision.kept import FLOAT_WEIGHTS, float_products, forms_of, keep_stored
from export.precision.moments import SampledRounding
from export.precision.per_token import quantize_rows
from export.precision.samples import largest_values, sample_rows
from export.precision.smoothquant import Factors, evened, factors_of
from export.recipes.chat_templates import check_templates
from export.settings import ExportSettings, GraphKind, HeldOut, OnStep, versions
from export.writer import Built, ExportedModel, build_graphs
from models.checkpoints.chat_templates import end_of_turn
from models.checkpoints.checkpoint import Checkpoint
from models.networks.gpt import GPT
from models.networks.llama import Llama
from models.networks.traced import TracedDecoder
from service.contract.manifest import GraphDevice, Manifest, Precision, Variant
from service.contract.precision import HALF, INT8_PRODUCTS
from service.runtime.cpus import cpu_flags

UNLIMITED = float("inf")
GEMMA = "gelu_tanh"  # the activation of all Gemmas, and of no other family of Llama's kind
# Where activations are rounded too, a difference in a sum's last bit can move a value to the next
# step and a logit by a hundredth: prefill and decoding then choose otherwise where two tokens are
# about as good, up to every twentieth with random weights. No neighbour may do that. What PyTorch
# would have chosen otherwise is the precision's cost, large with random weights; the last limit
# only tells a coarse graph from a wrong one.
LIMITS: dict[Precision, ParityLimits] = {
    "fp32": ParityLimits(1e-5, 0.0, 1e-4, 0.0),
    "fp16": ParityLimits(0.5, 0.05, 0.5, 0.05),
    # Compared in float32, with weights of eight bits: only those move what PyTorch would choose.
    "bf16": ParityLimits(1e-5, 0.0, 1e-4, 0.25),
    "int8": ParityLimits(UNLIMITED, 0.1, 1e-4, 0.75),
    "int8-weights": ParityLimits(UNLIMITED, 0.1, 1e-4, 0.75),
    "int4-weights": ParityLimits(UNLIMITED, 0.1, 1e-4, 0.75),
    "stored": ParityLimits(UNLIMITED, 0.1, 1e-4, 0.75),
}
AUTO: tuple[Precision, ...] = ("fp32", "int8")  # written by default
SAMPLES_OF_LARGE = 48  # sample texts for a large network, as each takes as much longer
# What to export instead where a precision costs too much.
FINER: dict[Precision, Precision] = {
    "int8": "int8-weights",
    "int4-weights": "int8-weights",
    "stored": "fp32",
}
FLOAT: tuple[Precision, ...] = ("fp32", *HALF)  # nothing is rounded in them, nor in their cache


def export_decoder(
    checkpoint: Checkpoint, settings: ExportSettings, held_out: HeldOut, on_step: OnStep
) -> ExportedModel:
    """The graphs of a decoder that continues texts, and its manifest.

    Perplexity is measured on held-out text, where it is given.
    """
    network, windows = checkpoint.model, None
    assert isinstance(network, GPT | Llama | TracedDecoder), "others have their own recipe"
    check_templates(checkpoint.chat)
    if held_out.text is not None:
        encoding = checkpoint.tokenizer.encode(held_out.text)
        num_first = (*encoding.special_tokens_mask, 0).index(0)
        ids, first = encoding.ids[num_first:], encoding.ids[:num_first]
        windows = windows_of(ids, network.config.max_positions, first)
    if settings.precision == "auto" and settings.target != "cpu" and _needs_range(network):
        settings = replace(settings, precision="bf16")
    settings = _with_stored(checkpoint, settings)
    kinds = settings.graphs(AUTO, "paged")
    if settings.kv_cache == "int8" and not {kind.precision for kind in kinds} - set(FLOAT):
        raise ExportError(
            f"kv_cache is int8, which graphs of rounded weights have; precision is "
            f"{settings.precision}, expected auto, int8, int8-weights, int4-weights or stored"
        )
    if settings.lora_rank:
        _check_adapters(settings)
    decoder = _Decoder(checkpoint, network, settings, windows, on_step)
    graphs = build_graphs(kinds, decoder.build, check_cost)
    manifest = Manifest(
        task="text-generation",
        max_tokens=checkpoint.max_tokens,
        pad_token_id=next(iter(network.config.eos_token_ids), 0),
        eos_token_ids=_ends(checkpoint, network),
        sampling=dict(checkpoint.sampling),
        origin=checkpoint.origin,
        **example_fields(settings, examples_for("text-generation")),
        versions=versions(),
        **graphs.manifest_fields(),
    )
    main = graphs.main
    return ExportedModel(
        main.graph,
        checkpoint.tokenizer,
        manifest,
        graphs.others,
        prefill=main.prefill,
        adapted=main.adapted,
        chat=checkpoint.chat,
    )


def _with_stored(checkpoint: Checkpoint, settings: ExportSettings) -> ExportSettings:
    """The settings with the precision stored, where it is left open and the folder had rounded.

    Without products of int8 a row would depend on its neighbours, as with all weights in blocks.
    Raises `ExportError` where it is named and the folder had not.
    """
    is_exact = not cpu_flags().isdisjoint(INT8_PRODUCTS)
    is_open = settings.precision == "auto" and settings.target != "cuda"
    if is_open and is_exact and checkpoint.kept():
        return replace(settings, precision="stored")
    if settings.precision == "stored" and not checkpoint.kept():
        raise ExportError(
            "precision is stored, which is for rounded weights that the CPU computes with as they "
            f"are; {checkpoint.origin} has none: choose auto, int8 or int4-weights"
        )
    return settings


def _ends(checkpoint: Checkpoint, network: AnyDecoder) -> tuple[int, ...]:
    """The tokens that end a text: the network's, and the one that ends a turn of a conversation."""
    spelled = end_of_turn(checkpoint.chat)
    of_turn = checkpoint.tokenizer.token_to_id(spelled) if spelled is not None else None
    ends = (*network.config.eos_token_ids, of_turn)
    return tuple(dict.fromkeys(token_id for token_id in ends if token_id is not None))


@dataclass(frozen=True)
class _Decoder:
    """One network in any precision; what several of them need is computed once."""

    checkpoint: Checkpoint
    network: AnyDecoder
    settings: ExportSettings
    windows: np.ndarray | None  # of held-out text
    on_step: OnStep

    def build(self, kind: GraphKind) -> Built:
        """A graph that computes what the network does, or `ExportError`."""
        if kind.precision in HALF:
            return self._build_half(kind)
        network, precision = self.network, kind.precision
        if is_large(network) and precision != "fp32" and not isinstance(network, TracedDecoder):
            self._check_kinds(network)
        graph, prefill = self._graphs(precision)
        if precision == "fp32" and isinstance(network, TracedDecoder):
            parity = self._traced_and_parity[1]
        else:
            self.on_step(f"{precision}: comparing cached decoding with recomputing from scratch")
            parity = measure_parity(network, graph, is_exact=precision == "fp32", prefill=prefill)
            LIMITS[precision].check(parity, lambda: logits_rounding(network))
        variant = Variant(
            precision,
            fused_ops(graph),
            parity.to_dict(),
            perplexity=self._checked_perplexity(graph, precision),
            kv_cache="int8" if prefill else "",
            weights=forms_of(graph) or self._forms_left(precision),
            device="cpu",  # CUDA's GroupQueryAttention has no float32
        )
        return Built(graph, variant, prefill, adapted=self._with_adapters(graph, precision))

    def _check_kinds(self, network: DecoderNetwork) -> None:
        """Raise `ExportError` where a layer of any kind is traced to something else."""
        self.on_step("comparing a layer of each kind with PyTorch in float32")
        small, parity = measure_kinds(network)
        LIMITS["fp32"].check(parity, lambda: logits_rounding(small))

    def _with_adapters(
        self, plain: onnx.ModelProto, precision: Precision
    ) -> onnx.ModelProto | None:
        """The graph that computes adapters beside what `plain` computes, if one is wanted."""
        if not self.settings.lora_rank:
            return None
        graph = self._traced_with_adapters
        if precision not in FLOAT:
            graph = self._quantize(graph, precision)
        self.on_step(f"{precision}: comparing rows with adapters with merged weights")
        check_adapted(self.network, plain, graph, is_exact=precision == "fp32")
        return graph

    def _build_half(self, kind: GraphKind) -> Built:
        """Graphs in fp16 and bf16; on CUDA they give candidates for sampling too."""
        network, (precision, layout) = _own(self.network, kind.precision), kind
        _check_range(network, precision)
        is_for_cuda = self.settings.target != "cpu"
        self.on_step(f"{kind.name}: tracing the graph")
        perplexity: dict[str, float] = {}
        if layout == "paged":
            graph = trace_paged_decoder(network, precision=precision)
            self.on_step(f"{kind.name}: comparing decoding over blocks with PyTorch")
            parity = check_paged(network, graph, precision)
        else:
            graph = trace_decoder(network, precision=precision, has_norms_inside=is_for_cuda)
            checked = with_norms_apart(widened(graph) if precision == "bf16" else graph)
            self.on_step(f"{kind.name}: comparing cached decoding with recomputing from scratch")
            measured = measure_parity(network, checked, is_exact=False)
            LIMITS[precision].check(measured, lambda: logits_rounding(network))
            parity = measured.to_dict()
            perplexity = self._checked_perplexity(checked, precision)
        if is_for_cuda:
            graph = with_candidates(graph)
            check_supported(graph)
        device: GraphDevice = "cuda" if is_for_cuda else "any"
        variant = Variant(
            precision,
            fused_ops(graph),
            parity,
            perplexity=perplexity,
            device=device,
            layout=layout,
        )
        return Built(graph, variant)

    def _checked_perplexity(self, graph: onnx.ModelProto, precision: Precision) -> dict[str, float]:
        """Empty without held-out text; `ExportError` where it rises too much."""
        if self.windows is None:
            return {}
        perplexity = self._perplexity(graph, self.windows)
        _check_rise(perplexity, self.settings.max_perplexity_rise, precision)
        return perplexity

    def _graphs(self, precision: Precision) -> tuple[onnx.ModelProto, onnx.ModelProto | None]:
        """The graph that decodes, and the one for prompts where the cache is in int8."""
        prefill = None
        graph = self._traced
        if precision in FLOAT:
            [graph] = settled([graph])
            return graph, None
        if precision != "stored":  # whose numbers are found by their bits
            graph = evened(graph, self._factors)
        if self.settings.kv_cache == "int8":
            if any(each.name.startswith("past_state.") for each in graph.graph.input):
                raise ExportError(
                    "kv_cache is int8, whose prompts have a graph of their own, and this network "
                    "has states beside the cache: take the cache in float"
                )
            largest = self._largest_cached(graph)
            self.on_step(f"{precision}: tracing the graph for prompts")
            graph = with_int8_cache(graph, largest)
            network = self.network
            prefill = (
                trace_traced_prefill(network, largest)
                if isinstance(network, TracedDecoder)
                else trace_prefill(network, largest)
            )
            if precision != "stored":
                prefill = evened(prefill, self._factors)
            prefill = self._quantize(prefill, precision)
        self.on_step(f"{precision}: quantising weights")
        graph = self._quantize(graph, precision)
        check_fused(graph, OPERATOR, fused_ops(self._traced).get(OPERATOR, 0))
        if prefill is None:
            [graph] = settled([graph])
            return graph, None
        graph, prefill = settled([graph, prefill])
        return graph, prefill

    @cached_property
    def _traced(self) -> onnx.ModelProto:
        if isinstance(self.network, TracedDecoder):
            return self._traced_and_parity[0]
        self.on_step("tracing the graph")
        return trace_decoder(self.network, precision="fp32")

    @cached_property
    def _traced_and_parity(self) -> tuple[onnx.ModelProto, DecoderParity]:
        """The graph of a network of transformers, which has been compared with it."""
        network = self.network
        assert isinstance(network, TracedDecoder), "others have parity of their own"
        self.on_step("tracing the graph")
        graph = trace_traced(network)
        self.on_step("comparing the graph with transformers")
        return graph, check_traced(network, graph)

    @cached_property
    def _traced_with_adapters(self) -> onnx.ModelProto:
        settings = self.settings
        self.on_step("tracing the graph with adapters")
        plan = AdapterPlan(settings.lora_rank, settings.lora_slots, settings.adapted_products())
        if isinstance(self.network, TracedDecoder):
            return trace_traced(self.network, plan)
        return trace_adapted(self.network, plan)

    @cached_property
    def _factors(self) -> Factors:
        """Factors of channels that int8 rounds well, for the float32 graph and that for prompts."""
        precisions = {kind.precision for kind in self.settings.graphs(AUTO)}
        # Adapters are for channels as they were trained.
        if "int8" not in precisions or self.settings.lora_rank:
            return ()
        what = "measuring activations"
        return factors_of(
            self._traced,
            self._samples,
            lambda done, of: self.on_step(f"{what}: {done} of {of} parts of samples"),
        )

    @cached_property
    def _float_perplexity(self) -> float:
        assert self.windows is not None, "perplexity is measured on held-out text"
        self.on_step(f"measuring PyTorch's perplexity on {self.windows.size} tokens")
        return network_perplexity(self.network, self.windows)

    def _quantize(self, graph: onnx.ModelProto, precision: Precision) -> onnx.ModelProto:
        graph = with_rounded_experts(graph)
        left = self._left_float
        if precision == "int8":
            return quantize_rows(graph, left)
        if precision == "int8-weights":
            return quantize_blocks(graph, bits=8, left_float=left)
        if precision == "stored":
            graph = keep_stored(graph, self.checkpoint.kept())
            if not forms_of(graph).keys() - {FLOAT_WEIGHTS}:
                raise ExportError(
                    "precision is stored, but no product has the numbers that the folder had "
                    "rounded its weights to, as where an adapter was merged: choose fp32 or int8"
                )
            return graph
        rounding = self._compensating
        return quantize_blocks(graph, bits=4, round_weights=rounding, left_float=left)

    def _forms_left(self, precision: Precision) -> dict[str, int]:
        """The number of products in float of a graph that rounds the others again."""
        number = 0 if precision in FLOAT else len(self._left_float)
        return {FLOAT_WEIGHTS: number} if number else {}

    @cached_property
    def _left_float(self) -> frozenset[int]:
        """Places of the products whose weights the folder left in float, beside rounded ones."""
        kept = self.checkpoint.kept()
        if not kept:
            return frozenset()
        return float_products(self._traced, kept)

    @cached_property
    def _compensating(self) -> SampledRounding:
        """The rounding of weights to 4 bits, by their inputs in pieces of the float32 graph."""
        graph = evened(self._traced, self._factors)
        return SampledRounding(graph, self._samples, self.on_step)

    @cached_property
    def _samples(self) -> list[list[int]]:
        """The tokens of the sample texts, at least one in each row."""
        texts, most = self.settings.calibration, self.checkpoint.max_tokens
        samples = sample_rows(self.checkpoint.tokenizer, texts, most)
        rows = [row for row in (*samples.calibration, *samples.checked) if row]
        if not rows:
            raise ExportError("the texts to calibrate on have no tokens, at least 1 is needed")
        return rows[:SAMPLES_OF_LARGE] if is_large(self.network) else rows

    def _largest_cached(self, graph: onnx.ModelProto) -> Largest:
        """The largest values by the float32 graph, piece by piece, over the joined sample texts.

        Where these are shorter than the context, keys have bounds for the places behind them.
        """
        most = self.checkpoint.max_tokens
        ids = [token_id for row in self._samples for token_id in row]
        rows = [ids[start : start + most] for start in range(0, len(ids), most)]
        what = "measuring keys and values"
        largest = largest_values(
            graph, rows, lambda done, of: self.on_step(f"{what}: {done} of {of} parts of samples")
        )
        if len(ids) >= most:
            return largest
        network = self.network
        if isinstance(network, TracedDecoder):
            size = largest["present.0.key"].shape[-1]
            return at_all_places(largest, turned_in_traced(network, size))
        return at_all_places(largest, turned_channels(network))

    def _perplexity(self, graph: onnx.ModelProto, windows: np.ndarray) -> dict[str, float]:
        """Perplexity of the network and of the graph."""
        what, exact = f"measuring perplexity on {windows.size} tokens", self._float_perplexity
        by_graph = graph_perplexity(
            graph,
            windows,
            lambda done: self.on_step(f"{what}: {done} of {windows.shape[1] - 1} steps"),
        )
        return {
            "tokens": windows.size,
            "float": round(exact, 4),
            "exported": round(by_graph, 4),
            "rise": round(by_graph / exact - 1, 4) + 0.0,  # which is never -0.0
        }


def _check_adapters(settings: ExportSettings) -> None:
    """Raise `ExportError` for a graph with adapters that there is no form of."""
    settings.adapted_products()
    reason = ""
    if settings.target != "cpu" or settings.precision in HALF:
        reason = "graphs with adapters are for the CPU, in fp32 and rounded weights"
    elif settings.precision == "int4-weights":
        reason = "4 bits are rounded by the inputs of the graph without adapters: take int8-weights"
    elif settings.kv_cache != "float":
        reason = f"kv_cache is {settings.kv_cache}, and prompts have a graph without adapters then"
    if reason:
        raise ExportError(f"lora_rank is {settings.lora_rank}: {reason}")


def _own(network: AnyDecoder, what: str) -> DecoderNetwork:
    """The network, where only one of ours will do. Raises `ExportError` for transformers' own."""
    if isinstance(network, TracedDecoder):
        raise ExportError(
            f"{what} is for networks of Attendant's own, and this one is traced from transformers: "
            "take fp32, int8, int8-weights or int4-weights, for the CPU"
        )
    return network


def _needs_range(network: AnyDecoder) -> bool:
    """Whether it is of a family whose values float16 cannot hold: Gemma's."""
    return isinstance(network, Llama) and network.config.activation == GEMMA


def _check_range(network: AnyDecoder, precision: Precision) -> None:
    """Raise `ExportError` for values that float16 cannot hold."""
    if precision == "fp16" and _needs_range(network):
        raise ExportError(
            "precision is fp16, whose largest value is 65504, but layers of Gemma's kind compute "
            "larger ones; bf16 holds them"
        )


def check_cost(variant: Variant) -> None:
    """Raise `ExportError` for an unrequested precision whose cost is not known."""
    if variant.precision not in HALF and not variant.perplexity:
        raise ExportError("no held-out text to measure its perplexity on: --held-out names one")


def _check_rise(perplexity: dict[str, float], max_rise: float, precision: Precision) -> None:
    rise = perplexity["exported"] / perplexity["float"] - 1
    if not rise <= max_rise:  # as it is where either is not a number
        remedy = f", --precision {FINER[precision]} rounds less" if precision in FINER else ""
        raise ExportError(
            f"perplexity rises by {rise:.1%}, from {perplexity['float']} to "
            f"{perplexity['exported']}; the limit is {max_rise:.1%}: --max-perplexity-rise sets "
            f"it{remedy}"
        )
