"""transformers on PyTorch, eager, as its examples run it: groups padded to the longest."""

import time

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    StoppingCriteria,
    StoppingCriteriaList,
)

from loadtests.compare.worker import Run, Setup, classifying, generating_in_groups, padded, serve


class _Steps(StoppingCriteria):
    """Is called after each step, and stops nothing."""

    def __init__(self) -> None:
        self.times_s: list[float] = []

    def __call__(self, ids: torch.Tensor, _: torch.Tensor, **__: object) -> torch.BoolTensor:
        self.times_s.append(time.perf_counter())
        return torch.BoolTensor([False]).expand(len(ids))  # type: ignore[return-value]


def open_engine(setup: Setup) -> Run:
    torch.set_num_threads(setup.threads)
    dtype = getattr(torch, setup.options["dtype"])
    if setup.options["task"] == "classify":
        return _open_encoder(setup.model, dtype)
    return _open_generator(setup.model, dtype)


def _open_encoder(folder: str, dtype: torch.dtype) -> Run:
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=dtype)

    @torch.inference_mode()
    def logits(rows: list[list[int]]) -> list[list[float]]:
        ids, mask = (torch.tensor(values) for values in padded(rows))
        # Without a mask where none is needed: its attention is faster then.
        found = model(ids, attention_mask=None if bool(mask.all()) else mask)
        values: list[list[float]] = found.logits.float().tolist()
        return values

    return classifying(logits)


def _open_generator(folder: str, dtype: torch.dtype) -> Run:
    """Static batches of as many as are in flight: everyone waits for the longest of the group."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    steps = _Steps()

    @torch.inference_mode()
    def generate(prompts: list[list[int]], num_tokens: int) -> list[list[int]]:
        # Padded on the left, so that the new tokens of all rows are in the same columns.
        reversed_ids, reversed_mask = padded([prompt[::-1] for prompt in prompts])
        ids, mask = (torch.tensor(rows).flip(1) for rows in (reversed_ids, reversed_mask))
        steps.times_s.clear()
        found = model.generate(  # type: ignore[misc] # its own mixin confuses mypy
            ids,
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=num_tokens,
            min_new_tokens=num_tokens,
            eos_token_id=None,
            pad_token_id=0,
            stopping_criteria=StoppingCriteriaList([steps]),
        )
        tokens: list[list[int]] = found[:, ids.shape[1] :].tolist()
        return tokens

    return generating_in_groups(generate, lambda: steps.times_s[0])


if __name__ == "__main__":
    serve(open_engine)
