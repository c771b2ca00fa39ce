"""Every `attendant ...` line of the documents is one that the command line's own parser takes.

Lines are parsed and not run. A line of a code block must be complete; code within a sentence may
leave arguments out, but every command, flag and value that it names must exist.
"""

import re
import shlex
from argparse import ArgumentError
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from typer.main import get_command

from commands.ask.client.health import parser as parser_of_healthcheck
from commands.main import PROGRAM, UsageError, app
from tests.test_docs import PAGES

# What may stand before a command's name in a line.
STARTS = {"$", "--", ";", "&&", "||", "|", "&"}
ENDS = {";", "&&", "||", "|", "&", "<", ">", ">>", "<<"}
GROUP: Any = get_command(app)
# Flags whose work is done while they are parsed.
ACTING = {name for each in GROUP.params if each.callback is not None for name in each.opts}


class Line(NamedTuple):
    """Words behind `attendant`; `is_whole` where a reader would copy it."""

    words: tuple[str, ...]
    is_whole: bool


def lines_of(text: str) -> list[Line]:
    """The lines of a page, those in code blocks first."""
    blocks, prose = [], []
    is_fenced = False
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        if line.startswith("```"):
            is_fenced = not is_fenced
        elif is_fenced or line.startswith("    "):
            blocks.append(line)
        else:
            prose.append(line)
    codes = re.findall(r"`([^`]+)`", "\n".join(prose))
    whole = [Line(words, is_whole=True) for line in blocks for words in _commands_in(line)]
    return whole + [Line(words, is_whole=False) for code in codes for words in _commands_in(code)]


def _commands_in(text: str) -> list[tuple[str, ...]]:
    """The words of each `attendant` command that a line of shell runs."""
    if PROGRAM not in text:
        return []
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # a quote of another language's code
        return []
    starts = [
        place
        for place, word in enumerate(words)
        if word == PROGRAM and (not place or words[place - 1] in STARTS)
    ]
    commands = []
    for start in starts:
        rest = words[start + 1 :]
        end = next((place for place, word in enumerate(rest) if word in ENDS), len(rest))
        commands.append(tuple(rest[:end]))
    return [words for words in commands if words and words[0] != "..."]


def fault_of(line: Line) -> str:
    """What the parser says of a line; empty if it takes it."""
    if line.words[0] == "healthcheck":
        parser = parser_of_healthcheck()
        parser.exit_on_error = False
        try:
            _, unknown = parser.parse_known_args(line.words[1:])
        except ArgumentError as error:
            return str(error)
        return f"unrecognized arguments: {unknown}" if unknown else ""
    try:
        _parse(line.words)
    except UsageError as error:
        text: str = error.format_message()  # type: ignore[attr-defined] # has no public type
        return "" if text.startswith("Missing ") and not line.is_whole else text
    except typer.Exit:  # of --help and --version
        pass
    return ""


def _parse(words: tuple[str, ...]) -> None:
    """Raise `UsageError` for words that no command takes.

    A flag that does its work while it is parsed ends it: one of them writes files of the shell.
    """
    command: Any = GROUP
    name, rest, context = PROGRAM, list(words), None
    while hasattr(command, "list_commands") and rest and not rest[0].startswith("-"):
        context = command.make_context(name, [], parent=context, resilient_parsing=True)
        name, command, rest = command.resolve_command(context, rest)
    if not ACTING & {*rest}:
        command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_line_of_a_page_is_taken_by_the_parser(page: Path) -> None:
    faults = {line: fault_of(line) for line in lines_of(page.read_text(encoding="utf-8"))}
    assert {line: fault for line, fault in faults.items() if fault} == {}


def test_the_pages_have_many_lines() -> None:
    count = {True: 0, False: 0}
    for page in PAGES:
        for line in lines_of(page.read_text(encoding="utf-8")):
            count[line.is_whole] += 1
    assert count[True] > 50
    assert count[False] > 30


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("attendant clasify spam a", "No such command 'clasify'"),
        ("attendant words naerest vectors a", "No such command 'naerest'"),
        ("attendant classify spam a --colour", "No such option: --colour"),
        ("attendant score ranks query", "Missing argument 'texts"),
        ("attendant models spam", "unexpected extra argument"),
        ("attendant classify spam a --top-k many", "Invalid value for '--top-k'"),
        ("kubectl exec pod -- attendant healthcheck --colour", "--colour"),
        ("attendant healthcheck --timeout-s soon", "soon"),
        ("attendant models; attendant models --jsn > file", "No such option: --jsn"),
        ("attendant classify spam - --ndjson < messages.txt    # any number", ""),
    ],
)
def test_a_line_that_the_parser_refuses_is_found(line: str, fault: str) -> None:
    faults = [fault_of(each) for each in lines_of(f"\n    {line}\n")]
    assert fault in faults[-1]
    assert bool(faults[-1]) == bool(fault)


@pytest.mark.parametrize("flag", ["--install-completion", "--show-completion"])
def test_a_line_whose_flag_acts_while_it_is_parsed_changes_no_file(
    flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/bin/bash")
    (line,) = lines_of(f"\n    attendant {flag}\n")
    assert fault_of(line) == ""
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == ""
    assert flag in ACTING


def test_code_in_a_sentence_may_leave_arguments_out() -> None:
    (short, wrong, other) = lines_of(
        "`attendant export`, `attendant export\n--colour`, `attendant nothing` and `attendant`"
    )
    assert fault_of(short) == ""
    assert "--colour" in fault_of(wrong)
    assert "nothing" in fault_of(other)
