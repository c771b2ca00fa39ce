"""Folders of Marian, BART and T5, exported and served, answer as transformers does.

Greedy outputs of 32 tokens, and the best outputs of a search with their scores. A search ends here
when no beam can become one of the best, which transformers calls early_stopping="never".
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from attendant.v1 import generation_pb2 as pb
from tokenizers import Tokenizer

from export.errors import ExportError
from export.exporter import export_any
from export.settings import ExportSettings
from models.checkpoints.checkpoint import load_checkpoint
from service.contract.manifest import Precision
from tests.fakes.http import ask
from tests.fakes.seq2seq_folders import write_folder
from tests.fakes.serving import Served, serving
from tests.fakes.sessions import PATIENCE_S

FIRST, BANNED = 7, [1, 9, 31]
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "marian": ("marian", {"forced_bos_token_id": FIRST, "bad_words_ids": [[i] for i in BANNED]}),
    "bart": ("bart with one layer that writes", {}),
    "flan": ("t5 v1.1", {}),
}
SOURCES = ["a bc def", "the sources are ragged", "z", "x" * 39]


@dataclass(frozen=True, slots=True)
class Translators:
    """What is served, and the networks of transformers by the same names."""

    served: Served
    networks: dict[str, Any]
    tokenizer: Tokenizer

    def generated(self, model: str, source: str, **options: Any) -> Any:
        ids = torch.tensor([self.tokenizer.encode(source).ids])
        return self.networks[model].generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
            **options,
        )

    async def answer(self, model: str, source: str, **params: Any) -> pb.GenerateResponse:
        request = pb.GenerateRequest(
            model=model, text=source, sampling_params=pb.SamplingParams(**params)
        )
        answer: pb.GenerateResponse = await self.served.generation.GenerateUnary(
            request, timeout=PATIENCE_S
        )
        return answer


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], Tokenizer]:
    folder = tmp_path_factory.mktemp("translators")
    networks = {}
    for name, (family, stated) in MODELS.items():
        networks[name] = write_folder(family, folder / name)
        path = folder / name / "generation_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **stated}))
        networks[name].generation_config.update(**stated)
        checkpoint = load_checkpoint(folder / name, context=40)
        export_any(checkpoint, ExportSettings(name, folder / "models", "fp32"))
    tokenizer = Tokenizer.from_file(str(folder / "marian/tokenizer.json"))
    return folder / "models", networks, tokenizer


@pytest.fixture
async def translators(
    exported: tuple[Path, dict[str, Any], Tokenizer],
) -> AsyncIterator[Translators]:
    repository, networks, tokenizer = exported
    async with serving(repository, http_port=0) as served:
        yield Translators(served, networks, tokenizer)


async def test_all_outputs_are_those_of_transformers(translators: Translators) -> None:
    """12 requests at once; without parameters an output is greedy, as the folder leaves it."""
    asked = [(model, source) for model in MODELS for source in SOURCES]
    answers = await asyncio.gather(
        *(translators.answer(model, source, max_tokens=32) for model, source in asked)
    )
    outputs = set()
    for (model, source), answer in zip(asked, answers, strict=True):
        wanted = translators.generated(model, source, max_new_tokens=32, num_beams=1)
        token_ids = list(answer.results[0].token_ids)
        assert token_ids == wanted.sequences[0, 1:].tolist(), (model, source)
        assert model != "marian" or (token_ids[0] == FIRST and not set(BANNED) & set(token_ids))
        outputs.add(tuple(token_ids))
    assert len(outputs) > 8, "alike outputs would prove little"


@pytest.mark.parametrize("model", MODELS)
async def test_searches_find_what_transformers_finds(model: str, translators: Translators) -> None:
    """The best 3 of 4 beams; that all Marian's outputs begin with one token adds no score."""
    for source in SOURCES[:2]:
        answer = await translators.answer(
            model, source, max_tokens=12, beam_width=4, n=3, temperature=0.0
        )
        wanted = translators.generated(
            model,
            source,
            max_new_tokens=12,
            num_beams=4,
            num_return_sequences=3,
            early_stopping="never",
        )
        found = [list(result.token_ids) for result in answer.results]
        sequences = wanted.sequences[:, 1:].tolist()
        assert found == [row[: len(ids)] for row, ids in zip(sequences, found, strict=True)]
        scores = [result.score / len(result.token_ids) for result in answer.results]
        assert scores == pytest.approx(wanted.sequences_scores.tolist(), abs=1e-3)


