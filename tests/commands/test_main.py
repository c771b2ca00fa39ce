"""The console script, beside its commands."""

import sys

import pytest

from commands.main import main


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
