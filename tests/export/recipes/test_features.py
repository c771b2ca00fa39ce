"""Exports of features and word vectors: as PyTorch computes them, row by row and in batches."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from attendant.v1 import text_pb2
from typer.testing import CliRunner, Result

from commands.export import export
from commands.main import app
from export.checks.parity import GraphRunner, pad
from export.errors import ExportError
from export.exporter import export_any
from export.graphs.graph import fused_ops, trace
from export.graphs.lstm import emit_lstms
from export.settings import ExportSettings
from models.checkpoints.checkpoint import Checkpoint, save_checkpoint
from models.checkpoints.uses import as_embedding, as_features
from models.choices import POOLINGS
from models.data.vocabulary import SPECIAL, train_word_tokenizer
from models.errors import SettingError
from models.networks.elmo import Elmo, ElmoConfig
from models.networks.elmo_tasks import ElmoClassifier, ElmoTokenClassifier
from models.networks.heads import LAYERS, TextEmbedder
from models.networks.kinds import kind_of
from models.networks.word_vectors import WordVectors, WordVectorsConfig
from service.contract.manifest import Manifest
from service.serving.tasks.features import LAYERS as SERVED_LAYERS
from service.serving.tasks.features import POOLINGS as SERVED_POOLINGS
from service.serving.tasks.features import Features
from tests.fakes.serving import serving
from tests.fakes.sessions import PATIENCE_S, RealSessions
from tests.fakes.tiny import tiny_embedder

WORDS = "free prize winner claim now call lunch tomorrow"
WIDE = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
LENGTHS = (9, 1, 4, 6)
# Poolings of embedders that `Features` does not have: the last token's vector is for decoders,
# whose last token alone has read the whole text, the others are modules of sentence-transformers.
OF_EMBEDDERS = {"last", "max", "mean_sqrt_len_tokens", "weightedmean"}


@cache
def features_checkpoint() -> Checkpoint:
    return as_features(tiny_embedder(num_layers=4))


@cache
def elmo_checkpoint() -> Checkpoint:
    torch.manual_seed(5)
    tokenizer = train_word_tokenizer([WORDS], 1, keeps_punctuation=True)
    config = ElmoConfig(tokenizer.get_vocab_size(), hidden_size=8, max_positions=32)
    return Checkpoint(Elmo(config).eval(), "features", (), tokenizer, 32, "random weights")


@cache
def words_checkpoint() -> Checkpoint:
    torch.manual_seed(6)
    tokenizer = train_word_tokenizer([WORDS], 1)
    config = WordVectorsConfig(tokenizer.get_vocab_size(), 8, max_positions=32)
    return Checkpoint(WordVectors(config).eval(), "embedding", (), tokenizer, 32, "random weights")


@cache
def elmo_task_checkpoint(network: type[ElmoClassifier | ElmoTokenClassifier]) -> Checkpoint:
    """One whose mix is not the mean."""
    checkpoint, labels = elmo_checkpoint(), ("ham", "spam", "other")
    assert isinstance(checkpoint.model, Elmo)
    model = network(checkpoint.model, len(labels)).eval()
    with torch.no_grad():
        model.mix.weights.copy_(torch.tensor([-1.0, 0.5, 2.0]))
        model.mix.scale.fill_(3.0)
        for parameter in (*model.parameters(),)[-2:]:
            parameter.mul_(20.0)
    return replace(checkpoint, model=model, task=kind_of(model).task, labels=labels)


Made = Callable[[], Checkpoint]
MADE: dict[str, Made] = {
    "features": features_checkpoint,
    "elmo": elmo_checkpoint,
    "elmo embedder": lambda: as_embedding(elmo_checkpoint()),
    "elmo classifier": lambda: elmo_task_checkpoint(ElmoClassifier),
    "elmo token classifier": lambda: elmo_task_checkpoint(ElmoTokenClassifier),
    "words": words_checkpoint,
}


@cache
def runner_of(name: str) -> GraphRunner:
    return GraphRunner(trace(MADE[name]().text_network, "Attention"))


def rows_of(checkpoint: Checkpoint) -> list[list[int]]:
    generator = np.random.default_rng(0)
    size = checkpoint.tokenizer.get_vocab_size()
    return [generator.integers(len(SPECIAL), size, length).tolist() for length in LENGTHS]


@pytest.mark.parametrize("name", ["features", "elmo", "elmo token classifier"])
def test_states_are_of_real_tokens_one_text_after_the_other(name: str) -> None:
    """Rows of 9, 1, 4 and 6 tokens are 20 vectors; each as of its row alone, in PyTorch."""
    checkpoint, run = MADE[name](), runner_of(name)
    rows = rows_of(checkpoint)
    packed = run(pad(rows, 0))
    assert packed.shape[0] == sum(LENGTHS)
    for row, found in zip(rows, np.split(packed, np.cumsum(LENGTHS)[:-1]), strict=True):
        ids = torch.tensor([row])
        with torch.inference_mode():
            alone = checkpoint.model(ids, torch.ones_like(ids)).numpy()
        assert np.abs(found - alone).max() < 1e-5
        assert np.abs(found - run(pad([row], 0))).max() < 1e-6


def test_an_elmo_embeds_the_mean_of_its_features() -> None:
    """Over layers and over the tokens of a row, whatever stands beside it."""
    rows = rows_of(elmo_checkpoint())
    features = np.split(runner_of("elmo")(pad(rows, 0)), np.cumsum(LENGTHS)[:-1])
    wanted = np.stack([states.mean(axis=(0, 1)) for states in features])
    assert np.abs(runner_of("elmo embedder")(pad(rows, 0)) - wanted).max() < 1e-6
    with pytest.raises(SettingError, match="only an ELMo embeds"):
        as_embedding(words_checkpoint())


async def test_a_text_of_unknown_words_is_refused_by_its_words(tmp_path: Path) -> None:
    """Unknown words beside a known one are left out; a zero vector is no answer to the others."""
    export_any(words_checkpoint(), ExportSettings("words", tmp_path, "fp32"))
    async with serving(tmp_path, RealSessions()) as served:

        async def run(*arguments: str) -> Result:
            command = [*arguments, "--address", served.address]
            return await asyncio.to_thread(CliRunner().invoke, app, command, env=WIDE)

        known = await run("embed", "words", "Free", "free PRZE", "--json")
        alone = await run("similarity", "words", "free", "lnch")
        among = await run("embed", "words", "call", "Lnch tmrrw Lnch", "prize", "...", "--ndjson")
        models = await served.text.ListModels(text_pb2.ListModelsRequest(), timeout=PATIENCE_S)
        (example,) = (model.example for model in models.models)
        tried = await run("embed", "words", example)
    first, second = json.loads(known.stdout)["results"]
    assert first["values"] == second["values"]
    assert any(first["values"])
    reason = "has no word that the model knows: unknown word"
    assert alone.exit_code == among.exit_code == 1
    assert alone.stderr.startswith(f"attendant: error: text 2 {reason} 'lnch'\n")
    assert alone.stdout == ""
    assert [json.loads(line)["line"] for line in among.stdout.splitlines()] == [1, 3]
    assert f"text 2 {reason}s 'Lnch', 'tmrrw'\n" in among.stderr
    assert "text 4 has no words, and the model has vectors of words\n" in among.stderr
    assert tried.exit_code == 0


async def test_a_mix_that_a_task_learnt_is_exported_and_served(tmp_path: Path) -> None:
    """Labels and scores of Classify are those of PyTorch, and of a batch those of a text alone."""
    checkpoint = MADE["elmo classifier"]()
    exported = export_any(checkpoint, ExportSettings("spam", tmp_path, "fp32"))
    assert exported.manifest is not None
    assert exported.manifest.task == "text-classification"
    assert exported.manifest.parity["max_abs_error"] < 1e-4
    texts = ["free prize", "call", "winner claim your prize now", "lunch tomorrow call lunch"]
    wanted = []
    for text in texts:
        ids = torch.tensor([checkpoint.tokenizer.encode(text).ids])
        with torch.inference_mode():
            wanted.append(checkpoint.model(ids, torch.ones_like(ids)).softmax(dim=1)[0].tolist())
    async with serving(tmp_path, RealSessions()) as served:
        request = text_pb2.ClassifyRequest(model="spam", texts=texts, all_scores=True)
        answer = await served.text.Classify(request, timeout=PATIENCE_S)
    for result, scores in zip(answer.results, wanted, strict=True):
        found = {each.label: each.score for each in result.labels}
        assert found == pytest.approx(dict(zip(checkpoint.labels, scores, strict=True)), abs=1e-4)


@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("pooling", [each for each in POOLINGS if each not in OF_EMBEDDERS])
def test_what_the_server_makes_of_states_is_what_an_embedder_gives(
    layers: str, pooling: str
) -> None:
    """The two lists of strategies agree, in names and in values."""
    checkpoint = features_checkpoint()
    rows = rows_of(checkpoint)
    batch = pad(rows, 0)
    embedder = TextEmbedder(checkpoint.encoder_model.encoder, pooling, layers).eval()
    with torch.inference_mode():
        wanted = embedder(*map(torch.from_numpy, (batch["input_ids"], batch["attention_mask"])))
    packed = runner_of("features")(batch)
    parts = np.split(packed, np.cumsum(LENGTHS)[:-1])
    found = np.concatenate([Features(layers, pooling).of(states) for states in parts])
    assert np.abs(found - wanted.numpy()).max() < 1e-4
    assert list(LAYERS) == list(SERVED_LAYERS)
    assert set(POOLINGS) - OF_EMBEDDERS == set(SERVED_POOLINGS) - {"none"}


def test_each_lstm_is_one_node() -> None:
    """Two layers in two directions; and no other loop."""
    graph = trace(elmo_checkpoint().text_network, "Attention")
    assert fused_ops(graph) == {"LSTM": 4}
    assert not {"Loop", "Scan"} & {node.op_type for node in graph.graph.node}
    assert emit_lstms(torch.nn.Linear(1, 1)) == 0


def test_padding_that_is_not_zero_changes_nothing() -> None:
    """Padding behind a row's end is not read in either direction."""
    rows = rows_of(elmo_checkpoint())
    batch = pad(rows, 0)
    noisy = batch | {"input_ids": np.where(batch["attention_mask"] == 1, batch["input_ids"], 5)}
    assert np.array_equal(runner_of("elmo")(batch), runner_of("elmo")(noisy))


