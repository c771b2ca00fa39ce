"""The console script, beside its commands: errors in one style, and completion."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from commands.errors import INTERRUPTED
from commands.main import app, main

USAGE = {
    "clasify": "No such command 'clasify'. Did you mean 'classify' or ",
    "healthchek": "No such command 'healthchek'. Did you mean 'healthcheck'? See ",
    "words naerest": "No such command 'naerest'. Did you mean 'nearest'? See ",
    "xyzzy": "No such command 'xyzzy'. See ",
    "classify spam a --topk 3": "No such option: --topk (Possible options: --top-k). See ",
    "classify spam a --top-k=-1": (
        "Invalid value for '--top-k' (env var: 'ATTENDANT_CLASSIFY_TOP_K'): "
    ),
    "classify": "Missing argument 'model'. See ",
    "healthcheck --colour": "unrecognized arguments: --colour. See ",
    "healthcheck --address 1": "--address is '1', expected HOST:PORT",
    "words train --output a": "Missing argument 'corpus",
}


@pytest.mark.parametrize("line", USAGE)
def test_wrong_usage_is_one_line_and_exit_code_2(line: str) -> None:
    result = CliRunner().invoke(app, line.split(), env={"COLUMNS": "30"})
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"attendant: error: {USAGE[line]}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "expected", "exit_code"),
    [
        ("classify spam - a", "'-' is one of several texts, expected it alone: ", 2),
        ("infer spam --input a", "--input is 'a', expected NAME=JSON: ", 1),
        ("generate gpt \udcff", r"an argument or a variable is not UTF-8: '\udcff'", 2),
        ("models --address 127.0.0.1:1", "UNAVAILABLE: no server answers at 127.0.0.1:1: ", 1),
    ],
)
def test_an_error_of_ours_is_one_line(
    line: str,
    expected: str,
    exit_code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["attendant", *line.split()])
    monkeypatch.setenv("COLUMNS", "30")
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == exit_code
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.startswith(f"attendant: error: {expected}")
    assert written.err.count("\n") == 1


def test_a_full_disk_behind_stdout_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("commands.main.app", fail)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    expected = f"attendant: error: [Errno {errno.ENOSPC}] No space left on device\n"
    assert capsys.readouterr() == ("", expected)


@pytest.mark.parametrize(
    "variables", [{}, {"COMP_WORDS": "attendant tr"}, {"COMP_WORDS": "attendant", "COMP_CWORD": ""}]
)
def test_completion_without_the_variables_of_bash_prints_nothing(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["attendant"])
    monkeypatch.setenv("_ATTENDANT_COMPLETE", "complete_bash")
    for name in ("COMP_WORDS", "COMP_CWORD"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    main()
    assert capsys.readouterr() == ("", "")


def test_an_interrupt_while_modules_are_imported_ends_without_a_traceback() -> None:
    """A stand-in for `commands.main`, whose import is where the signal comes."""
    code = (
        "import sys, types\n"
        "class Interrupting(types.ModuleType):\n"
        "    def __getattr__(self, name): raise KeyboardInterrupt\n"
        "sys.modules['commands.main'] = Interrupting('commands.main')\n"
        "sys.argv = ['attendant', 'models']\n"
        "from commands.__main__ import main; main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)  # noqa: S603
    assert (ended.returncode, ended.stderr) == (INTERRUPTED, b"")


@pytest.mark.parametrize("token", ["passwörter-sind-lang", "with a space inside"])
def test_a_token_that_no_header_carries_is_named_by_where_it_came_from(
    token: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# of the client\n{token}\n")
    monkeypatch.setenv("ATTENDANT_TOKEN", token)
    for flags, source in (
        ([], "ATTENDANT_TOKEN"),
        (["--token-file", str(file)], f"--token-file '{file}'"),
    ):
        monkeypatch.setattr(sys, "argv", ["attendant", "models", *flags])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        error = f"{source} has a token that is not visible ASCII without spaces"
        assert capsys.readouterr().err == f"attendant: error: {error}\n"
