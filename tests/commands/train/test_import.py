"""`attendant import` as a user meets it: files, messages, exit codes."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import Result

from models.checkpoints.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from models.networks.retrieval import TermEmbedder, ThreeWayEmbedder
from tests.checkpoints.rows import CLS, MEAN, RAW, Row

Run = Callable[..., Result]


def test_a_hugging_face_style_folder_keeps_its_declared_use(
    run: Run, base: Path, tmp_path: Path
) -> None:
    result = run("import", base, tmp_path / "copy", "--origin", "somebody/model")
    assert result.exit_code == 0, result.output
    assert "mean of last" in result.output
    checkpoint = load_checkpoint(tmp_path / "copy")
    assert checkpoint.origin == "somebody/model"
    assert checkpoint.task == "embedding"


def test_an_import_can_change_how_an_encoder_embeds(
    run: Run, classifier_checkpoint: Checkpoint, tmp_path: Path
) -> None:
    save_checkpoint(classifier_checkpoint, tmp_path / "classifier")
    flags = ["--pooling", "cls", "--layers", "concat_last_four", "--normalize"]
    result = run(
        *("import", tmp_path / "classifier", tmp_path / "embedder"),
        *("--task", "embedding", *flags),
    )
    assert result.exit_code == 0, result.output
    head = json.loads((tmp_path / "embedder" / "config.json").read_text())["head"]
    assert head == {"pooling": "cls", "layers": "concat_last_four", "normalize": True}
    assert "64 values" in result.output  # 4 layers of 16


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--task", "translation"], "one of auto, text-classification, pair-scoring, embedding"),
        (["--task", "text-classification"], "must be auto or embedding: "),
        (["--task", "text-generation"], "it must be auto or embedding, which is the task"),
        (["--pooling", "median"], "'median' is not allowed, it must be one of mean, cls"),
        (["--layers", "middle"], "'middle' is not allowed, it must be one of first, last"),
    ],
)
def test_an_import_that_cannot_be_is_refused_by_flag(
    run: Run, base: Path, tmp_path: Path, flags: list[str], message: str
) -> None:
    result = run("import", base, tmp_path / "copy", *flags)
    assert result.exit_code == 2
    assert flags[0] in result.output
    assert message in result.output
    assert not (tmp_path / "copy").exists()


def test_a_classifier_has_no_pooling_to_set(
    run: Run, classifier_checkpoint: Checkpoint, tmp_path: Path
) -> None:
    save_checkpoint(classifier_checkpoint, tmp_path / "classifier")
    result = run("import", tmp_path / "classifier", tmp_path / "copy", "--pooling", "cls")
    assert result.exit_code == 2
    assert "it is for embedders" in result.output


def test_a_decoder_keeps_its_use_or_embeds_and_gets_no_other(
    run: Run, gpt_checkpoint: Checkpoint, tmp_path: Path
) -> None:
    save_checkpoint(gpt_checkpoint, tmp_path / "gpt")
    result = run("import", tmp_path / "gpt", tmp_path / "copy", "--task", "text-generation")
    assert result.exit_code == 0, result.output
    assert "3 layers, 16 values per token" in result.output
    assert "none" in _row(result.output, "chat template")
    assert "own sampling" not in result.output
    assert load_checkpoint(tmp_path / "copy").task == "text-generation"

    result = run("import", tmp_path / "gpt", tmp_path / "vectors", "--task", "embedding")
    assert result.exit_code == 0, result.output
    assert load_checkpoint(tmp_path / "vectors").task == "embedding"

    result = run("import", tmp_path / "gpt", tmp_path / "other", "--task", "fill-mask")
    assert result.exit_code == 2
    assert "it must be auto, embedding or text-generation, which is the task" in result.output
    result = run("import", tmp_path / "gpt", tmp_path / "other", "--pooling", "cls")
    assert result.exit_code == 2
    assert "left out: it is for embedders, and the task of" in result.output
    assert not (tmp_path / "other").exists()


def test_the_table_says_whether_a_decoder_takes_chats_and_what_it_samples_with(
    run: Run, gpt_checkpoint: Checkpoint, tmp_path: Path
) -> None:
    chat = {"chat_template": [{"name": "default", "template": "{{ messages }}"}]}
    sampling = {"temperature": 0.6, "top_k": 20}
    save_checkpoint(replace(gpt_checkpoint, chat=chat, sampling=sampling), tmp_path / "gpt")
    result = run("import", tmp_path / "gpt", tmp_path / "copy")
    assert result.exit_code == 0, result.output
    assert "yes" in _row(result.output, "chat template")
    assert "temperature 0.6, top_k 20" in _row(result.output, "own sampling")


@pytest.mark.parametrize(
    ("row", "network", "shown"),
    [
        (
            Row("xlm-roberta", "bge-m3", "three ways", "xlm-roberta", pooling=CLS),
            ThreeWayEmbedder,
            {
                "embedding": "64 values",
                "sparse": "weights of 600 words",
                "token vectors": "24 values",
                "pooling": "cls of last layer, normalised",
            },
        ),
        (
            Row("bert", "splade", "terms", form="max"),
            TermEmbedder,
            {"sparse": "weights of 600 words", "pooling": "max of word weights"},
        ),
    ],
    ids=["three ways", "terms"],
)
def test_an_embedder_of_several_kinds_keeps_its_heads(
    run: Run, tmp_path: Path, row: Row, network: type[object], shown: dict[str, str]
) -> None:
    row.write(tmp_path / "hub")
    result = run("import", tmp_path / "hub", tmp_path / "copy")
    assert result.exit_code == 0, result.output
    assert isinstance(load_checkpoint(tmp_path / "copy").model, network)
    for name, value in shown.items():
        assert value in _row(result.output, name)

    result = run("import", tmp_path / "hub", tmp_path / "other", "--pooling", "mean")
    assert result.exit_code == 2
    assert "--pooling" in result.output
    assert "which are computed as they were trained" in _unwrapped(result.output)
    assert not (tmp_path / "other").exists()


def test_vectors_of_an_embedder_of_three_kinds_are_cut_and_word_weights_are_not(
    run: Run, tmp_path: Path
) -> None:
    Row("xlm-roberta", "m3", "three ways", "xlm-roberta", pooling=CLS).write(tmp_path / "three")
    result = run("import", tmp_path / "three", tmp_path / "copy", "--dimensions", "32,64,16")
    assert result.exit_code == 0, result.output
    assert "32, 16" in _row(result.output, "cut to")
    assert load_checkpoint(tmp_path / "copy").embedder.dimensions == (32, 16)

    Row("bert", "splade", "terms", form="max").write(tmp_path / "terms")
    result = run("import", tmp_path / "terms", tmp_path / "other", "--dimensions", "32")
    assert result.exit_code == 2
    assert "--dimensions" in result.output


def test_the_table_has_the_prompts_of_an_embedder_and_the_scores_of_a_head(
    run: Run, tmp_path: Path
) -> None:
    Row("bert", "e5", "embedding", pooling=MEAN).write(tmp_path / "e5")
    use = {"prompts": {"query": "query: ", "[/b]": "passage: "}, "default_prompt_name": "query"}
    (tmp_path / "e5" / "config_sentence_transformers.json").write_text(json.dumps(use))
    result = run("import", tmp_path / "e5", tmp_path / "embedder")
    assert result.exit_code == 0, result.output
    assert "query, [/b]; by default query" in _row(result.output, "prompts")
    assert "mean of last, normalised" in _row(result.output, "pooling")

    Row("bert", "ms-marco", "score", changes=RAW).write(tmp_path / "scores")
    result = run("import", tmp_path / "scores", tmp_path / "reranker")
    assert "identity" in _row(result.output, "scores by")


def test_the_table_of_a_classifier_of_images_has_their_size(run: Run, tmp_path: Path) -> None:
    Row("vit", "ViT", "images").write(tmp_path / "hub")
    result = run("import", tmp_path / "hub", tmp_path / "copy")
    assert "32 x 32, 3 channels" in _row(result.output, "images")
    assert "longest text" not in result.output


def _unwrapped(output: str) -> str:
    """The words of an error, without the box and the line breaks."""
    return " ".join(output.replace("│", " ").split())


def _row(output: str, name: str) -> str:
    """The line of the table that has the name."""
    return next(line for line in output.splitlines() if line.startswith(f"│ {name} "))


def test_a_template_for_another_model_is_refused_by_the_name_of_its_file(
    run: Run, base: Path, tmp_path: Path
) -> None:
    template = tmp_path / "template.txt"
    template.write_text("Judge whether {document} answers {query}.")
    result = run("import", base, tmp_path / "copy", "--pair-template", template)
    assert result.exit_code == 2
    output = result.output.replace("\n", "")
    assert "--pair-template" in output
    assert "template.txt' is not allowed, it must be left out: it is for decoders" in output
    assert "Judge" not in output


def test_an_empty_folder_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = run("import", tmp_path / "empty", tmp_path / "copy")
    assert result.exit_code == 1
    assert "empty is empty: give the folder of a model's files" in result.output.replace("\n", " ")
