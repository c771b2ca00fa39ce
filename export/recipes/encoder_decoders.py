"""Export one encoder-decoder: trace both graphs, check, write. Each step may refuse.

Knows nothing of the command line; a callback reports progress.
"""

from collections import Counter

from export.checks.decoding import ParityLimits
from export.checks.encoder_decoding import measure_parity
from export.errors import ExportError
from export.graphs.encoder_decoder import trace_encoder, trace_target_decoder
from export.graphs.graph import fused_ops
from export.recipes.decoders import check_size
from export.settings import ExportSettings, HeldOut, OnStep, check_fp32, versions
from export.writer import ExportedModel
from models.checkpoints.checkpoint import Checkpoint
from models.networks.transformer import Transformer
from service.contract.manifest import EXAMPLE, Manifest

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
    check_fp32(settings, "an encoder-decoder's")
    check_size(network)
    on_step("tracing the encoder")
    encoder = trace_encoder(network)
    on_step("tracing the decoder")
    decoder = trace_target_decoder(network)
    on_step("comparing cached decoding with recomputing from scratch")
    parity = measure_parity(network, encoder, decoder)
    LIMITS.check(parity)
    config = network.config
    manifest = Manifest(
        task="text-generation",
        precision="fp32",
        network=NETWORK,
        max_tokens=checkpoint.max_tokens + config.max_positions,
        max_source_tokens=checkpoint.max_tokens,
        pad_token_id=config.pad_token_id,
        eos_token_ids=(config.end_token_id,),
        decoder_start_token_id=config.start_token_id,
        fused=dict(Counter(fused_ops(encoder)) + Counter(fused_ops(decoder))),
        parity=parity.to_dict(),
        origin=checkpoint.origin,
        example=settings.example or EXAMPLE,
        versions=versions(),
    )
    return ExportedModel(decoder, checkpoint.tokenizer, manifest, encoder=encoder)
