"""Exports a checkpoint: the recipe of its network builds graphs and manifest, which are written.

A network that is not in `RECIPES` is a text network: `export/recipes/texts.py` traces, quantises
and checks those all alike.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from export.errors import ExportError
from export.recipes.attention import export_attention
from export.recipes.decoders import export_decoder
from export.recipes.encoder_decoders import export_encoder_decoder
from export.recipes.image_attention import export_image_attention
from export.recipes.recurrent import export_recurrent
from export.recipes.texts import export_text_network
from export.recipes.vision import export_vision
from export.settings import ExportSettings, HeldOut, OnStep, check_name
from export.writer import ExportedModel, write_model
from models.checkpoints.checkpoint import Checkpoint
from models.checkpoints.lazy import realise
from models.checkpoints.uses import used_for
from models.networks.kinds import kind_of
from models.networks.vit import VisionTransformer
from service.contract.manifest import Manifest

# Graphs and manifest of a checkpoint, whose network is in evaluation mode. Raises `ExportError`.
Recipe = Callable[[Checkpoint, ExportSettings, HeldOut, OnStep], ExportedModel]
RECIPES: dict[str, Recipe] = {  # by the network's name in models/networks/kinds.py
    "gpt": export_decoder,
    "llama": export_decoder,
    "traced-decoder": export_decoder,
    "vision-transformer": export_vision,
    "recurrent": export_recurrent,
    "transformer": export_encoder_decoder,
}
# What may be exported of many networks beside what they are for; `models/checkpoints/uses.py` has
# those that are networks of their own.
VARIANTS: dict[str, Recipe] = {"attention": export_attention}
IMAGE_VARIANTS: dict[str, Recipe] = {"attention": export_image_attention}


class Exported(NamedTuple):
    """The written version and its measurements."""

    folder: Path
    manifest: Manifest


def export_any(
    checkpoint: Checkpoint,
    settings: ExportSettings,
    held_out: HeldOut = HeldOut(),
    on_step: OnStep = lambda _: None,
    task: str | None = None,
) -> Exported:
    """Write a version into the repository.

    Raises `ExportError`, and `SettingError` for a task that the network cannot be exported for; the
    repository is then as it was.
    """
    check_name(settings.name)
    is_of_images = isinstance(checkpoint.model, VisionTransformer)
    recipe = (IMAGE_VARIANTS if is_of_images else VARIANTS).get(task or "")
    if recipe is None:
        checkpoint = used_for(checkpoint, task, also=VARIANTS)
        recipe = RECIPES.get(kind_of(checkpoint.model).name, export_text_network)
    if settings.kv_cache != "float" and recipe is not export_decoder:
        raise ExportError(
            f"kv_cache is {settings.kv_cache}, which is for decoders that continue texts"
        )
    if settings.lora_rank and recipe is not export_decoder:
        raise ExportError(
            f"lora_rank is {settings.lora_rank}, which is for decoders that continue texts: merge "
            "the adapter of another model with `attendant import --adapter`"
        )
    if recipe is not export_decoder:
        realise(checkpoint.model)
    checkpoint.model.eval()
    exported = recipe(checkpoint, settings, held_out, on_step)
    manifest = replace(exported.manifest, certificate=dict(checkpoint.certificate))
    exported = replace(exported, manifest=manifest)
    on_step("writing")
    folder = write_model(
        exported, settings.repository, settings.name, settings.version, settings.max_batch_size
    )
    return Exported(folder, exported.manifest)
