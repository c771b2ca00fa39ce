"""Folders of decoders in ONNX, made and served: tokens are those of a loop over the folder's graph.

The graphs are those of `tests/export/adopted/graphs/`, each of another exporter.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import onnx
import onnxruntime
import pytest
from tokenizers import Tokenizer
from tokenizers.decoders import Metaspace as MetaspaceDecoder
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Metaspace

from commands.folders.explanation import explain
from commands.folders.onnx_maker import make
from export.errors import ExportError
from models.checkpoints.graph_files import GraphWish
from models.checkpoints.onnx_folders.decoders import read_decoder_folder
from models.checkpoints.plan import recognise
from models.errors import SettingError
from models.recipes.import_settings import ImportSettings
from service.app import App
from service.contract.manifest import Manifest
from service.repository.loading import Openers
from service.settings import Settings
from tests.export.adopted.test_decoders import FORMS, graph

WORDS, TOKENS = 272, 128
FILES = {"gpt2_merged": "onnx/decoder_model_merged.onnx", "gemma": "onnx/model.onnx"}
PROMPTS = [[7], [5, 9, 100, 200], [*range(20, 44)], [*range(90, 60, -1)], [3, 3], [250, 4, 8]]
LONG = [*range(40, 100)]
GENAI = {
    "model": {
        "context_length": TOKENS,
        "eos_token_id": [271],
        "pad_token_id": 0,
        "vocab_size": WORDS,
        "decoder": {
            "head_size": 16,
            "inputs": {"past_key_names": "past_key_values.%d.key"},
            "outputs": {"logits": "logits"},
        },
    },
    "search": {"do_sample": False, "top_k": 50, "max_length": 100},
}
CONFIG = {
    "model_type": "gptj",
    "architectures": ["GPTJForCausalLM"],
    "n_positions": TOKENS,
    "vocab_size": WORDS,
    "eos_token_id": 271,
}


def write_folder(name: str, folder: Path) -> Path:
    """A folder as the exporter of a graph leaves it."""
    file = folder / FILES.get(name, "model.onnx")
    file.parent.mkdir(parents=True)
    onnx.save(graph(name), file)
    if name == "llama_genai":
        (folder / "genai_config.json").write_text(json.dumps(GENAI))
    else:
        (folder / "config.json").write_text(json.dumps(CONFIG))
        stated = {"do_sample": True, "top_p": 0.5, "eos_token_id": [271, 270]}
        (folder / "generation_config.json").write_text(json.dumps(stated))
    tokenizer = Tokenizer(WordLevel({f"▁w{index}": index for index in range(WORDS)}, "▁w0"))
    tokenizer.pre_tokenizer, tokenizer.decoder = Metaspace(), MetaspaceDecoder()
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for each in messages %}{{ each['content'] }}{% endfor %}"
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def job(folder: Path, **changes: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"variant": None, "precision": "auto", "device": "cpu", "import": {}}
    return {"folder": str(folder), **options, **changes}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mapping[str, dict[str, Any]]]:
    """A model repository with a model of each form, and the facts that people are told."""
    folders, repository = (tmp_path_factory.mktemp(name) for name in ("folders", "models"))
    facts = {}
    for name in FORMS:
        facts[name] = make(job(write_folder(name, folders / name)), repository, lambda _: None)
        (repository / "model").rename(repository / name)
    return repository, facts


def greedy(name: str, prompt: list[int], count: int) -> list[int]:
    """The tokens that the folder's graph continues a prompt with, by ONNX Runtime alone."""
    session = onnxruntime.InferenceSession(graph(name).SerializeToString())
    inputs = {value.name: value.shape for value in session.get_inputs()}
    outputs = [value.name for value in session.get_outputs()]
    past = {
        each: np.zeros((1, shape[1], 0, 16), np.float32)
        for each, shape in inputs.items()
        if each.startswith("past")
    }
    ids = list(prompt)
    for _ in range(count):
        num_past = next(iter(past.values())).shape[2]
        given = {
            "input_ids": np.array([ids[num_past:]]),
            "attention_mask": np.ones((1, len(ids)), np.int64),
            "position_ids": np.arange(num_past, len(ids))[None],
            "use_cache_branch": np.array([num_past > 0]),
        }
        taken = {each: value for each, value in given.items() if each in inputs}
        found = dict(zip(outputs, session.run(outputs, taken | past), strict=True))
        past = {each: found[each.replace("past_key_values", "present")] for each in past}
        ids.append(int(found["logits"][0, -1].argmax()))
    return ids[len(prompt) :]


