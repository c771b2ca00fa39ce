"""What a shell completes: names of demos, tasks, and settings with a choice."""

import os
import subprocess
import sys

import pytest

COMPLETE = {"_ATTENDANT_COMPLETE": "complete_bash"}


def completions(line: str) -> set[str]:
    words = line.split(" ")
    values = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    program = "import sys; sys.argv[0] = 'attendant'; from commands.main import main; main()"
    ended = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", program],
        env=os.environ | COMPLETE | values,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return set(ended.stdout.split())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("attendant demo da", {"dates"}),
        (
            "attendant train --task ",
            {
                "text-classification",
                "token-classification",
                "question-answering",
                "pair-scoring",
            },
        ),
        ("attendant train --precision o", {"on", "off"}),
        (
            "attendant import --pooling ",
            {"mean", "cls", "last", "max", "mean_sqrt_len_tokens", "weightedmean"},
        ),
        ("attendant import --layers sum_", {"sum_last_four", "sum_all"}),
        ("attendant export --task f", {"features"}),
        ("attendant seq2seq dat", {"dates"}),
        ("attendant seq2seq --network ", {"lstm", "transformer"}),
        ("attendant serve --device ", {"auto", "cpu", "cuda"}),
        ("attendant serve --log-format j", {"json"}),
        ("attendant vision --precision ", {"auto", "on", "off"}),
    ],
)
def test_a_shell_completes_names_and_choices(line: str, expected: set[str]) -> None:
    assert completions(line) == expected
