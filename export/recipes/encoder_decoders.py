"""Export one encoder-decoder: trace both graphs, check, write. Each step may refuse.

Knows nothing of the command line; a callback reports progress.
docs/how-to/cuda.md says what was verified on CUDA.
"""

import copy
from collections import Counter
from collections.abc import Callable
from functools import partial

import onnx

from export.checks.decoding import DecoderParity, ParityLimits
from export.checks.encoder_decoding import logits_rounding, measure_parity, measure_texts
from export.checks.provider_support import check_supported
from export.errors import ExportError
from export.examples import example_fields
from export.general_examples import GENERAL, of_texts
from export.graphs.candidates import with_candidates
from export.graphs.encoder_decoder import trace_encoder, trace_target_decoder
from export.graphs.graph import DTYPES, fused_ops
from export.graphs.widened import widened
from export.precision.blockwise import quantize_blocks
from export.precision.per_token import quantize_rows
from export.precision.samples import sample_rows
from export.settings import ExportSettings, GraphKind, HeldOut, OnStep, check_float, versions
from export.writer import Built, ExportedModel, build_graphs
from models.checkpoints.checkpoint import Checkpoint
from models.networks.transformer import Transformer
from service.contract.manifest import GraphDevice, Manifest, Precision, Variant
from service.contract.precision import HALF

LIMITS = ParityLimits(1e-5, 0.0, 1e-4, 0.0)
# Of graphs that round, written for texts: no neighbour may change them. What PyTorch would have
# chosen otherwise is the precision's cost, which the manifest states; the limit only tells a coarse
# graph from a wrong one.
ROUNDED_LIMITS = ParityLimits(float("inf"), 0.75, 1e-4, 0.75)
QUANTIZED: dict[Precision, Callable[[onnx.ModelProto], onnx.ModelProto]] = {
    "int8": quantize_rows,
    "int8-weights": partial(quantize_blocks, bits=8),
}
NUM_SOURCES = 16  # texts that the cost is measured on, 64 tokens of each output
NETWORK = "encoder-decoder"


def export_encoder_decoder(
    checkpoint: Checkpoint, settings: ExportSettings, held_out: HeldOut, on_step: OnStep
) -> ExportedModel:
    """Both graphs of an encoder-decoder, checked together, and the manifest."""
    network = checkpoint.model
    assert isinstance(network, Transformer), "others have their own recipe"
    if held_out.text is not None:
        raise ExportError("held-out text is for decoders that continue texts; this one needs pairs")
    check_float(settings, "an encoder-decoder's", also=QUANTIZED)
    if network.config.has_relative_positions and settings.target != "cpu":
        raise ExportError(
            f"target is {settings.target}, but graphs of relative positions are for the CPU"
        )
    kinds = settings.graphs(("fp32",))

    def build(kind: GraphKind) -> Built:
        if kind.precision in QUANTIZED:
            return _build_quantized(checkpoint, network, kind, settings, on_step)
        return _build(network, kind, on_step)

    graphs = build_graphs(kinds, build, lambda _: None)
    config = network.config
    manifest = Manifest(
        task="text-generation",
        network=NETWORK,
        max_tokens=checkpoint.max_tokens + config.max_positions,
        max_source_tokens=checkpoint.max_tokens,
        pad_token_id=config.pad_token_id,
        eos_token_ids=(config.end_token_id,),
        first_token_ids=config.first_token_ids,
        banned_token_ids=config.banned_token_ids,
        sampling=dict(checkpoint.sampling),
        decoder_start_token_id=config.start_token_id,
        origin=checkpoint.origin,
        **example_fields(settings, of_texts(GENERAL[:1])),
        versions=versions(),
        **graphs.manifest_fields(),
    )
    main = graphs.main
    return ExportedModel(
        main.graph, checkpoint.tokenizer, manifest, graphs.others, encoder=main.encoder
    )


def _build(network: Transformer, kind: GraphKind, on_step: OnStep) -> Built:
    """Both graphs in one precision.

    Those of fp16 and bf16 are compared in float32 with a network whose weights are rounded as
    theirs are, so that only the order of sums differs.
    """
    precision = kind.precision
    on_step(f"{precision}: tracing the encoder")
    encoder = trace_encoder(network, precision)
    on_step(f"{precision}: tracing the decoder")
    decoder = trace_target_decoder(network, precision)
    on_step(f"{precision}: comparing cached decoding with recomputing from scratch")
    is_half = precision in HALF
    rounded = copy.deepcopy(network).to(DTYPES[precision]).float() if is_half else network
    parity = measure_parity(rounded, widened(encoder), widened(decoder))
    check_parity(parity, rounded)
    fused = dict(Counter(fused_ops(encoder)) + Counter(fused_ops(decoder)))
    if is_half:
        decoder = with_candidates(decoder)
        check_supported(encoder)
        check_supported(decoder)
    device: GraphDevice = "cuda" if is_half else "cpu"
    return Built(
        decoder, Variant(precision, fused, parity.to_dict(), device=device), encoder=encoder
    )


def _build_quantized(
    checkpoint: Checkpoint,
    network: Transformer,
    kind: GraphKind,
    settings: ExportSettings,
    on_step: OnStep,
) -> Built:
    """Both graphs with rounded weights, compared on sample texts once they are right in float32."""
    precision = kind.precision
    exact = _build(network, GraphKind("fp32"), on_step)
    assert exact.encoder is not None, "an encoder-decoder has one"
    on_step(f"{precision}: quantising weights")
    encoder, decoder = (QUANTIZED[precision](graph) for graph in (exact.encoder, exact.graph))
    samples = sample_rows(checkpoint.tokenizer, settings.calibration, checkpoint.max_tokens)
    sources = [row for row in samples.checked if row][:NUM_SOURCES]
    if not sources:
        raise ExportError("the texts to compare on have no tokens, at least 1 is needed")
    on_step(f"{precision}: comparing the outputs of {len(sources)} texts with PyTorch's")
    parity = measure_texts(network, encoder, decoder, sources)
    ROUNDED_LIMITS.check(parity)
    fused = dict(Counter(fused_ops(encoder)) + Counter(fused_ops(decoder)))
    return Built(
        decoder, Variant(precision, fused, parity.to_dict(), device="cpu"), encoder=encoder
    )


def check_parity(parity: DecoderParity, network: Transformer) -> None:
    """Raise `ExportError` where graphs are further from the network than roundings bring them."""
    LIMITS.check(parity, lambda: logits_rounding(network))
