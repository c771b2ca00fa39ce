"""Jobs without a server: vectors that follow from the texts. The program ends itself by time."""

import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from commands.ask.bulk.job import Job, run_job
from commands.ask.bulk.sources import Source
from commands.ask.bulk.work import Work, work_of
from commands.ask.client.refusal import CallError
from service.calls.answers import Timings
from service.calls.models import ModelFacts
from service.calls.texts import Embed, Embedding, Embeddings

WIDTH = 5
MODEL = ModelFacts(name="mini", version="3", precision="fp32", embedding_size=WIDTH)
NAMED = {"model": "mini", "version": "3", "precision": "fp32"}
REFUSED = "refuse me"


def vector_of(text: str) -> list[float]:
    generator = np.random.default_rng(list(text.encode()))
    return [float(value) for value in generator.normal(size=WIDTH).astype(np.float32)]


def respond(texts: Sequence[str]) -> Embeddings:
    """Vectors, or the refusal of a request with a text that is not taken."""
    for index, text in enumerate(texts):
        if REFUSED in text:
            raise CallError("INVALID_ARGUMENT", f"text {index} has 99 tokens")
    vectors = (np.array(vector_of(text), np.float32) for text in texts)
    results = [Embedding(values=vector, num_tokens=3) for vector in vectors]
    return Embeddings(model="", version="", timings=Timings(), num_tokens=0, results=results)


def embedding(**fields: Any) -> Work:
    call = Embed(model="mini", encodings=("float",), background=True, **fields)
    return work_of(call, MODEL)


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
    def ask(texts: Sequence[str]) -> Embeddings:
        time.sleep(0.004)
        return respond(texts)

    def end() -> None:
        time.sleep(float(ends_after_s))
        os._exit(9)  # nothing is flushed, and nothing is tidied up

    threading.Thread(target=end, daemon=True).start()
    run_job(job_of(Path(source), Path(output)), ask, restarts=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
