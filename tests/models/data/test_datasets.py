"""Three formats, errors with file and line, and splits that keep every label's share."""

import re
import warnings
from collections import Counter
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from commands.remarks import showing_remarks
from models.data.batches import tokenize
from models.data.datasets import Columns, Dataset, Example, Splits, read_dataset, split
from models.errors import DatasetError
from models.remarks import DataWarning, remark

EXPECTED = [("ham", 'see you "later", ok'), ("spam", "free\tcash")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", 'ham\tsee you "later", ok\nspam\tfree\tcash\n'),
        ("a.txt", '\ufeffham\tsee you "later", ok\r\n\r\nspam\tfree\tcash\r\n'),
        ("a.csv", 'id,Label,Text\n1,ham,"see you ""later"", ok"\n\n2,spam,free\tcash\n'),
        (
            "a.jsonl",
            '{"label": "ham", "text": "see you \\"later\\", ok"}\n\n'
            '{"text": "free\\tcash", "label": "spam", "id": 2}\n',
        ),
    ],
)
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    dataset = read_dataset(tmp_path / name)
    assert dataset.name == name
    assert [(example.label, example.text) for example in dataset.examples] == EXPECTED


def test_a_tsv_header_may_order_the_columns_and_add_others(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("text\tid\tlabel\nfree cash\t1\tspam\n")
    assert read_dataset(tmp_path / "a.tsv").examples == (Example(2, "spam", "free cash"),)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "label\ttext\ttext_pair\nyes\tit rains\tit is wet\nno\tit rains\tit is dry\n"),
        ("a.csv", "text_pair,label,text\nit is wet,yes,it rains\nit is dry,no,it rains\n"),
        (
            "a.jsonl",
            '{"label": "yes", "text": "it rains", "text_pair": "it is wet"}\n'
            '{"label": "no", "text": "it rains", "text_pair": "it is dry"}\n',
        ),
    ],
)
def test_a_second_text_makes_pairs(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    dataset = read_dataset(tmp_path / name)
    assert dataset.has_pairs
    assert [example.text_or_pair for example in dataset.examples] == [
        ("it rains", "it is wet"),
        ("it rains", "it is dry"),
    ]
    assert [example.label for example in dataset.examples] == ["yes", "no"]


def test_pairs_and_single_texts_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"label": 0, "text": "a", "text_pair": "b"}\n{"label": 1, "text": "a"}\n')
    with pytest.raises(DatasetError, match=r"a\.jsonl:2: no text_pair, but other rows have one"):
        read_dataset(path)
    single = Dataset("a", (Example(1, "x", "a"), Example(2, "y", "a")))
    pairs = Dataset("b", (Example(1, "x", "a", "b"),))
    with pytest.raises(DatasetError, match="b:1: the training data has no pairs of texts"):
        Splits(single, pairs)


def test_labels_that_are_numbers_become_names(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"label": 1, "text": "a"}\n{"label": 0.5, "text": "b"}\n')
    assert read_dataset(tmp_path / "a.jsonl").labels() == ("0.5", "1")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "ham\thello\nno tab here\n", "a.tsv:2: expected label<TAB>text, found 'no tab"),
        ("a.tsv", "ham\thello\n\nspam\t \n", "a.tsv:3: the text is empty"),
        ("a.tsv", "\thello\n", "a.tsv:1: the label is empty"),
        ("a.tsv", "\n\n", "a.tsv holds no rows"),
        ("a.tsv", b"ham\t\xff\xfe\n", "cannot be read as UTF-8"),
        ("a.csv", "ham,hello\n", "a.csv:1: expected a header"),
        ("a.csv", "label,text\nham\n", "a.csv:2: the row has 1 columns only"),
        ("a.csv", 'label,text\nham,"hel"lo\n', "a.csv:2: "),
        ("a.jsonl", '{"label": "ham", "text": "a"}\n{"label"\n', "a.jsonl:2: not JSON"),
        ("a.jsonl", '["ham", "a"]\n', "a.jsonl:1: expected an object"),
        ("a.jsonl", '{"label": "ham"}\n', "a.jsonl:1: expected an object with label and text"),
        ("a.jsonl", '{"label": "ham", "text": 3}\n', "a.jsonl:1: text must be a string"),
        ("a.jsonl", '{"label": ["ham"], "text": "a"}\n', "label a string or a number"),
        (
            "a.jsonl",
            '{"label": "ham", "text": "a", "text_pair": 3}\n',
            "a.jsonl:1: text_pair must be a string",
        ),
        ("a.tsv", "label\ttext\ttext_pair\nham\ta\n", "a.tsv:2: expected label<TAB>text"),
        ("a.xlsx", "", "the name must end in one of .tsv, .txt, .csv, .jsonl, .ndjson"),
    ],
)
def test_a_fault_names_file_and_line(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    raw = content if isinstance(content, bytes) else content.encode()
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(DatasetError) as caught:
        read_dataset(tmp_path / name)
    assert message in str(caught.value)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"absent\.tsv cannot be read: No such file or dir") as e:
        read_dataset(tmp_path / "absent.tsv")
    assert "UTF-8" not in str(e.value)


def numbered(**counts: int) -> Dataset:
    labels = [label for label, count in counts.items() for _ in range(count)]
    rows = tuple(Example(i, label, f"text {i}") for i, label in enumerate(labels, start=1))
    return Dataset("numbered.tsv", rows)


