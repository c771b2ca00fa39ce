"""A LoRA adapter of PEFT beside a base that is kept already, under the base's served name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from commands.folders.cache import MODEL
from export.adapters import import_adapter
from export.settings import AdapterSettings


def make(job: dict[str, Any], repository: Path, on_step: Callable[[str], None]) -> dict[str, Any]:
    """Write the adapter into the repository; the facts are its base and its rank."""
    on_step("reading the adapter")
    link = repository / job["base"]
    link.symlink_to(Path(job["base_model"]), target_is_directory=True)
    settings = AdapterSettings(
        name=MODEL, base=job["base"], checkpoint=job["base_folder"], repository=repository
    )
    _, adapter = import_adapter(Path(job["folder"]), settings)
    link.unlink()
    return {"task": "adapter", "base": adapter.base, "rank": adapter.rank}
