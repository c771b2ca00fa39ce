"""Put a demo's models into the repository of a running server, which finds them when it polls.

Each appears whole: it is linked into a hidden folder there, which is then renamed. Files of a model
are never changed after an export, so that both folders may share them.
"""

import os
import shutil
from pathlib import Path

from demos.steps import Places
from demos.systems import Demo


def keep(demo: Demo, places: Places, repository: Path) -> list[str]:
    """The names of the models that were put there; one of a name that is taken stays out."""
    models = places.folder / "repository"
    taken = [name for name in demo.models if (repository / name).exists()]
    names = [name for name in demo.models if name not in taken]
    for name in names:
        _keep_one(models / name, repository / name)
    return names


def _keep_one(model: Path, target: Path) -> None:
    staging = target.with_name(f".{target.name}.keeping")
    staging.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(staging, ignore_errors=True)  # what a killed run left
    shutil.copytree(model, staging, copy_function=_link)
    staging.rename(target)


def _link(source: str, target: str) -> None:
    """A second name of a file, or a copy on another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