def test_a_split_keeps_every_row_once_and_every_labels_share() -> None:
    """Of 100 ham and 20 spam, fractions 0.1 and 0.2 take 10 and 2, then 20 and 4."""
    dataset = numbered(ham=100, spam=20)
    parts = split(dataset, [0.1, 0.2], seed=0)
    counts = [Counter(example.label for example in part.examples) for part in parts]
    assert counts == [
        {"ham": 70, "spam": 14},
        {"ham": 10, "spam": 2},
        {"ham": 20, "spam": 4},
    ]
    lines = sorted(example.line for part in parts for example in part.examples)
    assert lines == list(range(1, 121))


def test_a_split_depends_on_the_seed_alone() -> None:
    dataset = numbered(ham=50, spam=50)
    assert split(dataset, [0.2], seed=1) == split(dataset, [0.2], seed=1)
    assert split(dataset, [0.2], seed=1) != split(dataset, [0.2], seed=2)


def test_rare_labels_are_in_every_part_and_too_rare_ones_are_trained_on_with_a_remark() -> None:
    """Three rows of a label make one for each of three parts; of two all are for training."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parts = split(numbered(ham=100, spam=3), [0.1, 0.1], seed=0)
    assert all(part.labels() == ("ham", "spam") for part in parts)
    said = (
        "numbered.tsv: 2 of 3 labels have too few rows to hold any out (the first is 'egg' with 1, "
        "in line 103); all of them are trained on, so no figure says how well these labels are "
        "found"
    )
    with pytest.warns(DataWarning, match=re.escape(said)):
        train, *held_out = split(numbered(ham=100, spam=2, egg=1), [0.1, 0.1], seed=0)
    assert [example.label for example in train.examples] == ["ham"] * 80 + ["spam"] * 2 + ["egg"]
    assert [part.labels() for part in held_out] == [("ham",), ("ham",)]


def test_where_every_label_is_too_rare_the_way_out_is_named() -> None:
    with pytest.raises(
        DatasetError, match=r"no label has enough rows .*'ham' with 1.*--validation"
    ):
        split(numbered(ham=1, spam=1), [0.1], seed=0)


def test_a_text_with_two_labels_is_told_with_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("ham\thello\nspam\tbuy\nspam\thello\nham\tbuy\nham\thello\nham\tyes\n")
    said = (
        "a.tsv: 2 of 3 different texts have more than one label, of which a classifier can learn "
        "one; the first is 'ham' in line 1 and 'spam' in line 3"
    )
    with pytest.warns(DataWarning, match=re.escape(said)):
        assert len(read_dataset(path)) == 6


def test_a_text_that_is_cut_is_told_with_its_line(tokenizer: Tokenizer) -> None:
    long = "free " * 20_000
    rows = (Example(1, "ham", "lunch"), Example(2, "spam", long), Example(3, "spam", long))
    said = (
        "a.tsv: 2 of 3 texts are longer than 12 tokens and cut to that; the first is in line 2, "
        "of 100,000 characters"
    )
    with pytest.warns(DataWarning, match=re.escape(said)):
        tokenize(Dataset("a.tsv", rows), ("ham", "spam"), tokenizer, 12, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tokenize(Dataset("a.tsv", rows[:1]), ("ham", "spam"), tokenizer, 12, 0)


def test_other_warnings_are_left_as_they_are() -> None:
    said: list[str] = []
    with warnings.catch_warnings(record=True) as others, showing_remarks(said.append):
        remark("one")
        remark("one")
        warnings.warn("another", RuntimeWarning, stacklevel=1)
    assert said == ["one"]
    assert [str(other.message) for other in others] == ["another"]


def test_a_fraction_of_zero_holds_nothing_out() -> None:
    dataset = numbered(ham=3, spam=3)
    assert split(dataset, [0.0], seed=0) == [dataset, Dataset("numbered.tsv", ())]


def test_a_held_out_label_that_was_never_trained_is_refused_by_line() -> None:
    with pytest.raises(DatasetError, match=r"numbered\.tsv:2: label 'joke' is not among"):
        Splits(numbered(ham=2, spam=2), numbered(ham=1, joke=1))
    with pytest.raises(DatasetError, match="has only the label ham, 2 are needed"):
        Splits(numbered(ham=2), numbered(ham=2))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "Body\tClass\tid\nfree cash\tspam\t7\n"),
        ("a.csv", 'id,Class,Body\n7,spam,"free cash"\n'),
        ("a.jsonl", '{"id": 7, "Class": "spam", "Body": "free cash"}\n'),
    ],
)
def test_columns_of_any_name_are_read_where_they_are_named(
    tmp_path: Path, name: str, content: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    (row,) = read_dataset(path, Columns("Class", "Body")).examples
    assert (row.label, row.text) == ("spam", "free cash")
    with pytest.raises(DatasetError, match=r":1: expected .* Class and Text.*--text-column"):
        read_dataset(path, Columns("Class", "Text"))


def test_a_second_text_that_was_named_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("label,premise,claim\nyes,it rains,it is wet\n")
    columns = Columns("label", "premise", "claim")
    assert read_dataset(tmp_path / "a.csv", columns).examples[0].text_pair == "it is wet"
    with pytest.raises(DatasetError, match="label and premise and reason"):
        read_dataset(tmp_path / "a.csv", Columns("label", "premise", "reason"))


@pytest.mark.parametrize("other", ["Spam", "SPAM ", "\uff53\uff50\uff41\uff4d", " spam"])
def test_labels_that_look_alike_are_said(tmp_path: Path, other: str) -> None:
    """By case, a space, or letters of another width: each is a class of its own."""
    content = "label,text\nspam,a\n" + f'"{other}",b\nham,c\n'
    (tmp_path / "a.csv").write_text(content, encoding="utf-8")
    with pytest.warns(DataWarning, match="differ in case, spaces or the form of a letter"):
        assert len(read_dataset(tmp_path / "a.csv").labels()) == 3
