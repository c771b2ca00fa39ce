"""`aiperf`: its load of streamed completions and of embeddings, of which none fails."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

NUM_REQUESTS, NUM_TOKENS = 10, 8
AIPERF = Path(sys.executable).with_name("aiperf")
COMMON = (
    *("--url", os.environ["ATTENDANT_URL"]),
    *("--tokenizer", os.environ["ATTENDANT_TOKENIZER"]),
    *("--request-count", str(NUM_REQUESTS)),
    *("--concurrency", "2"),
    *("--isl", "24"),
    *("--ui", "none"),
    "--no-gpu-telemetry",
)
# With this variable, which others need, it takes the name of a folder for one on a hub.
ENVIRONMENT = {name: text for name, text in os.environ.items() if name != "HF_HUB_OFFLINE"}


def report(*arguments: str) -> dict[str, Any]:
    """What it measured; no request failed."""
    with tempfile.TemporaryDirectory() as folder:
        command: list[str | Path] = [
            AIPERF,
            "profile",
            *COMMON,
            "--artifact-dir",
            folder,
            *arguments,
        ]
        subprocess.run(command, check=True, env=ENVIRONMENT)  # noqa: S603
        path = Path(folder) / "profile_export_aiperf.json"
        measured: dict[str, Any] = json.loads(path.read_text())
    assert measured["request_count"]["avg"] == NUM_REQUESTS
    assert not measured["error_summary"], measured["error_summary"]
    return measured


def main() -> None:
    completions = report(
        *("--model", "tiny-gpt", "--endpoint-type", "completions", "--streaming"),
        *("--osl", str(NUM_TOKENS), "--extra-inputs", "ignore_eos:true"),
        "--use-server-token-count",
    )
    assert completions["usage_completion_tokens"]["avg"] == NUM_TOKENS
    assert completions["inter_token_latency"]["avg"] > 0
    report("--model", "tiny-embed", "--endpoint-type", "embeddings")


if __name__ == "__main__":
    main()
