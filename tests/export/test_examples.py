"""Every export has texts to try it with: of a file, of labelled data, or general ones."""

from pathlib import Path

import pytest

from export.errors import ExportError
from export.examples import (
    LONGEST_OF_LABELLED,
    MAX_EXAMPLES,
    example_fields,
    read_examples,
    rows_of_symbols,
    some_of,
)
from export.general_examples import of_texts
from export.settings import ExportSettings
from models.data.datasets import Example as LabelledExample
from service.contract.manifest import MAX_EXAMPLE_IMAGE_BYTES, Example
from service.serving.facts import MAX_LISTED_EXAMPLES
from tests.e2e.conftest import ROOT

EXAMPLES = ROOT / "models/data/examples"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "texts.txt"


def test_a_line_is_an_example_and_a_tab_begins_its_second_part(file: Path) -> None:
    file.write_text("one\n\ntwo\tthe second of a pair\n", encoding="utf-8")
    assert read_examples(file, "embedding") == (
        Example("one"),
        Example("two", "the second of a pair"),
    )
    file.write_text("Where?\tHere.", encoding="utf-8")
    assert read_examples(file, "question-answering") == (Example("Where?", context="Here."),)


def test_a_line_of_an_image_has_its_name_and_the_path_of_its_file(file: Path) -> None:
    file.write_text("a cat\tcat.png\n", encoding="utf-8")
    image = file.parent / "cat.png"
    image.write_bytes(b"content")
    (example,) = read_examples(file, "image-classification", has_images=True)
    assert (example.text, example.image_file) == ("a cat", b"content")
    image.write_bytes(b"x" * (MAX_EXAMPLE_IMAGE_BYTES + 1))
    with pytest.raises(
        ExportError, match=r"cat\.png has 16385 bytes, an example has at most 16384"
    ):
        read_examples(file, "image-classification", has_images=True)
    file.write_text("a cat\n", encoding="utf-8")
    with pytest.raises(ExportError, match="line 1 has no image's path behind a tab"):
        read_examples(file, "image-classification", has_images=True)


@pytest.mark.parametrize("lines", [0, MAX_EXAMPLES + 1])
def test_a_file_without_examples_or_with_too_many_is_refused(file: Path, lines: int) -> None:
    file.write_text("text\n" * lines, encoding="utf-8")
    with pytest.raises(ExportError, match=rf"texts\.txt has {lines} examples, expected 1 to 32"):
        read_examples(file, "embedding")


def test_an_example_without_a_first_text_is_refused(file: Path) -> None:
    file.write_text("text\n\tsecond", encoding="utf-8")
    with pytest.raises(ExportError, match=r"texts\.txt: line 2 has no text before its tab"):
        read_examples(file, "embedding")


def test_as_many_are_listed_as_a_file_may_have() -> None:
    assert MAX_EXAMPLES == MAX_LISTED_EXAMPLES


def test_the_named_example_comes_first() -> None:
    settings = ExportSettings("name", example="mine", examples=of_texts(["his", "mine"]))
    assert example_fields(settings, of_texts(["general"])) == {
        "example": "mine",
        "examples": of_texts(["mine", "his"]),
    }


def test_without_a_file_examples_are_general() -> None:
    fields = example_fields(ExportSettings("name"), of_texts(["general", "other"]))
    assert fields == {"example": "general", "examples": of_texts(["general", "other"])}
    assert example_fields(ExportSettings("name"), ()) == {"example": "", "examples": ()}


def test_labelled_data_gives_short_examples_of_every_label() -> None:
    rows = [("ham", "a"), ("ham", "b"), ("ham", "x" * (LONGEST_OF_LABELLED + 1)), ("spam", "c")]
    labelled = [LabelledExample(line, *row) for line, row in enumerate(rows, 1)]
    assert some_of(labelled) == of_texts(["a", "c", "b"])
    assert some_of([]) == ()


def test_rows_of_symbols_hold_symbols_alone() -> None:
    rows = rows_of_symbols(["[PAD]", "s0", "s1", None, "s2"], max_symbols=2)
    assert [row.text for row in rows] == ["s0 s1", "s1 s2", "s2 s0"]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.txt")), ids=lambda path: path.stem)
def test_the_files_of_our_own_models_are_read(path: Path) -> None:
    """Each has five examples or more, all different; those of masks have the mask."""
    task = "question-answering" if path.stem == "answers" else ""
    examples = read_examples(path, task)
    assert len(set(examples)) == len(examples) >= 5
    assert all(bool(each.context) == (path.stem == "answers") for each in examples)
    assert all("[MASK]" in each.text for each in examples if path.stem == "bert")
