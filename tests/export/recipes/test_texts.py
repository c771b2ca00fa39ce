"""A whole export: what is written, what is refused, and that a refusal changes nothing."""

import json
import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from export.checks.parity import GraphRunner
from export.errors import ExportError
from export.exporter import export_any
from export.settings import ExportSettings, HeldOut
from export.writer import ExportedModel, choose_version, write_model
from models.checkpoints.checkpoint import Checkpoint
from models.data.datasets import Example
from models.errors import OutputError
from models.networks.heads import SequenceClassifier
from service.contract.files import ModelSource
from service.contract.manifest import Manifest, Precision
from service.contract.model_config import parse_config
from service.errors import LoadError
from service.repository.loading import Openers, load_model
from service.settings import Settings
from tests.export.conftest import TraceOf, checkpoint_of, contents
from tests.fakes.tiny import tiny_classifier, tiny_embedder, torch_outputs, torch_outputs_of_texts

TEXTS = ("free prize", "we are on", "claim now", "lunch tomorrow", "call", "now now now", "7 at 9?")
VERSION_FILES = ["manifest.json", "model.onnx", "tokenizer.json"]


def answers_of(checkpoint: Checkpoint, texts: tuple[str, ...] = TEXTS) -> list[Example]:
    """Texts labelled with what the PyTorch model says of them."""
    best = torch_outputs_of_texts(checkpoint, texts).argmax(axis=1)
    return [
        Example(line, checkpoint.labels[label], text)
        for line, (text, label) in enumerate(zip(texts, best, strict=True), start=1)
    ]


def test_repository_holds_a_model_as_triton_lays_it_out(exported: Path) -> None:
    assert sorted(contents(exported)) == [
        "spam",
        "spam/1",
        *(f"spam/1/{name}" for name in VERSION_FILES),
        "spam/config.pbtxt",
        "spam/labels.txt",
    ]


def test_config_names_what_clients_send_and_get(exported: Path) -> None:
    config = parse_config((exported / "spam/config.pbtxt").read_text(), "spam")
    assert config.platform == "onnxruntime_onnx"
    assert config.max_batch_size == 64
    inputs = [(tensor.name, list(tensor.dims), tensor.optional) for tensor in config.input]
    assert inputs == [("text", [1], False), ("text_pair", [1], True)]
    outputs = [(tensor.name, list(tensor.dims), tensor.label_filename) for tensor in config.output]
    assert outputs == [("label", [1], "labels.txt"), ("score", [1], ""), ("logits", [2], "")]
    assert config.HasField("dynamic_batching")
    assert (exported / "spam/labels.txt").read_text() == "ham\nspam\n"


def test_manifest_says_what_was_counted_and_measured(exported: Path) -> None:
    manifest = Manifest.from_json((exported / "spam/1/manifest.json").read_text())
    assert (manifest.task, manifest.precision) == ("text-classification", "fp32")
    assert manifest.labels == ("ham", "spam")
    assert (manifest.max_tokens, manifest.pad_token_id) == (64, 0)
    assert manifest.origin == "random weights"
    assert manifest.fused == {"Attention": 2, "LayerNormalization": 5, "Gelu": 2}
    assert manifest.parity["max_abs_error"] < 1e-4
    assert manifest.accuracy == {}, "no labelled data, no claim"
    assert set(manifest.versions) == {"attendant", "onnx", "onnxruntime", "torch"}


def test_tokenizer_is_the_checkpoints_own(exported: Path) -> None:
    written = Tokenizer.from_file(str(exported / "spam/1/tokenizer.json"))
    assert written.to_str() == checkpoint_of("bert classifier").tokenizer.to_str()


def test_exported_model_loads_and_answers_as_pytorch_does(exported: Path) -> None:
    """Through the server's own loader, tokenizer and session; logits within 1e-5."""
    loaded = load_model(
        ModelSource.of(exported, "spam"), Settings(model_repository=exported), Openers()
    )
    (version,) = loaded.versions
    assert version.number == 1
    assert version.manifest is not None
    assert version.tokenizer is not None
    wanted = torch_outputs_of_texts(checkpoint_of("bert classifier"), TEXTS)
    for text, logits in zip(TEXTS, wanted, strict=True):
        (row,) = version.tokenizer.encode([text], can_truncate=False)
        inputs = {
            "input_ids": row.input_ids,
            "attention_mask": np.ones_like(row.input_ids),
            "token_type_ids": row.token_type_ids,
        }
        (found,) = version.sessions[0].run(inputs, ["logits"])
        np.testing.assert_allclose(found[0], logits, rtol=0, atol=1e-5)


