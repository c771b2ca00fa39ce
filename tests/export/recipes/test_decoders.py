"""A whole export of a decoder: what is written and refused, and what the server makes of it."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from export.checks.decoding import DecoderParity
from export.errors import ExportError
from export.exporter import export_any
from export.recipes.decoders import LIMITS
from export.settings import ExportSettings, HeldOut
from export.writer import ExportedModel, write_model
from models.checkpoints.checkpoint import Checkpoint
from models.networks.gpt import GPT, generate
from models.networks.llama import Llama
from service.contract.files import ModelSource
from service.contract.manifest import Manifest, Precision
from service.contract.model_config import parse_config
from service.errors import LoadError
from service.generation.decoders.decoder import MAX_SLOTS, OnnxDecoder
from service.repository.generative import LoadedDecoder
from service.repository.loading import Openers, load_model
from service.settings import Settings
from tests.export.conftest import checkpoint_of, contents
from tests.fakes.processor import in_blocks
from tests.fakes.tiny_gpt import (
    HEAD_SIZE,
    MAX_TOKENS,
    NUM_HEADS,
    NUM_LAYERS,
    VOCAB_SIZE,
    continued,
    liked_text,
    run,
    tiny_generator,
    tiny_gpt,
    tiny_graph,
)
from tests.fakes.tiny_llama import tiny_llama_generator

SLOT_BYTES = 2 * NUM_LAYERS * NUM_HEADS * HEAD_SIZE * 4 * MAX_TOKENS  # 98,304
VERSION_FILES = ["manifest.json", "model.onnx", "tokenizer.json"]
END_ID = VOCAB_SIZE - 1


@pytest.fixture(scope="module")
def text() -> str:
    """4 windows that `tiny_gpt()` likes."""
    return liked_text(tiny_gpt(), 4)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory, text: str) -> Path:
    """With version 1 of `tale` in float32, measured on `text`; not to be changed."""
    repository = tmp_path_factory.mktemp("exported")
    export_any(tiny_generator(), ExportSettings("tale", repository, "fp32"), HeldOut(text=text))
    return repository


@pytest.fixture
def tale() -> ExportedModel:
    """A decoder ready to be written."""
    manifest = Manifest("text-generation", "fp32", MAX_TOKENS, END_ID, eos_token_ids=(END_ID,))
    return ExportedModel(tiny_graph(), tiny_generator().tokenizer, manifest)


# --- what is written ------------------------------------------------------------------------------


def test_repository_holds_a_model_as_triton_lays_it_out(repository: Path) -> None:
    """No labels.txt: nothing is classified."""
    files = ["tale", "tale/1", *(f"tale/1/{name}" for name in VERSION_FILES), "tale/config.pbtxt"]
    assert sorted(contents(repository)) == files


def test_config_names_what_triton_s_generative_backends_take(repository: Path) -> None:
    """4 inputs, of which a client must send one; many answers to a request; no batch axis."""
    config = parse_config((repository / "tale/config.pbtxt").read_text(), "tale")
    inputs = [(tensor.name, list(tensor.dims), tensor.optional) for tensor in config.input]
    assert inputs == [
        ("text_input", [1], False),
        ("stream", [1], True),
        ("sampling_parameters", [1], True),
        ("exclude_input_in_output", [1], True),
    ]
    assert [(tensor.name, list(tensor.dims)) for tensor in config.output] == [("text_output", [-1])]
    assert config.model_transaction_policy.decoupled
    assert config.max_batch_size == 0
    assert not config.HasField("dynamic_batching")
    assert not config.instance_group, "the server knows its machine"


def test_manifest_says_what_was_counted_and_measured(repository: Path) -> None:
    written = (repository / "tale/1/manifest.json").read_text()
    manifest = Manifest.from_json(written)
    assert manifest.to_json() == written
    assert (manifest.task, manifest.precision) == ("text-generation", "fp32")
    assert (manifest.max_tokens, manifest.eos_token_ids) == (MAX_TOKENS, (END_ID,))
    assert manifest.origin == "random weights"
    assert manifest.example == "The"
    assert manifest.fused == {"GroupQueryAttention": 2, "LayerNormalization": 5, "Gelu": 2}
    assert 0 < manifest.parity.pop("max_abs_error") < 1e-4
    assert manifest.parity == {
        "changed_tokens": 0.0,
        "network_changed_tokens": 0.0,
        "max_neighbour_effect": 0.0,
        "neighbour_changed_tokens": 0.0,
    }
    assert manifest.perplexity["tokens"] == 4 * MAX_TOKENS
    assert manifest.perplexity["exported"] == pytest.approx(manifest.perplexity["float"], rel=1e-5)
    assert (manifest.accuracy, manifest.labels, manifest.embedding_size) == ({}, (), 0)
    assert set(manifest.versions) == {"attendant", "onnx", "onnxruntime", "torch"}


def test_same_checkpoint_gives_the_same_bytes(text: str, tmp_path: Path) -> None:
    """Of int8, into two folders, from two models, perplexity included: every file is equal."""
    told: list[str] = []
    for folder in ("one", "two/deeper"):
        checkpoint = tiny_generator(tiny_gpt(num_layers=1), max_tokens=50)
        settings = ExportSettings("tale", tmp_path / folder, "int8", max_perplexity_rise=1)
        _, manifest = export_any(checkpoint, settings, HeldOut(text=text), told.append)
    one, two = contents(tmp_path / "one"), contents(tmp_path / "two/deeper")
    assert len(one) == 6
    assert one == two
    assert manifest.max_tokens == 50, "the checkpoint's, where the network has places for more"
    assert told[0] == "tracing the graph"
    assert told[1].startswith("measuring activations: 1 of ")
    assert "int8: quantising weights" in told
    assert f"measuring perplexity on {4 * MAX_TOKENS} tokens: 95 of 95 steps" in told


def test_new_version_joins_the_old_and_leaves_the_configuration(
    repository: Path, text: str, tmp_path: Path
) -> None:
    """Version 1 in float32, then 2 with weights of 8 bits; what people tuned stays."""
    for name, content in contents(repository).items():
        path = tmp_path / name
        path.write_bytes(content) if content else path.mkdir()
    config = tmp_path / "tale/config.pbtxt"
    config.write_text(config.read_text() + "# tuned by hand\n")
    before = contents(tmp_path)
    settings = ExportSettings("tale", tmp_path, "int8-weights", example="Once")
    folder, manifest = export_any(tiny_generator(), settings, HeldOut(text=text))
    assert folder == tmp_path / "tale/2"
    after = contents(tmp_path)
    assert before.items() <= after.items()
    assert len(after) == len(before) + 4
    assert (manifest.precision, manifest.example) == ("int8-weights", "Once")
    exact, exported = (manifest.perplexity[kind] for kind in ("float", "exported"))
    assert exact != exported
    assert manifest.perplexity["rise"] == pytest.approx(exported / exact - 1, abs=1e-4)
    (version,) = load_model(ModelSource.of(tmp_path, "tale"), Settings(), Openers()).versions
    assert (version.number, version.manifest) == (2, manifest)
    assert version.description.startswith(
        "text-generation, int8-weights (the only one there is), 256 slots of 96 tokens"
    )


# --- what is refused changes nothing --------------------------------------------------------------


def refused(checkpoint: Checkpoint, settings: ExportSettings, text: str | None, why: str) -> None:
    """An export fails with a message that matches, and the repository is as it was."""
    before = contents(settings.repository)
    with pytest.raises(ExportError, match=why):
        export_any(checkpoint, settings, HeldOut(text=text))
    assert contents(settings.repository) == before


class _OnePlaceOff(nn.Module):
    """Positions that differ by one between the network and its graph, which reads `table`."""

    def __init__(self, table: nn.Embedding) -> None:
        super().__init__()
        self.table = table

    def forward(self, num_tokens: int) -> Tensor:
        return self.table.weight.roll(1, dims=0)[:num_tokens]


def test_graph_that_computes_something_else_is_refused(tmp_path: Path, tale: ExportedModel) -> None:
    """Also beside a model that is there."""
    write_model(tale, tmp_path, "tale", None, max_batch_size=0)
    network = tiny_gpt(num_layers=1)
    network.positions = _OnePlaceOff(network.positions.table)  # type: ignore[assignment]
    why = r"differs from recomputing from scratch: max_abs_error is .*, the limit is [0-9.]+e-05"
    refused(tiny_generator(network), ExportSettings("tale", tmp_path, "fp32"), None, why)


def test_logits_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    """From the 81st place on, which one of three rows reaches; NaN is not below any limit."""
    network = tiny_gpt(num_layers=1)
    with torch.no_grad():
        network.positions.table.weight[80] = torch.nan
    settings = ExportSettings("tale", tmp_path, "int8-weights")
    refused(tiny_generator(network), settings, None, "max_abs_error is nan")


def test_perplexity_that_is_no_number_is_refused(tmp_path: Path) -> None:
    """At place 200 of 256, where no row of the comparison comes."""
    network = tiny_gpt(num_layers=1, max_positions=256)
    with torch.no_grad():
        network.positions.table.weight[200] = torch.nan
    text = liked_text(tiny_gpt(), 3)
    refused(
        tiny_generator(network), ExportSettings("tale", tmp_path, "fp32"), text, "rises by nan%"
    )


@pytest.mark.parametrize(
    ("checkpoint", "precision"),
    [in_blocks(tiny_generator(), "int4-weights"), (tiny_llama_generator(), "int8")],
)
def test_precision_that_costs_too_much_perplexity_is_refused(
    checkpoint: Checkpoint, precision: Precision, tmp_path: Path
) -> None:
    """The error names the limit's setting and a precision that costs less."""
    why = (
        r"perplexity rises by \d+\.\d%, from [\d.]+ to [\d.]+; the limit is 0\.0%: "
        "--max-perplexity-rise sets it, --precision int8-weights rounds less"
    )
    settings = ExportSettings("tale", tmp_path, precision, max_perplexity_rise=0.0)
    network = checkpoint.model
    assert isinstance(network, GPT | Llama)
    refused(checkpoint, settings, liked_text(network, 4), why)


