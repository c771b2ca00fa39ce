"""Which flags of files go together, and what is said of those that do not."""

from pathlib import Path
from typing import Any

import pytest

from commands.ask.files import Files, given, input_of
from service.errors import SettingError


@pytest.mark.parametrize("texts", [None, []])
def test_texts_are_needed_where_no_file_is_named(texts: list[str] | None) -> None:
    assert given(["a"]) == ["a"]
    with pytest.raises(SettingError, match=r"no texts are given, .* or --input FILE and"):
        given(texts)


def test_the_input_is_named_by_the_flag_or_is_the_only_argument(tmp_path: Path) -> None:
    texts, output = tmp_path / "texts.txt", tmp_path / "vectors.npy"
    texts.write_text("a\n")
    by_flag = Files(input=texts, output=output)
    assert input_of(by_flag, None, is_json=False) == texts
    assert input_of(Files(output=output), [str(texts)], is_json=False) == texts
    assert input_of(Files(), ["a text"], is_json=True) is None


@pytest.mark.parametrize(
    ("flags", "texts", "is_json", "why"),
    [
        ({"input": "a.txt"}, None, False, "--input is given without --output"),
        ({"engine": ("ray", "auto")}, ["a"], False, "--engine is given without --output"),
        ({"input": "a.txt", "output": "a.npy"}, None, True, "--json and --ndjson are for"),
        ({"input": "a.txt", "output": "a.csv"}, None, False, "ends with '.csv', expected one of"),
        (
            {"input": "a.txt", "output": "away/a.npy"},
            None,
            False,
            "in a folder that does not exist",
        ),
        ({"input": "a.txt", "output": "a.npy"}, ["b"], False, "texts and --input are both given"),
        ({"output": "a.npy"}, ["a text"], False, "'a text' is no file: expected --input FILE"),
        ({"output": "a.npy"}, ["-"], False, "'-' is no file"),
        ({"output": "a.npy"}, None, False, "no file is given: expected --input FILE"),
    ],
)
def test_flags_that_do_not_go_together_are_refused_by_name(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: dict[str, Any],
    texts: list[str] | None,
    is_json: bool,
    why: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    paths: dict[str, Any] = {n: Path(flags[n]) for n in ("input", "output") if n in flags}
    files = Files(**flags | paths)
    with pytest.raises(SettingError, match=why):
        input_of(files, texts, is_json=is_json)