def test_embedder_is_written_without_labels(tmp_path: Path) -> None:
    """Its size and its pooling are what the manifest tells instead."""
    settings = ExportSettings("embed", tmp_path, "fp32", max_batch_size=7, example="Try me.")
    folder, manifest = export_any(tiny_embedder("cls", "sum_all"), settings)
    assert folder == tmp_path / "embed/1"
    assert manifest.embedding_size == 32
    assert manifest.pooling == "cls of sum all, normalised"
    assert manifest.example == "Try me."
    assert not (tmp_path / "embed/labels.txt").exists()
    loaded = load_model(
        ModelSource.of(tmp_path, "embed"), Settings(model_repository=tmp_path), Openers()
    )
    assert loaded.versions[0].plan.interface.max_batch_size == 7
    assert loaded.versions[0].manifest == manifest


# --- the same bytes ---------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_same_checkpoint_gives_the_same_bytes(precision: Precision, tmp_path: Path) -> None:
    """Into two folders, from two models: every file is equal. int8 and processes: test_cli."""
    for folder in ("one", "two/deeper"):
        checkpoint = tiny_classifier(num_layers=1)
        settings = ExportSettings("spam", tmp_path / folder, precision)
        export_any(checkpoint, settings, HeldOut(answers_of(checkpoint, TEXTS[:2])))
    one, two = contents(tmp_path / "one"), contents(tmp_path / "two/deeper")
    assert len(one) == 7
    assert one == two


# --- precisions, and what they cost on labelled data --------------------------------------------


def test_int8_records_parity_and_accuracy(tmp_path: Path) -> None:
    """7 texts labelled by the model itself: the float graph is right on all of them."""
    checkpoint = checkpoint_of("bert classifier")
    settings = ExportSettings("spam", tmp_path, "int8", max_accuracy_drop=1.0)
    _, manifest = export_any(checkpoint, settings, HeldOut(answers_of(checkpoint)))
    assert manifest.accuracy["texts"] == len(TEXTS)
    assert manifest.accuracy["float"] == 1.0
    assert 0.0 <= manifest.accuracy["exported"] <= 1.0
    assert manifest.parity["max_neighbour_effect"] < 1e-5
    assert 0.9 < manifest.parity["mean_cosine"] < 0.99999
    assert manifest.fused["Attention"] == 2
    written = Manifest.from_json((tmp_path / "spam/1/manifest.json").read_text())
    assert written == manifest


def test_accuracy_is_the_share_of_right_answers(tmp_path: Path) -> None:
    """2 of 8 labels turned round: 0.75 in the float graph, and so in fp32.

    The eighth text has 200 words, for a model of 64 tokens: it is cut.
    """
    checkpoint = checkpoint_of("bert classifier")
    examples = answers_of(checkpoint)
    turned = {"ham": "spam", "spam": "ham"}
    examples[:2] = [replace(example, label=turned[example.label]) for example in examples[:2]]
    ids = np.array([checkpoint.tokenizer.encode("free " * 200).ids[:64]])
    batch = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    label = checkpoint.labels[torch_outputs(checkpoint.model, batch).argmax()]
    examples.append(Example(8, label, "free " * 200))
    _, manifest = export_any(
        checkpoint, ExportSettings("spam", tmp_path, "fp32"), HeldOut(examples)
    )
    assert manifest.accuracy == {"texts": 8, "float": 0.75, "exported": 0.75}


def close_call() -> Checkpoint:
    """A classifier whose two labels differ by less than 8 bits can tell.

    The rows of its last matrix differ by a thousandth of a weight's size: both round to the
    same integers, and then every text gets the first label.
    """
    checkpoint = tiny_classifier()
    assert isinstance(checkpoint.model, SequenceClassifier)
    output = checkpoint.model.head.output
    with torch.no_grad():
        noise = torch.randn(output.weight[0].shape, generator=torch.Generator().manual_seed(1))
        output.weight[1] = output.weight[0] + 1e-3 * noise
        output.bias.zero_()
    return checkpoint


def test_precision_that_costs_too_much_accuracy_is_refused(tmp_path: Path) -> None:
    """The model lives on differences of 1e-3; the limit is half a point."""
    checkpoint = close_call()
    examples = answers_of(checkpoint, tuple(f"{text} {n}" for text in TEXTS for n in range(10)))
    assert len({example.label for example in examples}) == 2
    settings = ExportSettings("spam", tmp_path, "int8", max_accuracy_drop=0.005)
    with pytest.raises(ExportError, match=r"accuracy drops by 0\.\d+, from 1.0 .* limit is 0.005"):
        export_any(checkpoint, settings, HeldOut(examples))
    assert contents(tmp_path) == {}


