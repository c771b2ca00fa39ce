"""`aider`: a session over chats in which the model writes a file, in the form that it asks for."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ARGUMENTS = (
    *("--model", "openai/agent", "--edit-format", "whole", "--message", "Write the file"),
    *("--yes-always", "--no-git", "--no-check-update", "--no-show-model-warnings"),
    *("--analytics-disable", "--no-show-release-notes", "--no-fancy-input", "--no-pretty"),
    "proof.txt",
)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        variables = {
            "OPENAI_API_BASE": f"{os.environ['ATTENDANT_URL']}/v1",
            "OPENAI_API_KEY": "none",
            "HOME": folder,
        }
        subprocess.run(  # noqa: S603 - of this environment
            [Path(sys.executable).parent / "aider", *ARGUMENTS],
            cwd=folder,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            check=True,
        )
        assert (Path(folder) / "proof.txt").read_text().strip() == "the tool ran"


if __name__ == "__main__":
    main()
