"""An environment that has all packages of this one, but Attendant itself only as a checkout."""

import os
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'protos'}"}
METADATA = ".egg-info"  # which installing leaves in the checkout


def interpreter_without_us(folder: Path) -> Path:
    """The interpreter of such an environment, which is made in the folder."""
    venv.create(folder, with_pip=False)
    packages = Path(sysconfig.get_path("purelib"))
    target = folder / packages.relative_to(sys.prefix)
    for path in packages.iterdir():
        if "attendant" not in path.name:
            (target / path.name).symlink_to(path)
    return folder / "bin" / "python"


def environment_without_metadata(folder: Path) -> dict[str, str]:
    """The same variables for a checkout that was never installed: links, made in the folder."""
    for path in ROOT.iterdir():
        if path.is_dir() and path.suffix != METADATA and not path.name.startswith("."):
            (folder / path.name).symlink_to(path)
    return ENVIRONMENT | {"PYTHONPATH": f"{folder}{os.pathsep}{folder / 'protos'}"}