def test_int8_that_is_too_far_off_is_refused_where_there_are_no_labels(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"mean cosine .* is 0\.\d+, the limit is 0.995"):
        export_any(close_call(), ExportSettings("spam", tmp_path, "int8"))
    assert contents(tmp_path) == {}


def test_label_that_the_model_does_not_know_is_refused(tmp_path: Path) -> None:
    examples = [Example(1, "ham", "lunch"), Example(2, "eggs", "breakfast")]
    with pytest.raises(ExportError, match=r"labels \['eggs'\], the model knows \('ham', 'spam'\)"):
        export_any(
            checkpoint_of("bert classifier"),
            ExportSettings("spam", tmp_path, "fp32"),
            HeldOut(examples),
        )
    assert contents(tmp_path) == {}


def test_labelled_data_for_an_embedder_is_refused(tmp_path: Path) -> None:
    examples = [Example(1, "ham", "lunch")]
    with pytest.raises(ExportError, match=r"the model knows \(\)"):
        export_any(
            checkpoint_of("bert embedder"),
            ExportSettings("embed", tmp_path, "fp32"),
            HeldOut(examples),
        )


def test_fp16_that_overflows_is_refused(tmp_path: Path) -> None:
    """Logits near 1e6 do not fit float16, whose largest number is 65504."""
    checkpoint = tiny_classifier(num_layers=1)
    assert isinstance(checkpoint.model, SequenceClassifier)
    checkpoint.model.head.output.weight.data *= 1e6
    with pytest.raises(ExportError, match="the limit is 5e-02"):
        export_any(checkpoint, ExportSettings("spam", tmp_path, "fp16"))
    assert contents(tmp_path) == {}


# --- names and versions -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "/etc", "../up"])
def test_name_that_is_no_folder_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="expected a folder name"):
        export_any(checkpoint_of("bert classifier"), ExportSettings(name, tmp_path / "r", "fp32"))
    assert contents(tmp_path) == {}


@pytest.fixture
def spam(trace_of: TraceOf) -> ExportedModel:
    """A model ready to be written."""
    checkpoint = checkpoint_of("bert classifier")
    manifest = Manifest("text-classification", "fp32", 64, 0, checkpoint.labels)
    return ExportedModel(trace_of("bert classifier", "Attention"), checkpoint.tokenizer, manifest)


@pytest.mark.parametrize(
    ("taken", "free"), [([], 1), ([1], 2), ([1, 2, 3], 4), ([3], 4), ([9, 10], 11)]
)
def test_next_free_version_follows_the_highest(taken: list[int], free: int, tmp_path: Path) -> None:
    """A gap below is not reused: a client of version 1 must not get another model."""
    for version in taken:
        (tmp_path / str(version)).mkdir()
    (tmp_path / "notes").mkdir()
    assert choose_version(tmp_path, None) == free


def test_new_versions_join_the_old_and_leave_the_configuration(
    spam: ExportedModel, tmp_path: Path
) -> None:
    """Version 2 by default, version 7 on request; what people changed in the file stays."""
    write_model(spam, tmp_path, "spam", None, 64)
    config = tmp_path / "spam/config.pbtxt"
    config.write_text(config.read_text() + "# tuned by hand\n")
    before = contents(tmp_path)
    assert write_model(spam, tmp_path, "spam", None, 8).name == "2"
    assert write_model(spam, tmp_path, "spam", 7, 8).name == "7"
    after = contents(tmp_path)
    assert before.items() <= after.items()
    assert sorted(set(after) - set(before)) == [
        path
        for version in (2, 7)
        for path in (f"spam/{version}", *(f"spam/{version}/{name}" for name in VERSION_FILES))
    ]


# --- a failed export changes nothing --------------------------------------------------------------


def test_version_that_exists_is_refused_and_kept(spam: ExportedModel, tmp_path: Path) -> None:
    write_model(spam, tmp_path, "spam", 3, 64)
    before = contents(tmp_path)
    with pytest.raises(ExportError, match=r"version 3 of 'spam' exists; taken: \[3\]"):
        write_model(spam, tmp_path, "spam", 3, 64)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("labels", [("ham", "spam", "other"), ("spam", "ham"), ("no", "yes")])
