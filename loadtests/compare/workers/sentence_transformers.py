"""sentence-transformers on PyTorch with its own loop: sorted by length, in batches of 32."""

import time

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer

from loadtests.compare.worker import Answer, Run, Setup, Work, serve


def open_engine(setup: Setup) -> Run:
    torch.set_num_threads(setup.threads)
    options = {"dtype": getattr(torch, setup.options["dtype"])}
    if setup.options["task"] == "embed":
        embedder = SentenceTransformer(setup.model, device="cpu", model_kwargs=options)

        def outputs(work: Work) -> torch.Tensor:
            found: torch.Tensor = embedder.encode(
                work.texts,
                normalize_embeddings=True,
                convert_to_tensor=True,
                show_progress_bar=False,
            )
            return found
    else:
        most = setup.options["max_tokens"]
        scorer = CrossEncoder(setup.model, device="cpu", model_kwargs=options, max_length=most)

        def outputs(work: Work) -> torch.Tensor:
            found: torch.Tensor = scorer.predict(
                work.pairs, convert_to_tensor=True, show_progress_bar=False
            )
            return found.reshape(-1, 1)

    def run(work: Work) -> Answer:
        started_s = time.perf_counter()
        values = outputs(work)
        seconds = time.perf_counter() - started_s
        return Answer(seconds, values.float().tolist())

    return run


if __name__ == "__main__":
    serve(open_engine)
