"""The model of a folder's graph beside transformers' network of the folder's weights.

Imports PyTorch, where it is installed and the folder has weights.
"""

import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from export.adopted.vectors import VectorUse
from export.certificates.certificate import Certificate
from models.checkpoints.declared import encoder_folder
from models.checkpoints.folder_plan import Plan
from models.checkpoints.graph_files import WEIGHTS
from models.checkpoints.plan import has_torch, headers_of
from models.errors import CheckpointError
from models.recipes.import_settings import ImportSettings
from models.writing import amount
from service.contract.manifest import Manifest

if TYPE_CHECKING:
    from export.certificates.case import Case

FLOAT_BYTES = 4


def with_certificate(
    plan: Plan,
    settings: ImportSettings,
    model: Path,
    facts: dict[str, Any],
    vectors: VectorUse | None = None,
) -> dict[str, Any]:
    """The facts of a written model with its comparison, which its manifest gets too.

    A model that differs from the folder's weights is removed, and `CheckpointError` raised, unless
    the settings accept it. `vectors` are the way from hidden states to vectors, where it is known.
    """
    text = f"{plan.graph} {facts['certificate']}"
    added: dict[str, Any] = {}
    if WEIGHTS in plan.variants and settings.compare != "none":
        compared = compare_with_weights(plan, settings, model / "1", vectors)
        if not settings.accept_difference and not compared.is_equal:
            shutil.rmtree(model)
            try:
                compared.check()
            except CheckpointError as error:
                raise CheckpointError(
                    f"{plan.graph} is not served: {error}; --variant {WEIGHTS} takes the weights"
                ) from error
        text += f"; with the weights beside it {compared}"
        added = {"weights": compared.to_dict()}
    path = model / "1" / "manifest.json"
    manifest = Manifest.from_json(path.read_text(encoding="utf-8"))
    certificate = {**manifest.certificate, **added, "graph": plan.graph, "text": text}
    path.write_text(replace(manifest, certificate=certificate).to_json(), encoding="utf-8")
    return {**facts, "certificate": text}


def compare_with_weights(
    plan: Plan, settings: ImportSettings, version: Path, vectors: VectorUse | None
) -> Certificate:
    """The certificate of a version's graph by transformers; says why where there is none."""
    if not has_torch() or find_spec("transformers") is None:
        return Certificate.not_compared(
            "PyTorch and transformers are not both installed: pip install torch transformers",
            plan.graph,
        )
    from export.certificates.case import MAX_BYTES
    from export.certificates.certify import certify

    headers = headers_of(encoder_folder(plan.folder))
    num_bytes = FLOAT_BYTES * sum(header.num_values for _, header in headers)
    if num_bytes > MAX_BYTES:
        return Certificate.not_compared(
            f"the weights have {amount(num_bytes)} in float32, more than {amount(MAX_BYTES)}, and "
            "a graph has no first layers alone",
            plan.graph,
        )
    return certify(graph_case(plan, settings, version, vectors))


def graph_case(
    plan: Plan, settings: ImportSettings, version: Path, vectors: VectorUse | None = None
) -> "Case":
    """The model of a graph in a version's folder, beside the folder that it was made of."""
    from export.certificates.case import Case
    from export.certificates.graphs import GraphSubject, limit_of

    manifest = Manifest.from_json((version / "manifest.json").read_text(encoding="utf-8"))
    return Case(
        GraphSubject.of(version, vectors),
        plan.folder,
        is_as_declared=settings.pooling is None and settings.normalize is None,
        graph=plan.graph,
        limit=limit_of(manifest.precision, plan.graph),
    )