def test_word_vectors_are_averaged_over_known_words() -> None:
    checkpoint = words_checkpoint()
    table = checkpoint.model.state_dict()["words.weight"].numpy()
    found = runner_of("words")(pad([[2, 5, 1, 7, 3], [2, 3], [6]], 0))
    wanted = [(table[5] + table[7]) / 2, np.zeros(8), table[6]]
    assert np.abs(found - np.stack(wanted)).max() < 1e-6


@pytest.mark.parametrize(
    ("name", "size", "num_layers", "pooling"),
    [
        ("elmo", 16, 2, ""),
        ("elmo embedder", 16, 0, "mean of the mean of all layers"),
        ("words", 8, 0, "mean of words"),
    ],
)
def test_manifests_say_what_the_server_needs(
    name: str, size: int, num_layers: int, pooling: str, tmp_path: Path
) -> None:
    """Word vectors and LSTMs have no product with weights: nothing for int8 to round."""
    checkpoint = MADE[name]()
    folder, manifest = export_any(checkpoint, ExportSettings(name, tmp_path, "auto"))
    assert manifest.task == checkpoint.task
    assert (manifest.embedding_size, manifest.num_layers) == (size, num_layers)
    assert manifest.pooling == pooling
    assert not manifest.variants
    assert "nothing to round" in manifest.left_out["int8"]
    assert manifest.parity["max_neighbour_effect"] < 1e-5
    assert Manifest.from_json((folder / "manifest.json").read_text()) == manifest


def test_int8_of_a_network_without_products_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="nothing to round"):
        export_any(words_checkpoint(), ExportSettings("words", tmp_path, "int8"))
    assert not list(tmp_path.iterdir())


def test_the_command_exports_an_embedder_for_features(tmp_path: Path) -> None:
    save_checkpoint(tiny_embedder(num_layers=1), tmp_path / "tiny")
    app = typer.Typer()
    app.command()(export)

    def run(*options: str) -> tuple[int, str]:
        repository = str(tmp_path / "repository")
        arguments = [str(tmp_path / "tiny"), "--repository", repository, *options]
        result = CliRunner().invoke(app, [*arguments, "--precision", "fp32"], env=WIDE)
        return result.exit_code, result.output

    exit_code, output = run("--name", "states", "--task", "features")
    assert exit_code == 0, output
    path = tmp_path / "repository" / "states" / "1" / "manifest.json"
    manifest = Manifest.from_json(path.read_text())
    assert (manifest.task, manifest.num_layers, manifest.embedding_size) == ("features", 1, 32)
    exit_code, output = run("--name", "other", "--task", "text-generation")
    assert exit_code == 1
    assert "task is 'text-generation', but must be features" in output.replace("\n", " ")