@pytest.fixture
async def address(made: tuple[Path, object]) -> AsyncIterator[str]:
    settings = Settings(model_repository=made[0], grpc_port=0, http_port=0, metrics_port=0)
    app = App(settings, Openers())
    await app.start()
    try:
        yield f"http://127.0.0.1:{app.http_port}"
    finally:
        await app.stop()


def text_of(ids: list[int]) -> str:
    return " ".join(f"w{token}" for token in ids)


def ids_of(text: str) -> list[int]:
    return [int(word.removeprefix("w")) for word in text.split()]


async def ask(address: str, path: str, **body: Any) -> bytes:
    common = {"temperature": 0, "max_tokens": 12, "ignore_eos": True}
    request = Request(  # noqa: S310 - our own server
        f"{address}{path}",
        json.dumps(common | body).encode(),
        {"content-type": "application/json"},
    )

    def answered() -> bytes:
        with urlopen(request, timeout=60) as response:  # noqa: S310 - the same
            content: bytes = response.read()
            return content

    return await asyncio.to_thread(answered)


async def completed(address: str, model: str, prompt: list[int]) -> dict[str, Any]:
    answer = json.loads(await ask(address, "/v1/completions", model=model, prompt=text_of(prompt)))
    return {"ids": ids_of(answer["choices"][0]["text"]), **answer["usage"]}


@pytest.mark.parametrize("name", FORMS)
async def test_tokens_over_http_are_those_of_a_loop_over_the_folder_s_graph(
    name: str, address: str
) -> None:
    """Alone, six prompts at once, a prompt whose beginning is kept, and a streamed conversation."""
    expected = [greedy(name, prompt, 12) for prompt in PROMPTS]
    alone = await completed(address, name, PROMPTS[2])
    assert alone["ids"] == expected[2]
    together = await asyncio.gather(*(completed(address, name, prompt) for prompt in PROMPTS))
    assert [answer["ids"] for answer in together] == expected
    first = await completed(address, name, LONG)
    again = await completed(address, name, [*LONG, 9, 8, 7])
    assert first["ids"] == greedy(name, LONG, 12)
    assert again["prompt_tokens_details"]["cached_tokens"] > 0
    assert again["ids"] == greedy(name, [*LONG, 9, 8, 7], 12)
    messages = [{"role": "user", "content": text_of(PROMPTS[1])}]
    streamed = await ask(
        address, "/v1/chat/completions", model=name, messages=messages, stream=True
    )
    events = [line[6:] for line in streamed.splitlines() if line.startswith(b"data: {")]
    deltas = [each["choices"][0]["delta"] for event in events for each in [json.loads(event)]]
    assert ids_of("".join(delta.get("content") or "" for delta in deltas)) == expected[1]


def test_manifest_has_what_the_files_state(made: tuple[Path, Mapping[str, Any]]) -> None:
    """Stops, sampling, the longest text, and the comparison in words and numbers."""
    repository, facts = made
    manifests = {
        name: Manifest.from_json((repository / name / "1" / "manifest.json").read_text())
        for name in FORMS
    }
    for name, manifest in manifests.items():
        assert (manifest.task, manifest.precision) == ("text-generation", "fp32")
        assert manifest.max_tokens == TOKENS
        assert manifest.certificate["text"] == facts[name]["certificate"]
        assert "48 of 48 tokens equal" in manifest.certificate["text"]
        rows = "each row in a run of its own" if FORMS[name] else "rows together and alone"
        assert rows in manifest.certificate["text"]
        assert facts[name]["has_chat_template"]
    assert manifests["gptj"].eos_token_ids == (271, 270)
    assert manifests["gptj"].sampling == {"top_p": 0.5}
    assert manifests["llama_genai"].eos_token_ids == (271,)
    assert manifests["llama_genai"].sampling == {"top_k": 50, "temperature": 0.0}