async def test_a_translation_comes_by_http_whole_and_as_it_is_written(
    translators: Translators,
) -> None:
    """By OpenAI's completions, where the prompt is the source, and by Hugging Face's route."""
    served, source = translators.served, SOURCES[0]
    wanted = (await translators.answer("marian", source, max_tokens=8)).results[0].text
    assert wanted.strip() == wanted != "", "SentencePiece's first space is not of the text"
    body = {"model": "marian", "prompt": source, "max_tokens": 8}
    whole = await ask(served, "POST", "/v1/completions", body)
    assert whole.json["choices"][0]["text"] == wanted
    streamed = await ask(served, "POST", "/v1/completions", {**body, "stream": True})
    chunks = [
        json.loads(line.removeprefix(b"data: "))["choices"][0]["text"]
        for line in streamed.body.split(b"\n")
        if line.startswith(b"data: {")
    ]
    assert "".join(chunks) == wanted
    body = {"inputs": source, "parameters": {"max_new_tokens": 8, "details": True}}
    (output,) = (await ask(served, "POST", "/models/marian", body)).json
    assert output["translation_text"] == wanted
    assert "".join(token["text"] for token in output["details"]["tokens"]) == wanted


@pytest.mark.parametrize("precision", ["int8", "int8-weights"])
async def test_rounded_graphs_state_what_they_cost_and_are_served(
    precision: Precision, tmp_path: Path
) -> None:
    """The manifest has the share of tokens that float32 would not choose, on texts like one's own.

    The server then writes mostly what transformers does; a source beside others the same.
    """
    network = write_folder("marian", tmp_path / "folder", encoder_layers=1, decoder_layers=1)
    texts = tuple(f"the text {word} is one" for word in "abcdefghijklmnopqrstuvwxyz")
    settings = ExportSettings("marian", tmp_path / "models", precision, calibration=texts)
    manifest = export_any(load_checkpoint(tmp_path / "folder"), settings).manifest
    cost = manifest.parity["network_changed_tokens"]
    assert manifest.precision == precision
    assert manifest.parity["max_abs_error"] > 1e-2, "nothing was rounded"
    assert cost < 0.25
    tokenizer = Tokenizer.from_file(str(tmp_path / "folder/tokenizer.json"))
    async with serving(tmp_path / "models") as served:
        translators = Translators(served, {"marian": network}, tokenizer)
        alone = await translators.answer("marian", texts[0], max_tokens=16)
        together = await asyncio.gather(
            *(translators.answer("marian", text, max_tokens=16) for text in texts[:6])
        )
    assert together[0].results == alone.results
    said = [list(answer.results[0].token_ids) for answer in together]
    wanted = [
        translators.generated("marian", text, max_new_tokens=16, num_beams=1).sequences[0, 1:]
        for text in texts[:6]
    ]
    assert sum(ids[0] == int(row[0]) for ids, row in zip(said, wanted, strict=True)) >= 4


def test_relative_positions_are_for_the_cpu(tmp_path: Path) -> None:
    write_folder("t5", tmp_path / "t5")
    settings = ExportSettings("t5", tmp_path / "models", "auto", target="cuda")
    with pytest.raises(ExportError, match="target is cuda, but graphs of relative positions are"):
        export_any(load_checkpoint(tmp_path / "t5"), settings)
