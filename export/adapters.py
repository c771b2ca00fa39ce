"""Write an adapter of PEFT's into a repository, as a model of its own name beside its base.

Knows nothing of the command line. What a graph takes is checked by the server, which has it open.
"""

import shutil
from pathlib import Path

import numpy as np

from export.errors import ExportError
from export.settings import AdapterSettings, check_name
from export.writer import choose_version
from models.checkpoints.adapters import fitted
from models.checkpoints.checkpoint import load_checkpoint
from models.checkpoints.peft import read_peft
from models.writing import writing
from service.contract.adapter import ADAPTER_FILENAME, Adapter, Factors, to_bytes


def import_adapter(source: Path, settings: AdapterSettings) -> tuple[Path, Adapter]:
    """The version's folder, and what is in it, of a folder of PEFT's.

    Raises `ExportError` where the repository has no such base, or another model of this name, and
    `CheckpointError` for an adapter of another checkpoint; nothing is written then.
    """
    for name in (settings.name, settings.base):
        check_name(name)
    if not (settings.repository / settings.base).is_dir():
        raise ExportError(
            f"base is '{settings.base}', and {settings.repository} has no such model: export its "
            "checkpoint with --lora-rank first"
        )
    target = settings.repository / settings.name
    if target.exists() and not any(target.glob(f"*/{ADAPTER_FILENAME}")):
        raise ExportError(f"'{settings.name}' exists and is no adapter: choose another --name")
    number = choose_version(target, settings.version)
    factors = fitted(read_peft(source), load_checkpoint(settings.checkpoint))
    adapter = Adapter(
        settings.base,
        {
            module: Factors(np.ascontiguousarray(each.a.T), np.ascontiguousarray(each.b.T))
            for module, each in factors.items()
        },
        source.name,
    )
    content = to_bytes(adapter)
    staging = settings.repository / f".{settings.name}.{number}.writing"
    with writing(target / str(number), len(content)):
        shutil.rmtree(staging, ignore_errors=True)  # what a killed import left
        try:
            (staging / str(number)).mkdir(parents=True)
            (staging / str(number) / ADAPTER_FILENAME).write_bytes(content)
            if target.exists():
                (staging / str(number)).rename(target / str(number))
            else:
                staging.rename(target)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return target / str(number), adapter
