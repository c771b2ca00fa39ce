"""Which exporter writes which network, and the tasks that a checkpoint can be exported for.

An exporter is one function of a checkpoint and settings. A network that is not in `EXPORTERS` is a
text network: `export/recipes/texts.py` traces, quantises and checks those all alike.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from export.errors import ExportError
from export.recipes.attention import export_attention
from export.recipes.decoders import export_decoder
from export.recipes.encoder_decoders import export_encoder_decoder
from export.recipes.recurrent import export_recurrent
from export.recipes.texts import export_checkpoint
from export.recipes.vision import export_vision
from export.settings import ExportSettings
from models.checkpoints.checkpoint import Checkpoint
from models.checkpoints.uses import used_for
from models.data.datasets import Example
from models.networks.kinds import kind_of
from service.contract.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Exported:
    """The written version and its measurements."""

    folder: Path
    manifest: Manifest | None = None  # None: a model of tensors has none
    measured: Mapping[str, float] = field(default_factory=dict)  # where there is no manifest


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Held-out data to measure on; each network uses its part."""

    labelled: tuple[Example, ...] = ()
    text: str | None = None


OnStep = Callable[[str], None]
Exporter = Callable[[Checkpoint, ExportSettings, HeldOut, OnStep], Exported]


def _export_text_network(
    checkpoint: Checkpoint, settings: ExportSettings, held_out: HeldOut, on_step: OnStep
) -> Exported:
    return Exported(*export_checkpoint(checkpoint, settings, held_out.labelled, on_step))


def _export_gpt(
    checkpoint: Checkpoint, settings: ExportSettings, held_out: HeldOut, on_step: OnStep
) -> Exported:
    return Exported(*export_decoder(checkpoint, settings, held_out.text, on_step))


def _export_recurrent(
    checkpoint: Checkpoint, settings: ExportSettings, _: HeldOut, on_step: OnStep
) -> Exported:
    folder, measured = export_recurrent(checkpoint, settings, on_step)
    return Exported(folder, measured=measured)


def _export_encoder_decoder(
    checkpoint: Checkpoint, settings: ExportSettings, held_out: HeldOut, on_step: OnStep
) -> Exported:
    if held_out.text is not None:
        raise ExportError("held-out text is for decoders that continue texts; this one needs pairs")
    return Exported(*export_encoder_decoder(checkpoint, settings, on_step))


def _export_vision(
    checkpoint: Checkpoint,
    settings: ExportSettings,
    _: HeldOut,
    on_step: OnStep,
) -> Exported:
    return Exported(*export_vision(checkpoint, settings, on_step))


EXPORTERS: dict[str, Exporter] = {  # by the network's name in models/networks/kinds.py
    "gpt": _export_gpt,
    "vision-transformer": _export_vision,
    "recurrent": _export_recurrent,
    "transformer": _export_encoder_decoder,
}


# What may be exported of many networks beside what they are for; `models/checkpoints/uses.py` has
# those that are networks of their own.
VARIANTS: dict[str, Exporter] = {
    "attention": lambda checkpoint, settings, _, on_step: Exported(
        *export_attention(checkpoint, settings, on_step)
    ),
}


def export_any(
    checkpoint: Checkpoint,
    settings: ExportSettings,
    held_out: HeldOut = HeldOut(),
    on_step: OnStep = lambda _: None,
    task: str | None = None,
) -> Exported:
    """Write a version into the repository; raises `ExportError`, and then nothing is written."""
    exporter = VARIANTS.get(task or "")
    if exporter is None:
        checkpoint = used_for(checkpoint, task, also=VARIANTS)
        exporter = EXPORTERS.get(kind_of(checkpoint.model).name, _export_text_network)
    if settings.kv_cache != "float" and exporter is not _export_gpt:
        raise ExportError(
            f"kv_cache is {settings.kv_cache}, which is for decoders that continue texts"
        )
    return exporter(checkpoint, settings, held_out, on_step)
