"""Print the packages that `pyproject.toml` asks for, with those of the extras named.

They are installed before the project, in a layer that a changed line of source leaves as it is.
"""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = [one for extra in sys.argv[1:] for one in project["optional-dependencies"][extra]]
sys.stdout.write("\n".join([*project["dependencies"], *extras]) + "\n")
