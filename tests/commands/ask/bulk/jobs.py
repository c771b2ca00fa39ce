"""Jobs without a server: vectors that follow from the texts. The program ends itself by time."""

import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attendant.v1 import text_pb2 as pb

from commands.ask.bulk.job import Job, run_job
from commands.ask.bulk.sources import Source
from commands.ask.bulk.work import Work, work_of
from commands.ask.client.refusal import CallError

WIDTH = 5
MODEL = pb.Model(name="mini", version="3", precision="fp32", embedding_size=WIDTH)
NAMED = {"model": "mini", "version": "3", "precision": "fp32"}
REFUSED = "refuse me"


def vector_of(text: str) -> list[float]:
    generator = np.random.default_rng(list(text.encode()))
    return [float(value) for value in generator.normal(size=WIDTH).astype(np.float32)]


def respond(texts: Sequence[str]) -> pb.EmbedResponse:
    """Vectors, or the refusal of a request with a text that is not taken."""
    for index, text in enumerate(texts):
        if REFUSED in text:
            raise CallError("INVALID_ARGUMENT", f"text {index} has 99 tokens")
    return pb.EmbedResponse(
        results=[pb.Embedding(values=vector_of(text), num_tokens=3) for text in texts]
    )


def embedding(**fields: Any) -> Work:
    request = pb.EmbedRequest(
        model="mini", encodings=["EMBEDDING_ENCODING_FLOAT"], background=True, **fields
    )
    return work_of(request, MODEL)


def job_of(path: Path, output: Path, **changes: object) -> Job:
    fields = {"source": Source(path), "output": output, "work": embedding(), "model": NAMED}
    bounds = {"window_lines": 64, "in_flight": 3, "patience_s": 5.0}
    return Job(**fields | bounds | changes)  # type: ignore[arg-type]


def write_texts(path: Path, num_lines: int = 1_000) -> list[str]:
    """Lines of several lengths; every 97th is empty, and every 131st refused."""
    lines = []
    for number in range(1, num_lines + 1):
        text = f"{number} " + "word " * (number * 7 % 11)
        text = f"{text}{REFUSED}" if number % 131 == 0 else text
        lines.append("" if number % 97 == 0 else text)
    path.write_text("\n".join(lines) + "\n")
    return lines


def main(source: str, output: str, ends_after_s: str) -> None:
    def ask(texts: Sequence[str]) -> pb.EmbedResponse:
        time.sleep(0.004)
        return respond(texts)

    def end() -> None:
        time.sleep(float(ends_after_s))
        os._exit(9)  # nothing is flushed, and nothing is tidied up

    threading.Thread(target=end, daemon=True).start()
    run_job(job_of(Path(source), Path(output)), ask, restarts=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
