"""`schemathesis`: requests made from the port's own description, valid and not."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "unsupported_method",
)
# 501 is what the server does not offer, 503 that a model is not ready, or may not be loaded so.
SETTINGS = """
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", "501", "503"]
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "schemathesis.toml").write_text(SETTINGS)
        described = f"{os.environ['ATTENDANT_URL']}/openapi.json"
        options = ["--checks", ",".join(CHECKS), "--max-examples", "20", "--seed", "1"]
        options += ["--phases", "examples,coverage,fuzzing", "--no-color", "--warnings", "off"]
        command = [str(SCHEMATHESIS), "run", described, *options]
        subprocess.run(command, check=True, cwd=folder)  # noqa: S603


if __name__ == "__main__":
    main()
