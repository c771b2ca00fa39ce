"""Result that an import would have for a folder, found by the import's own code on headers alone.

Imports PyTorch, and reads no values of weights.
"""

from pathlib import Path

from commands.folders.details import Details
from commands.folders.importing import read_checkpoint
from commands.remarks import showing_remarks
from models.checkpoints.weights import headers_alone
from models.errors import ModelError
from models.networks.kinds import kind_of
from models.recipes.import_settings import ImportSettings


def look_closer(folder: Path, settings: ImportSettings) -> Details:
    """The details, in the time of the folder's small files."""
    remarks: list[str] = []
    with showing_remarks(remarks.append), headers_alone():
        try:
            checkpoint = read_checkpoint(str(folder), settings)
        except ModelError as error:
            return Details(remarks=tuple(remarks), refusal=str(error))
    model = checkpoint.model
    return Details(
        checkpoint.task,
        kind_of(model).name,
        checkpoint.labels,
        checkpoint.max_tokens,
        str(getattr(model, "pooling_description", "")),
        bool(checkpoint.chat),
        sum(parameter.numel() for parameter in model.parameters()),
        tuple(remarks),
    )
