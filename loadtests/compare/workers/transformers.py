"""transformers on PyTorch, eager, as its examples run it: groups padded to the longest.

Options name a device, `compile`, which are arguments of torch.compile for an encoder, `generate`,
which are further ones of a decoder's `generate`, and `config`: then weights are random, made on the
device, and no folder is read. docs/how-to/cuda.md says what was verified on CUDA.
"""

import time
from typing import Any

import torch
from transformers import (
    AutoConfig,
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
        return torch.zeros(len(ids), dtype=torch.bool, device=ids.device)  # type: ignore[return-value]


def open_engine(setup: Setup) -> Run:
    torch.set_num_threads(setup.threads)
    return (_open_encoder if setup.options["task"] == "classify" else _open_generator)(setup)


def _opened(auto: Any, setup: Setup) -> Any:
    dtype = getattr(torch, setup.options["dtype"])
    if "config" not in setup.options:
        return auto.from_pretrained(setup.model, dtype=dtype).to(setup.device)
    config = AutoConfig.for_model(**setup.options["config"])
    with torch.device(setup.device):
        return auto.from_config(config, dtype=dtype).to(setup.device).eval()


def _open_encoder(setup: Setup) -> Run:
    even = ragged = _opened(AutoModelForSequenceClassification, setup)
    if compiling := setup.options.get("compile"):
        torch.compiler.reset()  # it compiles the same code a few times only, then goes on without
        even, ragged = (torch.compile(even, dynamic=each, **compiling) for each in (False, True))

    def prepared(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor | None]:
        ids, mask = (torch.tensor(values) for values in padded(rows))
        # Without a mask where none is needed: its attention is faster then.
        return ids, None if bool(mask.all()) else mask

    @torch.inference_mode()
    def logits(batch: tuple[torch.Tensor, torch.Tensor | None]) -> list[list[float]]:
        ids, mask = (None if each is None else each.to(setup.device) for each in batch)
        found = (even if mask is None else ragged)(ids, attention_mask=mask)
        values: list[list[float]] = found.logits.float().tolist()
        return values

    return classifying(logits, prepared)


def _open_generator(setup: Setup) -> Run:
    """Static batches of as many as are in flight: everyone waits for the longest of the group."""
    model, more = _opened(AutoModelForCausalLM, setup), setup.options.get("generate", {})
    torch.compiler.reset()
    steps = _Steps()

    @torch.inference_mode()
    def generate(prompts: list[list[int]], num_tokens: int) -> list[list[int]]:
        # Padded on the left, so that the new tokens of all rows are in the same columns.
        reversed_ids, reversed_mask = padded([prompt[::-1] for prompt in prompts])
        ids, mask = (
            torch.tensor(rows).flip(1).to(setup.device) for rows in (reversed_ids, reversed_mask)
        )
        steps.times_s.clear()
        found = model.generate(
            ids,
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=num_tokens,
            min_new_tokens=num_tokens,
            eos_token_id=None,
            pad_token_id=0,
            stopping_criteria=StoppingCriteriaList([steps]),
            **more,
        )
        tokens: list[list[int]] = found[:, ids.shape[1] :].tolist()
        return tokens

    return generating_in_groups(generate, lambda: steps.times_s[0])


if __name__ == "__main__":
    serve(open_engine)