@pytest.mark.parametrize(("checkpoint", "precision"), [in_blocks(tiny_generator(), "int4-weights")])
def test_fewer_sample_texts_are_read_for_a_large_network(
    checkpoint: Checkpoint, precision: Precision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """48 of the 192; the graph is a single piece."""
    told: list[str] = []
    monkeypatch.setattr("export.recipes.decoders.is_large", lambda _: True)
    settings = ExportSettings("tale", tmp_path, precision)
    export_any(checkpoint, settings, on_step=told.append)
    assert "measuring inputs of weights: 48 of 48 parts of samples" in told


@pytest.mark.parametrize(("text", "num_tokens"), [("", 0), ("x" * 95, 95)])
def test_held_out_text_that_is_too_short_is_refused(
    text: str, num_tokens: int, tmp_path: Path
) -> None:
    """An empty text is no less wrong: someone wanted a measurement."""
    why = f"the held-out text has {num_tokens} tokens, expected at least 96"
    refused(tiny_generator(), ExportSettings("tale", tmp_path, "fp32"), text, why)


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "/etc", "../up"])
def test_name_that_is_no_folder_name_is_refused(name: str, tmp_path: Path) -> None:
    settings = ExportSettings(name, tmp_path / "r", "fp32")
    refused(tiny_generator(), settings, None, "expected a folder name")
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("precision", ["int8-weights", "int4-weights"])
def test_encoder_has_no_weights_in_blocks(precision: Precision, tmp_path: Path) -> None:
    why = f"precision is {precision}, an encoder's is one of fp32, fp16, bf16, int8"
    with pytest.raises(ExportError, match=why):
        export_any(checkpoint_of("bert classifier"), ExportSettings("spam", tmp_path, precision))
    assert contents(tmp_path) == {}


