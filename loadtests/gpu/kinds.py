"""The kinds of models that are checked: one row each, with network, export, limits and reference.

The four most used come first. Limits are of a precision, and are guesses until a GPU has calibrated
them: each check prints what PyTorch itself differs by in that precision beside them.
docs/how-to/cuda.md says what was verified on CUDA.
"""

from dataclasses import dataclass

from loadtests.gpu import networks, references
from loadtests.gpu.figures import LIMITS, Limits
from loadtests.gpu.networks import Make, checkpoint_of
from loadtests.gpu.references import Reference
from models.checkpoints.checkpoint import Checkpoint
from service.contract.manifest import Precision

NO_FLOAT32 = "CUDA's GroupQueryAttention has no float32"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of model."""

    make: Make
    reference: Reference
    has_cache: bool = False  # which GroupQueryAttention keeps
    task: str | None = None  # what it is exported for, where that is not its network's own

    def checkpoint(self, *, is_tiny: bool) -> Checkpoint:
        return checkpoint_of(self.make, is_tiny=is_tiny)

    def obstacle(self, device: str, precision: Precision) -> str:
        """Why a device cannot compute it in a precision; empty where it can."""
        if device == "cpu" and precision == "bf16":
            return "the CPU provider has no kernels for bfloat16"
        if device == "cuda" and precision == "fp32" and self.has_cache:
            return NO_FLOAT32
        return ""

    def limits(self, arithmetic: str) -> Limits:
        return LIMITS[arithmetic]


KINDS = {
    "classification": Kind(networks.classifier, references.texts),
    "embedding": Kind(networks.embedder, references.texts),
    "decoder": Kind(networks.gpt, references.decoder, has_cache=True),
    "llama": Kind(networks.llama, references.decoder, has_cache=True),
    "encoder-decoder": Kind(networks.encoder_decoder, references.encoder_decoder, has_cache=True),
    "gemma": Kind(networks.gemma, references.decoder, has_cache=True),
    "pairs": Kind(networks.pair_scorer, references.texts),
    "tokens": Kind(networks.tagger, references.texts),
    "answers": Kind(networks.answerer, references.texts),
    "fill-mask": Kind(networks.word_filler, references.texts),
    "features": Kind(networks.features, references.texts),
    "vision": Kind(networks.vision, references.vision),
    "attention": Kind(networks.classifier, references.attention, task="attention"),
    "recurrent": Kind(networks.recurrent, references.recurrent),
}
MOST_USED = tuple(KINDS)[:4]
SERVED = MOST_USED[:3]  # by the server of section 3
