"""`attendant verify` compares what a server answers with the folder, and that with transformers."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import transformers
from tritonclient.grpc import InferenceServerClient
from typer.testing import CliRunner

from commands.folders.importing import case_of, read_checkpoint
from commands.folders.verification import verify
from commands.main import app
from export.adapters import import_adapter
from export.certificates.certificate import Certificate, Row
from export.certificates.probes import COMPARED
from export.exporter import export_any
from export.settings import AdapterSettings, ExportSettings
from models.recipes.import_settings import ImportSettings
from service.calls.answers import LabelScore, Timings, Token
from service.calls.models import ModelFacts
from service.calls.texts import Classification, Classifications, Classify
from service.calls.tokens import Tokenize, Tokenized, TokenizedText
from tests.checkpoints.fields import network
from tests.checkpoints.rows import ROWS
from tests.checkpoints.spellings import save_tokenizer
from tests.commands.folders.test_explain import classifier
from tests.e2e.server import ServerProcess
from tests.export.test_adapters import write_peft
from tests.fakes.chats import TOOLS

LINE = ["verify", "--json"]
OUTPUTS = {
    "classes": "scores",
    "embedding": "vectors",
    "score": "logits",
    "tokens": "entities",
    "masks": "log probabilities",
    "terms": "weights of words",
    "writing": "log probabilities of 16 greedy tokens",
}
NAMES = tuple(OUTPUTS)


@dataclass(frozen=True, slots=True)
class Served:
    """A server that has a model when a test asks for it: exports take most of the time."""

    root: Path  # of folders by the names of their models
    address: str

    def folder(self, name: str) -> Path:
        """The folder of a model, which is served from now on."""
        folder = self.root / name
        if not folder.exists():
            write(folder)
            checkpoint = read_checkpoint(str(folder), ImportSettings())
            export_any(checkpoint, ExportSettings(name, self.root / "repository", "fp32"))
            with InferenceServerClient(self.address) as client:
                client.load_model(name)
        return folder


def write(folder: Path) -> None:
    """A folder of the network that its name stands for."""
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    if folder.name == "classes":
        classifier(folder)
    elif folder.name == "writing":
        made = network("llama", transformers.AutoModelForCausalLM, vocab_size=600, head_dim=16)
        made.save_pretrained(folder)
        save_tokenizer("gpt2", folder)
        (folder / "chat_template.jinja").write_text(TOOLS)
    else:
        next(row for row in ROWS if (row.kind, row.head) == ("bert", folder.name)).write(folder)
    if folder.name == "embedding":
        prompts = {"prompts": {"query": "find: ", "document": ""}, "default_prompt_name": "query"}
        (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("verify")
    (root / "repository").mkdir()
    with ServerProcess(root / "repository", "--model-control-mode", "explicit") as server:
        yield Served(root, server.address)


def verified(folder: Path, name: str, address: str, *more: str) -> tuple[int, dict[str, Any]]:
    line = [*LINE, name, "--source", str(folder), "--address", address, *more]
    result = CliRunner().invoke(app, line, catch_exceptions=False)
    assert result.stdout, result.output
    return result.exit_code, json.loads(result.stdout)


def rows(found: dict[str, Any]) -> dict[str, Row]:
    """Rows of the server beside the import."""
    certificate = Certificate.from_dict(found)
    return {row.what: row for row in certificate.rows}


@pytest.mark.parametrize("name", NAMES)
def test_a_served_model_equals_its_folder(name: str, served: Served) -> None:
    """In tokens, in outputs of its task, and in the prompts of conversations."""
    exit_code, found = verified(served.folder(name), name, served.address)
    assert (exit_code, found["is_equal"]) == (0, True)
    by_what = rows(found["served"])
    assert by_what["tokens"].equal == by_what["tokens"].number > 180
    outputs = by_what[OUTPUTS[name]]
    assert outputs.max_difference is not None
    assert outputs.max_difference < 1e-4
    assert outputs.number == (15 if name == "embedding" else len(COMPARED))
    if name == "writing":
        assert by_what["conversations"].equal > 1
    assert any(row.by.startswith("transformers") for row in rows(found["certificate"]).values())


def test_a_model_of_another_folder_is_told(served: Served, tmp_path: Path) -> None:
    served.folder("classes")
    folder = classifier(tmp_path)
    path = folder / "model.safetensors"
    from safetensors.torch import load_file, save_file

    save_file({name: 1.5 * each for name, each in load_file(path).items()}, path, {"format": "pt"})
    exit_code, found = verified(folder, "classes", served.address)
    assert (exit_code, found["is_equal"]) == (1, False)
    assert rows(found["served"])["scores"].max_difference > 1e-3  # type: ignore[operator]
    assert Certificate.from_dict(found["certificate"]).is_equal, "the import itself is right"
    line = ["verify", "classes", "--source", str(folder), "--address", served.address]
    result = CliRunner().invoke(app, line)
    assert "classes as it is served, in fp32, compared: " in result.stdout
    assert "scores differ first at the text 'The film was" in result.stdout


def test_a_served_adapter_equals_its_base_with_the_adapter_merged(
    served: Served, tmp_path: Path
) -> None:
    """By its folder, which names the base, and by its kept export; the base alone is told apart."""
    base, repository, adapter = tmp_path / "base", served.root / "repository", tmp_path / "polite"
    made = network(
        "llama", transformers.AutoModelForCausalLM, vocab_size=600, hidden_size=256, head_dim=64,
        num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=1,
    )  # fmt: skip
    made.save_pretrained(base)
    save_tokenizer("gpt2", base)
    write_peft(adapter, num_in=256)
    settings_file = adapter / "adapter_config.json"
    stated = {**json.loads(settings_file.read_text()), "base_model_name_or_path": str(base)}
    settings_file.write_text(json.dumps(stated))
    checkpoint = read_checkpoint(str(base), ImportSettings())
    export_any(checkpoint, ExportSettings("base", repository, "fp32", lora_rank=2))
    import_adapter(adapter, AdapterSettings("polite", "base", str(base), repository))
    with InferenceServerClient(served.address) as client:
        client.load_model("base")
        client.load_model("polite")
    exit_code, found = verified(adapter, "polite", served.address)
    assert (exit_code, found["is_equal"]) == (0, True)
    written = rows(found["served"])[OUTPUTS["writing"]]
    assert written.equal == len(COMPARED)
    assert verified(base, "polite", served.address)[1]["is_equal"] is False


@pytest.mark.parametrize("number", range(len(COMPARED)))
def test_one_answer_that_is_no_number_is_no_equal_model(number: int, tmp_path: Path) -> None:
    """Wherever it stands among the answers, of an import that is equal."""
    folder, settings = classifier(tmp_path), ImportSettings()
    checkpoint = read_checkpoint(str(folder), settings)

    class Answers:
        def ask(self, call: Classify | Tokenize) -> Any:
            if isinstance(call, Tokenize):
                ids = checkpoint.tokenizer.encode(call.texts[0]).ids
                tokens = [Token(each, "", 0, 0) for each in ids]
                text = TokenizedText(tokens, len(ids), False)
                return Tokenized(
                    model=call.model, version="1", timings=Timings(), num_tokens=1, results=[text]
                )
            score = float("nan") if call.texts[0] == COMPARED[number] else 0.5
            made = Classification([LabelScore(name, score) for name in checkpoint.labels], 3, False)
            return Classifications(
                model=call.model, version="1", timings=Timings(), num_tokens=15, results=[made]
            )

    client: Any = Answers()
    facts = ModelFacts(name="classes", version="1", task=checkpoint.task, precision="int8")
    with case_of(checkpoint, folder, settings) as case:
        found = verify(client, facts, case, Certificate(()))
    scores = rows(found.served.to_dict())["scores"]
    assert (scores.max_difference, scores.number - scores.equal) == (None, 1)
    assert not found.is_equal


def test_a_model_without_a_kept_export_needs_its_source(tmp_path: Path) -> None:
    line = ["verify", "classes", "--folder-cache", str(tmp_path)]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 1
    assert "say what it was made of by --source FOLDER" in result.output