def test_decoder_and_classifier_are_no_versions_of_each_other(
    tale: ExportedModel, tmp_path: Path
) -> None:
    labels = ("ham", "spam")
    spam = ExportedModel(
        tale.graph, tale.tokenizer, Manifest("text-classification", "fp32", 64, 0, labels)
    )
    write_model(tale, tmp_path, "tale", None, max_batch_size=0)
    write_model(spam, tmp_path, "spam", None, max_batch_size=8)
    before = contents(tmp_path)
    for exported, name in ((spam, "tale"), (tale, "spam")):
        with pytest.raises(ExportError, match=f"the new version does not fit '{name}'"):
            write_model(exported, tmp_path, name, None, max_batch_size=0)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("precision", "values", "field"),
    [
        ("fp32", (2e-5, 0, 0, 0), "max_abs_error"),
        ("fp32", (0, 0.01, 0, 0), "changed_tokens"),
        ("fp32", (0, 0, 2e-4, 0), "max_neighbour_effect"),
        ("fp16", (0.6, 0, 0, 0), "max_abs_error"),
        ("int8-weights", (9, 0.2, 0, 0), "changed_tokens"),
        ("int4-weights", (9, 0.01, 2e-4, 0), "max_neighbour_effect"),
        ("int8", (9, 0.01, float("nan"), 0), "max_neighbour_effect"),
    ],
)
def test_limits_name_what_is_over_them(
    precision: Precision, values: Sequence[float], field: str
) -> None:
    with pytest.raises(ExportError, match=rf"{field} is \S+, the limit is \S+$"):
        LIMITS[precision].check(DecoderParity(values[0], values[1], values[2], values[3], 0.0))


