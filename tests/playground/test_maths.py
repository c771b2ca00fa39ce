"""The pure modules of the playground, by node's own test runner: `*.test.mjs` beside this file."""

import shutil
import subprocess
from pathlib import Path

import pytest

NODE = shutil.which("node")
FILES = sorted(Path(__file__).parent.glob("*.test.mjs"))


@pytest.mark.skipif(NODE is None, reason="node is not installed")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_pure_modules_hold_their_claims(file: Path) -> None:
    assert NODE is not None
    ran = subprocess.run(  # noqa: S603 - our own files
        [NODE, "--test", str(file)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
