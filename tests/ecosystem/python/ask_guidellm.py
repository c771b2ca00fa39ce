"""`guidellm`: its load of streamed completions, of which none fails, with a tokenizer on disk."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

NUM_REQUESTS, NUM_TOKENS = 6, 8
GUIDELLM = Path(sys.executable).with_name("guidellm")


def run(report: Path) -> None:
    backend = f"target={os.environ['ATTENDANT_URL']},model=tiny-gpt,request_format=/v1/completions"
    options = {
        "backend": f"kind=openai_http,{backend}",
        "profile": "kind=synchronous",
        "constraint": f"kind=max_requests,count={NUM_REQUESTS}",
        "tokenizer": f"kind=hf_auto,model={os.environ['ATTENDANT_TOKENIZER']}",
        "data": f"kind=synthetic_text,prompt_tokens=24,output_tokens={NUM_TOKENS}",
        "output": f"kind=json,path={report}",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    subprocess.run([GUIDELLM, "run", *words, "--disable-console"], check=True)  # noqa: S603


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        run(report)
        (benchmark,) = json.loads(report.read_text())["benchmarks"]
    metrics = benchmark["metrics"]
    totals = metrics["request_totals"]
    assert (totals["successful"], totals["errored"]) == (NUM_REQUESTS, 0), totals
    # It sets `ignore_eos`.
    assert metrics["output_token_count"]["successful"]["mean"] == NUM_TOKENS


if __name__ == "__main__":
    main()