def test_a_graph_that_is_another_network_is_refused_in_any_precision() -> None:
    """Where PyTorch would choose otherwise nearly always, however the cache does."""
    for limits in LIMITS.values():
        with pytest.raises(ExportError, match="network_changed_tokens"):
            limits.check(DecoderParity(0.0, 0.0, 0.0, 0.0, 0.9))


# --- what the server makes of it ------------------------------------------------------------------


def loaded_decoder(
    repository: Path, kv_cache_bytes: int = SLOT_BYTES, max_context_tokens: int = 0
) -> LoadedDecoder:
    """Through the server's own loader and ONNX Runtime."""
    settings = Settings(kv_cache_bytes=kv_cache_bytes, max_context_tokens=max_context_tokens)
    loaded = load_model(ModelSource.of(repository, "tale"), settings, Openers())
    (version,) = loaded.versions
    assert version.decoder is not None
    return version.decoder


def test_exported_model_loads_and_continues_as_pytorch_does(repository: Path) -> None:
    """Three prompts together, 40 greedy tokens each."""
    loaded = loaded_decoder(repository, 3 * SLOT_BYTES)
    assert isinstance(loaded.decoder, OnnxDecoder)
    prompts = [loaded.tokenizer.encode(text).tolist() for text in ("The", "Once upon", "é!")]
    logits = run(loaded.decoder, 0, prompts, [0, 0, 0])
    found = continued(loaded.decoder, 0, prompts, logits, 40)
    assert found == [generate(tiny_gpt(), prompt, 40, ignore_eos=True) for prompt in prompts]
    assert len(loaded.tokenizer.token_bytes) == VOCAB_SIZE


@pytest.mark.parametrize(
    ("kv_cache_bytes", "max_context_tokens", "slots", "tokens"),
    [
        (SLOT_BYTES, 0, 1, 96),
        (6 * SLOT_BYTES - 1, 0, 5, 96),
        (5 * SLOT_BYTES, 48, 10, 48),
        (5 * SLOT_BYTES, 1_000, 5, 96),
        (2**31, 0, MAX_SLOTS, 96),
    ],
)
def test_slots_follow_from_the_cache_s_bytes(
    kv_cache_bytes: int, max_context_tokens: int, slots: int, tokens: int, repository: Path
) -> None:
    """2 * 2 layers * 4 heads * 16 values * 4 bytes * 96 tokens; half of these, twice the slots."""
    assert SLOT_BYTES == 98_304
    loaded = loaded_decoder(repository, kv_cache_bytes, max_context_tokens)
    assert loaded.description == f"{slots} slots of {tokens} tokens"


def test_memory_for_no_slot_is_refused_with_both_numbers(repository: Path) -> None:
    why = "kv_cache_bytes is 98303, but one sequence of 96 tokens takes 98304"
    with pytest.raises(LoadError, match=why):
        loaded_decoder(repository, SLOT_BYTES - 1)
