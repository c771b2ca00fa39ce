"""The `--help` of every command: whole sentences, choices as choices, panels, and names uncut."""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from commands.help_panels import ARGUMENTS, OPTIONS, panel_of
from commands.main import COMMANDS, HELP_PANELS, app
from commands.variables import OLDER
from deploy.generate import reference
from service.settings import Settings

OWN_PARSER = {"healthcheck"}
NARROW = {"COLUMNS": "80", "TERM": "dumb"}
PANELS = {
    *(
        "Models",
        "Network",
        "TLS and access",
        "Computing",
        "Batching",
        "Generation",
        "Batches",
        "Limits",
    ),
    *("Connections", "Logs and traces", "Stopping", "Folders"),
}


def commands_of(group: Any, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command and its path, those of groups too."""
    context = group.make_context("attendant", [], resilient_parsing=True)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from commands_of(command, (*prefix, name))
        else:
            yield " ".join((*prefix, name)), command


ALL = dict(commands_of(get_command(app)))
WITH_OPTIONS = [name for name in ALL if name not in OWN_PARSER]


def shown(name: str) -> str:
    result = CliRunner().invoke(app, [*name.split(), "--help"], env=NARROW)
    assert result.exit_code == 0, result.output
    return result.output


def test_every_command_of_the_table_has_one_line() -> None:
    assert {name.split()[0] for name in ALL} == set(COMMANDS)
    for name, command in ALL.items():
        assert command.help, name
        assert " ".join(command.help.split()).endswith((".", ".)")), name


def test_each_command_stands_in_one_panel_of_the_help() -> None:
    shown_names = re.findall(r"^│ ([a-z][\w-]*)  ", shown(""), re.MULTILINE)
    assert shown_names == list(COMMANDS)


@pytest.mark.parametrize("name", reference.PAGES)
def test_the_pages_of_commands_and_settings_have_the_helps_of_the_code(name: str) -> None:
    text = (reference.FOLDER / name).read_text(encoding="utf-8")
    made = reference.page(text, reference.PAGES[name]())
    assert text == made, "stale: run `python -m deploy.generate.reference`"


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_every_option_has_a_help_text_that_ends_as_a_sentence(name: str) -> None:
    for parameter in ALL[name].params:
        assert parameter.help, parameter.name
        assert parameter.help.endswith((".", ".)")), parameter.help
        assert parameter.help[0].isupper() or parameter.help.startswith(("bfloat16", "gRPC"))


@pytest.mark.parametrize("name", ["serve", "export", "ladder"])
def test_the_repository_has_one_flag_at_every_command(name: str) -> None:
    """`--repository`, too, where models are written."""
    names = {each for parameter in ALL[name].params for each in parameter.opts}
    assert "--model-repository" in names
    assert ("--repository" in names) == (name != "serve")


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_at_80_columns_no_name_is_cut(name: str) -> None:
    output = shown(name)
    assert max(map(len, output.splitlines())) <= 80
    words = set(re.split(r"[│\]/,\s]+", output))
    for parameter in ALL[name].params:
        assert parameter.param_type_name == "argument" or set(parameter.opts) <= words
        if parameter.envvar:
            assert parameter.envvar in words


@pytest.mark.parametrize("name", ["", "words", "pretrain", *ALL])
def test_every_command_and_group_has_the_short_flag_of_help(name: str) -> None:
    short = CliRunner().invoke(app, [*name.split(), "-h"], env=NARROW)
    assert (short.exit_code, short.output) == (0, shown(name))


@pytest.mark.parametrize("name", ["", "words", "pretrain"])
def test_groups_show_their_commands_and_options_in_panels(name: str) -> None:
    output = shown(name)
    titles = re.findall(r"^╭─ ([\w ]+?) ─", output, re.MULTILINE)
    assert titles == [*(["Commands"] if name else HELP_PANELS), "Options"]
    assert max(map(len, output.splitlines())) <= 80
    names = (each.removeprefix(name).split()[0] for each in ALL if each.startswith(name))
    assert {f"│ {each} " in output for each in names} == {True}


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_an_argument_has_a_variable_only_if_it_is_the_only_one(name: str) -> None:
    """A word on the command line fills the first argument, also if its variable is set."""
    arguments = [each for each in ALL[name].params if each.param_type_name == "argument"]
    if len(arguments) > 1:
        assert not any(each.envvar for each in arguments)
    for each in arguments:
        assert not each.envvar or each.envvar in shown(name)


def test_the_variable_of_an_only_argument_takes_its_place() -> None:
    variables = NARROW | {"ATTENDANT_EXPORT_CHECKPOINT": "build/no-checkpoint"}
    result = CliRunner().invoke(app, ["export", "--name", "a"], env=variables)
    assert "build/no-checkpoint" in result.output


def test_every_flag_of_serve_is_in_a_panel() -> None:
    options = ALL["serve"].params
    assert {option.name for option in options} >= {field.name for field in fields(Settings)}
    assert {panel_of(option) for option in options} == {*PANELS, ARGUMENTS}
    assert OPTIONS not in PANELS
    titles = [line for line in shown("serve").splitlines() if line.startswith("╭")]
    assert len(titles) == len(PANELS) + 2, "the last panel has only --help"


@pytest.mark.parametrize(
    ("command", "option", "choices"),
    [
        ("serve", "--device", "<auto|cpu|cuda>"),
        ("serve", "--log-level", "<debug|info|warning|error>"),
        ("serve", "--model-control-mode", "<none|poll|explicit>"),
        ("export", "--kv-cache", "<float|int8>"),
        ("export", "--task", "<features|embedding|attention>"),
        ("train", "--precision", "<auto|on|off>"),
        ("import", "--pooling", "<mean|cls|last|max|mean_sqrt_len_tokens|weightedmean>"),
        ("pretrain gpt", "--size", "<tiny|small|medium|large|xl>"),
        ("vision", "--precision", "<auto|on|off>"),
        ("seq2seq", "--network", "<lstm|transformer>"),
        ("features", "--pooling", "<mean|cls|none>"),
    ],
)
def test_choices_are_shown_as_choices(command: str, option: str, choices: str) -> None:
    assert f"{option} {choices}" in shown(command)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("attendant serve --device ", {"auto", "cpu", "cuda"}),
        ("attendant serve --log-format j", {"json"}),
        ("attendant serve --log-level ", {"debug", "info", "warning", "error"}),
        ("attendant train --precision o", {"on", "off"}),
        ("attendant pretrain gpt --size s", {"small"}),
    ],
)
def test_choices_are_completed(line: str, expected: set[str]) -> None:
    program = "from commands.main import main; import sys; sys.argv[0] = 'attendant'; main()"
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program],
        env={
            "_ATTENDANT_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
            "PYTHONPATH": ":".join(sys.path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert set(done.stdout.split()) == expected, done.stderr


# Of one folder, whatever a command does with it.
ONE_MEANING = {"ATTENDANT_MODEL_REPOSITORY"}


def test_a_variable_means_one_thing_or_has_the_name_of_its_command() -> None:
    readers: dict[str, dict[str, tuple[str, str]]] = {}
    for name, command in ALL.items():
        for parameter in command.params:
            variable = parameter.envvar
            if not variable:
                continue
            flag = parameter.opts[0], getattr(parameter, "help", "") or ""
            readers.setdefault(variable, {})[name] = flag
    for variable, flags in readers.items():
        groups = {name.split()[0].replace("-", "_").upper() for name in flags}
        is_own = len(groups) == 1 and variable.startswith(f"ATTENDANT_{min(groups)}_")
        assert is_own or len(set(flags.values())) == 1 or variable in ONE_MEANING, (variable, flags)


def test_a_variable_by_its_older_name_is_read_with_a_warning() -> None:
    """The newer name wins, and needs none."""
    asking = ["fill-mask", "bert", "a", "--address", "127.0.0.1:1"]
    for variables, read in (
        ({"ATTENDANT_TOP_K": "x"}, "ATTENDANT_TOP_K"),
        (
            {"ATTENDANT_FILL_MASK_TOP_K": "x", "ATTENDANT_TOP_K": "3"},
            "ATTENDANT_FILL_MASK_TOP_K",
        ),
    ):
        result = CliRunner().invoke(app, asking, env=variables)
        assert f"Invalid value for '--top-k' (env var: '{read}')" in result.output
    old, new = {"ATTENDANT_TOP_K": "3"}, {"ATTENDANT_FILL_MASK_TOP_K": "3"}
    warning = "ATTENDANT_TOP_K means other things in other commands"
    assert warning in CliRunner().invoke(app, asking, env=old).stderr
    for variables in (new, old | new, {}):
        assert warning not in CliRunner().invoke(app, asking, env=variables).stderr


def test_every_older_name_is_of_a_variable_that_a_command_reads() -> None:
    read = {parameter.envvar for command in ALL.values() for parameter in command.params}
    assert OLDER.keys() <= read
    assert read.isdisjoint(OLDER.values())
