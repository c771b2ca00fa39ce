"""CTranslate2: BERT's encoder and pooler, its two-label head in numpy; GPT-2 in static batches."""

import json
from pathlib import Path

import ctranslate2
import numpy as np
from safetensors.numpy import load_file

from loadtests.compare.worker import Run, Setup, classifying, generating_in_groups, serve


def open_engine(setup: Setup) -> Run:
    kind, folder = setup.options["compute_type"], Path(setup.model)
    if setup.options["task"] == "classify":
        return _open_encoder(folder, kind, setup.threads)
    return _open_generator(folder, kind, setup.threads)


def _open_encoder(folder: Path, kind: str, threads: int) -> Run:
    encoder = ctranslate2.Encoder(str(folder), compute_type=kind, intra_threads=threads)
    weights = load_file(folder / "model.safetensors")
    head, bias = weights["classifier.weight"].T, weights["classifier.bias"]

    def logits(rows: list[list[int]]) -> list[list[float]]:
        pooled = encoder.forward_batch(rows).pooler_output
        found: list[list[float]] = (np.array(pooled) @ head + bias).astype(float).tolist()
        return found

    return classifying(logits)


def _open_generator(folder: Path, kind: str, threads: int) -> Run:
    generator = ctranslate2.Generator(str(folder), compute_type=kind, intra_threads=threads)
    vocabulary = json.loads((folder / "vocabulary.json").read_text())

    def generate(prompts: list[list[int]], num_tokens: int) -> list[list[int]]:
        """Its lengths are those of a whole batch; prompts of other lengths wait for the longest."""
        found = generator.generate_batch(
            [[vocabulary[token] for token in prompt] for prompt in prompts],
            max_length=num_tokens,
            min_length=num_tokens,
            beam_size=1,
            sampling_topk=1,
            include_prompt_in_result=False,
            end_token=[],
        )
        return [each.sequences_ids[0] for each in found]

    return generating_in_groups(generate)


if __name__ == "__main__":
    serve(open_engine)