def test_graphs_with_data_beside_them_keep_it_in_files_of_their_own(tmp_path: Path) -> None:
    folder = write_folder("gptj", tmp_path / "mine")
    (folder / "model.onnx").unlink()
    onnx.save(
        graph("gptj"),
        folder / "model.onnx",
        save_as_external_data=True,
        location="model.onnx_data",
        size_threshold=1024,
    )
    make(job(folder), tmp_path, lambda _: None)
    version = tmp_path / "model" / "1"
    assert (version / "model.onnx.data0").read_bytes() == (folder / "model.onnx_data").read_bytes()
    assert (version / "model.onnx").stat().st_size < (folder / "model.onnx").stat().st_size * 1.5


def test_graph_that_is_no_decoder_is_refused_with_a_way_out(tmp_path: Path) -> None:
    folder = write_folder("gptj", tmp_path / "mine")
    model = graph("gptj")
    for value in (*model.graph.input, *model.graph.output):
        value.name = value.name.replace("past_key_values", "memory")
    onnx.save(model, folder / "model.onnx")
    with pytest.raises(ExportError, match=r"model.onnx is not served .* reads no past .* tensors"):
        make(job(folder), tmp_path, lambda _: None)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


PARTS = ("encoder_model.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx")


@pytest.mark.parametrize("place", ["", "onnx"])
@pytest.mark.parametrize("variant", [None, "encoder_model", "fp32"])
def test_parts_of_an_encoder_decoder_are_refused_and_served_as_tensors_by_the_way_out(
    place: str, variant: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line of the way out is run; ONNX Runtime opens each model that it makes."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "mine" / place
    folder.mkdir(parents=True)
    for name in PARTS:
        file = folder / name
        onnx.save(
            graph("gptj"),
            file,
            save_as_external_data=True,
            location=f"{name}_data",
            size_threshold=1024,
        )
    plan = recognise(tmp_path / "mine", GraphWish(variant))
    assert "graphs are of an encoder-decoder, and generation needs its weights" in plan.refusal
    *copying, serving = plan.commands
    for line in copying:
        subprocess.run(line, shell=True, check=True)  # noqa: S602 - the line is ours
    assert serving == "attendant serve models"
    assert recognise(Path("models")).form == "repository"
    for name in PARTS:
        file = Path("models") / name.removesuffix(".onnx") / "1" / "model.onnx"
        assert onnxruntime.InferenceSession(file).get_inputs()


def test_an_encoder_decoder_with_weights_is_taken_of_these_and_that_is_said(
    tmp_path: Path,
) -> None:
    from tests.checkpoints.forms.folders import base  # which imports this module

    base("t5", tmp_path)
    (tmp_path / "onnx").mkdir()
    for name in PARTS:
        (tmp_path / "onnx" / name).touch()
    for variant in (None, "weights"):
        plan = recognise(tmp_path, GraphWish(variant))
        assert plan.form == "transformers"
        assert plan.beside == "its graphs in ONNX, of an encoder-decoder, are left out"
    refused = recognise(tmp_path, GraphWish("fp32"))
    assert "--variant weights serves those beside them" in refused.refusal


def test_context_is_at_most_what_the_files_state(tmp_path: Path) -> None:
    folder = write_folder("gptj", tmp_path / "mine")
    assert read_decoder_folder(folder, 50).max_tokens == 50
    with pytest.raises(SettingError, match="at most 128, which the folder states"):
        read_decoder_folder(folder, 129)


def test_explain_looks_into_a_decoder_and_runs_nothing(tmp_path: Path) -> None:
    for name in ("gptj", "llama_genai"):
        folder = write_folder(name, tmp_path / name)
        explained = explain(name, recognise(folder), ImportSettings(), "auto", tmp_path)
        assert explained.details is not None
        assert explained.details.refusal == ""
        assert explained.details.task == "text-generation"
        assert explained.details.has_chat_template


def test_a_decoder_in_onnx_needs_no_torch(tmp_path: Path) -> None:
    """In a process of its own, in which its import fails."""
    folder = write_folder("gptj", tmp_path / "mine")
    program = (
        "import sys, json; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from pathlib import Path\n"
        "from commands.folders.onnx_maker import make\n"
        "make(json.loads(sys.argv[1]), Path(sys.argv[2]), print)\n"
    )
    line = [sys.executable, "-c", program, json.dumps(job(folder)), str(tmp_path)]
    subprocess.run(line, check=True, timeout=120)  # noqa: S603 - our own program
    assert (tmp_path / "model" / "1" / "model.onnx").is_file()
