"""A model of a folder whose weights PyTorch reads: imported and exported.

docs/how-to/cuda.md says what was verified on CUDA.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from commands.folders.cache import MODEL
from commands.folders.configuration import without_name
from commands.folders.cost import default_precision
from commands.folders.importing import certified, read_checkpoint
from export.exporter import export_any
from export.settings import ExportSettings
from models.recipes.import_settings import ImportSettings

NOT_COMPARED = "not compared: a checkpoint of Attendant's own, or --compare none"


def make(job: dict[str, Any], repository: Path, on_step: Callable[[str], None]) -> dict[str, Any]:
    """Write the model into the repository; the facts are what people are told of it."""
    on_step("reading the folder")
    imports = ImportSettings(**job["import"])
    checkpoint = read_checkpoint(job["folder"], imports)
    on_step("comparing with transformers")
    checkpoint = certified(checkpoint, job["folder"], imports)
    num_weights = sum(each.numel() for each in checkpoint.model.parameters())
    target, precision = job["device"], job["precision"]
    if precision == "auto" and target == "cpu":
        is_kept = checkpoint.task == "text-generation" and bool(checkpoint.kept())
        precision = default_precision(num_weights, has_cuda=False, is_kept=is_kept)
    settings = ExportSettings(
        name=MODEL, repository=repository, precision=precision, target=target, **job["export"]
    )
    exported = export_any(checkpoint, settings, on_step=on_step)
    without_name(repository / MODEL)
    manifest = exported.manifest
    return {
        "task": manifest.task,
        "precision": manifest.precision,
        "max_tokens": manifest.max_tokens,
        "labels": list(manifest.labels),
        "pooling": manifest.pooling,
        "has_chat_template": bool(checkpoint.chat),
        "num_weights": num_weights,
        "parity": manifest.parity,
        "certificate": checkpoint.certificate.get("text", NOT_COMPARED),
    }
