"""Export one encoder-decoder: trace both graphs, check, write. Each step may refuse.

Knows nothing of the command line; a callback reports progress.
docs/cuda.md says what was verified on CUDA.
"""

import copy
from collections import Counter
from dataclasses import replace

from export.checks.decoding import DecoderParity, ParityLimits
from export.checks.encoder_decoding import measure_parity, rounding_of
from export.checks.provider_support import check_supported
from export.errors import ExportError
from export.examples import GENERAL, example_fields, of_texts
from export.graphs.candidates import with_candidates
from export.graphs.encoder_decoder import trace_encoder, trace_target_decoder
from export.graphs.graph import DTYPES, fused_ops
from export.graphs.widened import widened
from export.settings import ExportSettings, GraphKind, HeldOut, OnStep, check_float, versions
from export.writer import Built, ExportedModel, build_graphs
from models.checkpoints.checkpoint import Checkpoint
from models.networks.transformer import Transformer
from service.contract.manifest import GraphDevice, Manifest, Variant
from service.contract.precision import HALF

LIMITS = ParityLimits(1e-3, 0.0, 1e-4, 0.0)
NETWORK = "encoder-decoder"


def export_encoder_decoder(
    checkpoint: Checkpoint, settings: ExportSettings, held_out: HeldOut, on_step: OnStep
) -> ExportedModel:
    """Both graphs of an encoder-decoder, checked together, and the manifest."""
    network = checkpoint.model
    assert isinstance(network, Transformer), "others have their own recipe"
    if held_out.text is not None:
        raise ExportError("held-out text is for decoders that continue texts; this one needs pairs")
    check_float(settings, "an encoder-decoder's")
    if network.config.has_relative_positions and settings.target != "cpu":
        raise ExportError(
            f"target is {settings.target}, but graphs of relative positions are for the CPU"
        )
    kinds = settings.graphs(("fp32",))
    graphs = build_graphs(kinds, lambda kind: _build(network, kind, on_step), lambda _: None)
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


def check_parity(parity: DecoderParity, network: Transformer) -> None:
    """Raise `ExportError` where graphs are further from the network than roundings bring them.

    Where a network is so steep that float32 itself costs more than `LIMITS`, graph and network may
    both be as far from what is exact.
    """
    limits = LIMITS
    if parity.max_abs_error > LIMITS.max_abs_error:
        most = max(LIMITS.max_abs_error, 2 * rounding_of(network))
        limits = replace(LIMITS, max_abs_error=most)
    limits.check(parity)
