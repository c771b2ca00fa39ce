"""What the server writes for a row, beside what transformers would.

A token of the server is the greedy one if it is transformers' likeliest after the same tokens: one
run of the reference over the whole text says so for each of its places.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import torch
from attendant.v1 import generation_pb2 as pb
from attendant.v1 import generation_pb2_grpc
from transformers import AutoTokenizer

from export.exporter import export_any
from export.settings import ExportSettings
from models.checkpoints.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from models.networks.llama import Llama
from models.networks.traced import TracedDecoder
from tests.decoders.rows import ORIGINAL, Row, tokenizer
from tests.fakes.sessions import PATIENCE_S

NUM_TOKENS = 64
MAX_DIFFERENCE = 1e-4  # of logits in float32
TIE = 1e-4  # two logits this close may change places in another order of sums
TEXTS = (
    "the cat sat on the mat",
    "once upon a time, ünusual 猫 letters. the system sat on the user",
)
assert len(tokenizer().encode(TEXTS[1]).ids) > ORIGINAL, "longer than windows and first contexts"


def imported(row: Row, folder: Path, output: Path) -> Checkpoint:
    """The checkpoint as `attendant import` writes it, read again."""
    save_checkpoint(load_checkpoint(folder, row.context), output)
    return load_checkpoint(output)


def write_version(row: Row, checkpoint: Checkpoint, repository: Path) -> None:
    export_any(checkpoint, ExportSettings(row.name, repository, "fp32"))


@torch.inference_mode()
def largest_difference(checkpoint: Checkpoint, reference: Any) -> float:
    """Of logits over the longer text, padded out to the tokens of a test."""
    assert isinstance(checkpoint.model, Llama | TracedDecoder)
    ids = tokenizer().encode(TEXTS[1] * 3).ids[: len(tokenizer().encode(TEXTS[1]).ids) + NUM_TOKENS]
    input_ids = torch.tensor([ids])
    return float((checkpoint.model(input_ids) - reference(input_ids).logits).abs().max())


def written(channel: grpc.Channel, names: Sequence[str]) -> Mapping[str, list[list[int]]]:
    """The tokens that the server writes behind each text, all at once, so that they share steps."""
    stub = generation_pb2_grpc.GenerationServiceStub(channel)
    params = pb.SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True)
    calls = {
        name: [
            stub.GenerateUnary.future(
                pb.GenerateRequest(model=name, text=text, sampling_params=params),
                timeout=PATIENCE_S,
            )
            for text in TEXTS
        ]
        for name in names
    }
    return {
        name: [list(call.result().results[0].token_ids) for call in each]
        for name, each in calls.items()
    }


@torch.inference_mode()
def first_other(reference: Any, text: str | list[int], token_ids: Sequence[int]) -> int | None:
    """The place of the first token that is not transformers' likeliest; None: it wrote the same.

    A text is read as transformers reads it with the files of the network's folder: of Qwen2's and
    Gemma's tokenizer.json it takes the words, and its own rules.
    """
    assert len(token_ids) == NUM_TOKENS
    if isinstance(text, str):
        text = list(AutoTokenizer.from_pretrained(reference.name_or_path)(text).input_ids)
    logits = reference(torch.tensor([text + list(token_ids)])).logits[0, len(text) - 1 : -1]
    chosen = logits[torch.arange(NUM_TOKENS), torch.tensor(token_ids)]
    is_other = logits.max(dim=-1).values - chosen > TIE
    return int(is_other.nonzero()[0]) if is_other.any() else None
