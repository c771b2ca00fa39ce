"""Write docs/reference/openapi.json, the description of the HTTP port: `make openapi`.

It is what a server answers, whatever models it has. A test fails if the file is stale.
Its version is that of pyproject.toml, whether the package is installed or not.
"""

import asyncio
import json
import tempfile
import tomllib
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from service.app import App
from service.settings import Settings

NUM_OPEN = 3  # levels: the document, its components, the schemas of these
ROOT = Path(__file__).parents[2]
PATH = ROOT / "docs/reference/openapi.json"


def page_of(raw: bytes) -> str:
    """The file of a description: each path and each schema is a line."""
    description = json.loads(raw)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    description["info"]["version"] = project["version"]
    return _written(description, NUM_OPEN) + "\n"


def _written(value: Any, num_open: int, indent: str = "") -> str:  # noqa: ANN401 - of JSON
    if not num_open or not isinstance(value, dict):
        return json.dumps(value)
    inner = indent + " "
    lines = [
        f"{inner}{json.dumps(name)}: {_written(each, num_open - 1, inner)}"
        for name, each in value.items()
    ]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


async def ask() -> bytes:
    """The description by a server without models."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(model_repository=Path(folder), grpc_port=0, http_port=0, metrics_port=0)
        app = App(settings)
        await app.start()
        try:
            return await asyncio.to_thread(read, f"http://127.0.0.1:{app.http_port}/openapi.json")
        finally:
            await app.stop()


def read(address: str) -> bytes:
    with urlopen(address) as answer:  # noqa: S310 - of this process
        raw: bytes = answer.read()
        return raw


if __name__ == "__main__":
    PATH.write_text(page_of(asyncio.run(ask())))
