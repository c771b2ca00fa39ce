"""The models that the clients ask: tiny ones with random weights, and two of Triton's examples.

One is a decoder of Llama's kind that transformers made, with what transformers computes of it, and
one calls a tool by itself.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from export.exporter import export_any
from export.settings import ExportSettings
from models.checkpoints.checkpoint import load_checkpoint
from tests.conformance.models import write_add_sub, write_identity
from tests.decoders.comparison import imported, write_version
from tests.decoders.rows import RICHEST, tokenizer, write_folders
from tests.e2e.server import ServerProcess
from tests.ecosystem.agent_model import write_agent
from tests.fakes.chats import FAMILIES, TOOLS
from tests.fakes.tiny import tiny_classifier, tiny_embedder, tiny_scorer
from tests.fakes.tiny_gpt import tiny_generator, tiny_gpt

MAX_POSITIONS = 512  # tokens of a prompt and its answer; a token is a byte
MAX_DECLARED = 4_096  # with the functions that a prompt declares
END = {"eos_token": "<|endoftext|>"}
TOKENIZER = {"tokenizer_class": "PreTrainedTokenizerFast", **END}
CHATML = FAMILIES["chatml"]
LLAMA = replace(RICHEST["llama"], form="")  # served as "llama"
SCORED = (("the cat sat", " on the mat"), ("once upon a time", " the system, 猫"))


def write_repository(folder: Path) -> None:
    """Three generators, two with a chat template, three that read texts, and two of tensors."""
    network = tiny_gpt(max_positions=MAX_POSITIONS)
    export_any(tiny_generator(network), ExportSettings("tiny-gpt", folder, "fp32"))
    talker = replace(tiny_generator(network), chat={"chat_template": CHATML, **END})
    export_any(talker, ExportSettings("tiny-chat", folder, "fp32"))
    network = tiny_gpt(max_positions=MAX_DECLARED)
    caller = replace(tiny_generator(network), chat={"chat_template": TOOLS, **END})
    export_any(caller, ExportSettings("tiny-calls", folder, "fp32"))
    export_any(tiny_embedder(), ExportSettings("tiny-embed", folder, "fp32"))
    export_any(tiny_classifier(), ExportSettings("tiny-spam", folder, "fp32"))
    export_any(tiny_scorer(), ExportSettings("tiny-match", folder, "fp32"))
    write_add_sub(folder, "simple", "INT32")
    write_identity(folder, "identity_bytes", "BYTES")


def write_llama(repository: Path, folder: Path) -> list[tuple[str, str, float]]:
    """Import and export it; the log likelihoods of `SCORED` by transformers."""
    network = write_folders([LLAMA], folder / "hub")[LLAMA.name]
    checkpoint = imported(LLAMA, folder / "hub" / LLAMA.name, folder / "checkpoint")
    write_version(LLAMA, checkpoint, repository)
    return [(text, target, log_likelihood(network, text, target)) for text, target in SCORED]


@torch.inference_mode()
def log_likelihood(network: Any, text: str, target: str) -> float:
    """Of a target behind a text; no special tokens stand before them."""
    library = tokenizer()
    start = len(library.encode(text, add_special_tokens=False).ids)
    ids = torch.tensor([library.encode(text + target, add_special_tokens=False).ids])
    scores = network(ids).logits[0, start - 1 : -1].log_softmax(dim=-1)
    return float(scores.gather(1, ids[0, start:, None]).sum())


def write_tokenizer(repository: Path, folder: Path) -> None:
    """The generator's tokenizer as `transformers` opens it from a disk."""
    folder.mkdir()
    shutil.copy(repository / "tiny-gpt" / "1" / "tokenizer.json", folder)
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER), encoding="utf-8")


@contextmanager
def served(folder: Path) -> Iterator[dict[str, str]]:
    """Runs a server; the environment variables by which a client finds what it needs."""
    repository, tokenizer_folder = folder / "repository", folder / "tokenizer"
    write_repository(repository)
    likelihoods = write_llama(repository, folder)
    write_agent(folder / "agent")
    checkpoint = load_checkpoint(folder / "agent")
    export_any(checkpoint, ExportSettings("agent", repository, "fp32"))
    write_tokenizer(repository, tokenizer_folder)
    batches = ("--batch-folder", str(folder / "batches"))
    with ServerProcess(repository, "--http-port", "0", *batches) as server:
        yield {
            "ATTENDANT_URL": f"http://{server.http_address}",
            "ATTENDANT_TOKENIZER": str(tokenizer_folder),
            "ATTENDANT_LIKELIHOODS": json.dumps(likelihoods),
        }
