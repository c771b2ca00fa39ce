"""The settings of `attendant serve FOLDER` beside those of the server. Imports no PyTorch."""

import os
from dataclasses import dataclass
from pathlib import Path

from models.settings import Settings, setting

CACHE_VARIABLE = "ATTENDANT_FOLDER_CACHE"


@dataclass(frozen=True, slots=True)
class FolderSettings(Settings):
    """Places that folders come from, and that their exports are kept in."""

    revision: str | None = setting(
        None,
        "Branch, tag or commit of hub ids without one of their own (ID@REVISION).",
        shown="main",
    )
    offline: bool = setting(
        False,
        "Take hub ids from the hub's cache alone; HF_HUB_OFFLINE=1 does so too. Folders never need "
        "a network.",
    )
    variant: str | None = setting(
        None,
        "Form of the network to serve, of a folder that has several: weights, or a graph in ONNX "
        "by what its file's name ends with, as q4 of model_q4.onnx, or by the name; fp32 is "
        "model.onnx. Also ID:VARIANT.",
        shown="weights, else fp32, or what there is",
    )
    refresh: bool = setting(False, "Export folders anew, also those whose exports are kept.")
    folder_cache: Path | None = setting(
        None,
        "Folder in which exports of served folders are kept for the next start.",
        shown="~/.cache/attendant, or where XDG_CACHE_HOME says",
        variable=CACHE_VARIABLE,
    )
    folder_cache_bytes: int = setting(
        100_000_000_000,
        "Most bytes of kept exports; those that were served the longest time ago are removed "
        "first, and none that a server has open.",
        1,
    )

    @property
    def cache(self) -> Path:
        """The folder of kept exports."""
        if self.folder_cache is not None:
            return self.folder_cache
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(home) / "attendant"
