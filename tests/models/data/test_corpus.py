"""Text to learn from: documents, what is held out, faults with their place."""

from pathlib import Path

import pytest

from models.data.corpus import hold_out, read_corpus, read_text_file
from models.data.generated.python_topics import clean, main, python_topics, unwrap
from models.errors import DatasetError

FILES = ("corpus.txt", "held_out.txt")


def test_a_file_is_one_document_unless_form_feeds_part_it(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("a\n\nb\n")
    assert read_text_file(tmp_path / "one.txt").documents == ("a\n\nb\n",)
    (tmp_path / "three.txt").write_text("a\f b\f\n\fc")
    assert read_text_file(tmp_path / "three.txt").documents == ("a", " b", "c")


def test_line_ends_of_all_systems_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfa\r\nb\rc\n")
    file = read_text_file(tmp_path / "a.txt")
    assert file.documents == ("a\nb\nc\n",)
    assert (file.name, file.num_bytes) == ("a.txt", 10)


def test_bytes_that_are_no_text_are_named_with_their_place(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("grüße ".encode() + b"\xff and more")
    with pytest.raises(DatasetError, match=r"a\.txt: byte 8 is no UTF-8 text: invalid start byte"):
        read_text_file(path)
    path.write_text(" \n\f\n")
    with pytest.raises(DatasetError, match=r"a\.txt holds no text"):
        read_text_file(path)
    with pytest.raises(DatasetError, match=r"b\.txt cannot be read: .*No such file"):
        read_text_file(tmp_path / "b.txt")


def test_what_is_held_out_is_in_no_other_part_and_nothing_is_lost() -> None:
    """20 documents of 10 characters, a quarter held out: 15 train, and 5 do not."""
    documents = [f"document{i:02}" for i in range(20)]
    train, held_out = hold_out(documents, 0.25, seed=0)
    assert (len(train), len(held_out)) == (15, 5)
    assert sorted(train + held_out) == documents
    assert train + held_out != tuple(documents)
    assert hold_out(documents, 0.25, seed=0) == (train, held_out)
    assert hold_out(documents, 0.25, seed=1) != (train, held_out)


def test_a_single_document_gives_its_end() -> None:
    assert hold_out(["0123456789"], 0.2, seed=0) == (("01234567",), ("89",))


def test_a_file_for_validation_leaves_all_others_for_training(tmp_path: Path) -> None:
    for name in ("a", "b", "held_out"):
        (tmp_path / name).write_text(f"{name} text")
    corpus = read_corpus([tmp_path / "a", tmp_path / "b"], tmp_path / "held_out", 0.5, seed=0)
    assert corpus.train == ("a text", "b text")
    assert corpus.validation == ("held_out text",)
    assert [file.name for file in corpus.files] == ["a", "b"]
    assert corpus.validation_file == read_text_file(tmp_path / "held_out")


def test_pythons_own_topics_are_a_corpus_of_many_documents(tmp_path: Path) -> None:
    """All but a tenth of the text, which is held out and in the other file."""
    main([str(tmp_path / "new")])
    corpus, held_out = (read_text_file(tmp_path / "new" / name) for name in FILES)
    assert len(corpus.documents) > 50
    assert corpus.num_bytes > 300_000
    assert 0.08 < held_out.num_bytes / (corpus.num_bytes + held_out.num_bytes) < 0.12
    assert any(document.startswith('The "assert" statement\n') for document in python_topics())
    assert not any("\n\n\n" in document for document in python_topics())
    assert not set(corpus.documents) & set(held_out.documents)
    assert clean("Title\n*****\n\n\n\nb  \n\n") == "Title\n\nb\n"
    with pytest.raises(SystemExit, match="usage"):
        main([])


@pytest.mark.parametrize("indent", ["", "   ", "* ", "   * "])
def test_paragraphs_and_entries_of_lists_become_one_line(indent: str) -> None:
    first, second = f"{indent}**{60 * 'a'}", " " * len(indent) + "the  end."
    assert unwrap(f"{first}\n{second}") == f"{first} the end."


def test_code_and_short_lines_stay_as_they_are() -> None:
    for block in ("if a:\n    b()", "   a = 1\n   b = 2", f"{60 * 'a'}\n   {60 * 'b'}", "one line"):
        assert unwrap(block) == block
