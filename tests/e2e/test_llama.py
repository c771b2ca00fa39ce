"""From a Hugging Face folder to a served answer, which is what transformers writes."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch
from attendant.v1 import generation_pb2 as pb
from attendant.v1 import generation_pb2_grpc, text_pb2, text_pb2_grpc

from tests.decoders.__main__ import BEGIN, DOCUMENT, END
from tests.decoders.comparison import (
    MAX_DIFFERENCE,
    TEXTS,
    first_other,
    imported,
    largest_difference,
    write_version,
    written,
)
from tests.decoders.rows import RICHEST, ROWS, Row, tokenizer, write_folders
from tests.e2e.server import ServerProcess
from tests.fakes.sessions import PATIENCE_S

pytestmark = pytest.mark.timeout(300)  # the first test makes and exports twelve networks
NUM_TOKENS = 24
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
COMPARED = tuple(RICHEST.values())  # `python -m tests.decoders` compares all
TALKER = RICHEST["llama"]


@dataclass(frozen=True, slots=True)
class Imported:
    """The networks of transformers by name, how far ours are from them, and a repository."""

    networks: dict[str, Any]
    differences: dict[str, float]
    repository: Path


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Imported:
    """A network of every family; one talks, and its publisher has no text sampled."""
    folder = tmp_path_factory.mktemp("decoders")
    found = Imported(write_folders(COMPARED, folder / "hub"), {}, folder / "repository")
    talker = folder / "hub" / TALKER.name
    settings = {"bos_token": "<s>", "eos_token": "<|im_end|>", "chat_template": TEMPLATE}
    (talker / "tokenizer_config.json").write_text(json.dumps(settings))
    recommended = {"do_sample": False, "max_new_tokens": NUM_TOKENS, "eos_token_id": 2}
    (talker / "generation_config.json").write_text(json.dumps(recommended))
    for row in COMPARED:
        checkpoint = imported(row, folder / "hub" / row.name, folder / "checkpoints" / row.name)
        found.differences[row.name] = largest_difference(checkpoint, found.networks[row.name])
        write_version(row, checkpoint, found.repository)
    return found


@pytest.fixture(scope="module")
def channel(models: Imported) -> Iterator[grpc.Channel]:
    with (
        ServerProcess(models.repository) as server,
        grpc.insecure_channel(server.address) as opened,
    ):
        yield opened


@pytest.fixture(scope="module")
def answers(channel: grpc.Channel) -> Any:
    return written(channel, [row.name for row in COMPARED])


@pytest.mark.parametrize("row", COMPARED, ids=lambda row: row.name)
def test_every_family_writes_what_transformers_writes(
    models: Imported, answers: Any, row: Row
) -> None:
    """64 greedy tokens behind texts of 24 and 49, more than windows and first contexts have."""
    assert models.differences[row.name] < MAX_DIFFERENCE
    for text, token_ids in zip(TEXTS, answers[row.name], strict=True):
        assert first_other(models.networks[row.name], text, token_ids) is None
        other = [*token_ids[:10], (token_ids[10] + 1) % 3, *token_ids[11:]]
        assert first_other(models.networks[row.name], text, other) == 10


def test_the_table_of_the_documentation_has_every_row() -> None:
    table = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    lines = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
    stated = [(line[0].strip("| `"), *line[1:3]) for line in lines]
    assert stated == [(row.kind, row.checkpoints, row.form) for row in ROWS]
    assert all(line[-1] == "equal |" for line in lines)


def written_by(network: Any, ids: list[int]) -> list[int]:
    """Greedy tokens of transformers, its end included."""
    ends = [2, tokenizer().token_to_id("<|im_end|>")]
    prompt = torch.tensor([ids])
    found: list[int] = network.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=NUM_TOKENS,
        do_sample=False,
        eos_token_id=ends,
    )[0].tolist()
    return found[len(ids) :]


def test_a_conversation_has_one_beginning_and_ends_with_its_turn(
    channel: grpc.Channel, models: Imported
) -> None:
    """As transformers renders and reads it: `<s>` once, and `<|im_end|>` among the ends.

    The request names no sampling: greedy and the number of tokens are generation_config.json's.
    """
    listed = text_pb2_grpc.TextServiceStub(channel).ListModels(text_pb2.ListModelsRequest()).models
    ends = {model.name: list(model.eos_token_ids) for model in listed}
    library = tokenizer()
    assert set(ends[TALKER.name]) == {2, library.token_to_id("<|im_end|>")}
    said = [pb.ChatMessage(role="user", content="the cat sat")]
    rendered = "<s><|im_start|>user\nthe cat sat<|im_end|>\n<|im_start|>assistant\n"
    ids = library.encode(rendered, add_special_tokens=False).ids
    request = pb.GenerateRequest(model=TALKER.name, conversation=pb.Conversation(messages=said))
    stub = generation_pb2_grpc.GenerationServiceStub(channel)
    answer = stub.GenerateUnary(request, timeout=PATIENCE_S)
    assert answer.usage.prompt_tokens == len(ids)
    assert list(answer.results[0].token_ids) == written_by(models.networks[TALKER.name], ids)
