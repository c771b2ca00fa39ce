"""The model of a folder's graph made once more, for a comparison with a server. Imports PyTorch."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from commands.folders.cache import MODEL
from commands.folders.onnx_certificate import graph_case
from commands.folders.onnx_maker import make
from export.certificates.case import Case
from export.certificates.certificate import Certificate
from export.errors import ExportError
from models.checkpoints.folder_plan import Plan
from models.errors import CheckpointError
from models.recipes.import_settings import ImportSettings
from service.contract.manifest import Manifest


@contextmanager
def remade(
    plan: Plan, imports: Mapping[str, Any], cache: Path
) -> Iterator[tuple[Case, Certificate]]:
    """The model, and its certificate by the weights beside it. Raises `CheckpointError`.

    It is beside kept exports where only these are on the folder's disk: files of weights are links
    to the folder's own there, and copies on another disk.
    """
    settings = {**imports, "accept_difference": True}
    job = {"folder": str(plan.folder), "import": settings, "variant": plan.graph, "is_linked": True}
    places = [place for place in (Path(tempfile.gettempdir()), cache) if place.is_dir()]
    disk = (plan.folder / plan.graph).stat().st_dev
    near = next((place for place in places if place.stat().st_dev == disk), None)
    with tempfile.TemporaryDirectory(dir=near, prefix=".verify-") as scratch:
        try:
            make({**job, "precision": "auto", "device": "cpu"}, Path(scratch), lambda _: None)
            version = Path(scratch) / MODEL / "1"
            case = graph_case(plan, ImportSettings(**settings), version)
        except ExportError as error:
            raise CheckpointError(str(error)) from error
        text = (version / "manifest.json").read_text(encoding="utf-8")
        found = Manifest.from_json(text).certificate
        if "weights" in found:
            yield case, Certificate.from_dict(found["weights"])
        else:
            yield case, Certificate.not_compared(found["text"], plan.graph)