def test_labels_that_do_not_fit_the_model_are_refused(
    labels: tuple[str, ...], spam: ExportedModel, tmp_path: Path
) -> None:
    """config.pbtxt and labels.txt are shared by all versions: another number, order or name."""
    write_model(spam, tmp_path, "spam", None, 64)
    before = contents(tmp_path)
    other = replace(spam, manifest=replace(spam.manifest, labels=labels))
    with pytest.raises(ExportError, match="the new version does not fit 'spam'"):
        write_model(other, tmp_path, "spam", None, 64)
    assert contents(tmp_path) == before


def test_embedder_does_not_become_a_version_of_a_classifier(
    spam: ExportedModel, tmp_path: Path
) -> None:
    write_model(spam, tmp_path, "spam", None, 64)
    before = contents(tmp_path)
    manifest = Manifest("embedding", "fp32", 64, 0, embedding_size=32)
    with pytest.raises(ExportError, match="the new version does not fit 'spam'"):
        write_model(replace(spam, manifest=manifest), tmp_path, "spam", None, 64)
    assert contents(tmp_path) == before


def test_config_that_cannot_be_read_is_refused(spam: ExportedModel, tmp_path: Path) -> None:
    (tmp_path / "spam").mkdir()
    (tmp_path / "spam/config.pbtxt").write_text("max_batch_size: many")
    before = contents(tmp_path)
    with pytest.raises(ExportError, match="max_batch_size"):
        write_model(spam, tmp_path, "spam", None, 64)
    assert contents(tmp_path) == before


def test_disk_that_fills_up_leaves_nothing_behind(spam: ExportedModel, tmp_path: Path) -> None:
    """A limit of 32 KiB on the size of a file stands for the disk; the graph has more."""
    write_model(spam, tmp_path, "spam", None, 64)
    before = contents(tmp_path)
    old_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (32 * 1024, old_limit[1]))
    try:
        for name in ("spam", "another"):
            with pytest.raises(OutputError, match=rf"{name}/\d cannot be written: File too la"):
                write_model(spam, tmp_path, name, None, 64)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old_limit)
    assert contents(tmp_path) == before


def test_leftover_of_a_killed_export_does_not_hurt(spam: ExportedModel, tmp_path: Path) -> None:
    """It is neither served nor mistaken for a version, and the next export clears it away."""
    leftover = tmp_path / ".spam.1.writing/1"
    leftover.mkdir(parents=True)
    (leftover / "model.onnx").write_bytes(b"half a mod")
    (leftover / "stray.bin").write_bytes(b"junk")
    folder = write_model(spam, tmp_path, "spam", None, 64)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["spam"]
    assert sorted(path.name for path in folder.iterdir()) == VERSION_FILES
    load_model(ModelSource.of(tmp_path, "spam"), Settings(model_repository=tmp_path), Openers())


def test_repository_is_made_where_there_is_none(spam: ExportedModel, tmp_path: Path) -> None:
    folder = write_model(spam, tmp_path / "some/where", "spam", None, 64)
    assert folder == tmp_path / "some/where/spam/1"


# --- what the server refuses, because the export would have --------------------------------------


def test_manifest_and_graph_must_fit_together(spam: ExportedModel, tmp_path: Path) -> None:
    """3 labels promised, 2 logits computed: the loader names both."""
    write_model(spam, tmp_path, "spam", None, 64)
    path = tmp_path / "spam/1/manifest.json"
    values = json.loads(path.read_text())
    values["labels"].append("other")
    path.write_text(json.dumps(values))
    (tmp_path / "spam/config.pbtxt").unlink()
    with pytest.raises(LoadError, match="needs an output 'logits' of shape"):
        load_model(ModelSource.of(tmp_path, "spam"), Settings(model_repository=tmp_path), Openers())


def test_outputs_of_texts_do_not_depend_on_their_batches(trace_of: TraceOf) -> None:
    """40 texts run 16 at a time, in the order given."""
    from export.checks.parity import outputs_of_texts

    checkpoint = checkpoint_of("bert classifier")
    texts = [f"{'free ' * (n % 9)}{n}" for n in range(40)]
    run = GraphRunner(trace_of("bert classifier", "Attention"))
    found = np.concatenate(list(outputs_of_texts(run, checkpoint.tokenizer, texts, 64, 0)))
    np.testing.assert_allclose(found, torch_outputs_of_texts(checkpoint, texts), atol=1e-5)
