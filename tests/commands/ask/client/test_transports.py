"""Every command that asks a server, over gRPC and over HTTP: the same output and exit code."""

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from typer.testing import Result

from commands.ask.verbs import VERBS
from tests.fakes.command_line import run
from tests.fakes.every_task import LONG, every_task
from tests.fakes.serving import Served
from tests.fakes.tasks import GREY, WHITE, file_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
NUMBERS = f"INPUT0={[[*range(16)]]}"
ONES = f"INPUT1={[[1] * 16]}"
SEVERAL = f"win\n{LONG}\nlunch\n\nnow\n"
GREEDY = "--temperature 0 --max-tokens 8"
# Each as arguments; `-` reads SEVERAL, of which one text is too long.
LINES = [
    "models",
    "models --json",
    "classify spam win prize",
    "classify spam win --json --top-k 2",
    "classify spam - --ndjson",
    "classify spam - --json --truncate",
    "classify spam win --top-k 5",
    "classify nope win",
    "classify mini win",
    "classify spam win --version 7",
    "embed mini win lunch",
    "embed mini - --ndjson",
    "score match win prize lunch",
    "score match win - --json",
    "rerank match win prize lunch --top-n 1",
    "rerank match win - --json",
    f"generate tale once {GREEDY}",
    f"generate tale once {GREEDY} --no-stream",
    f"generate tale once {GREEDY} --json",
    "generate tale once --n 3 --seed 1 --max-tokens 6",
    "generate tale once --top-p 2",
    "generate tale once --prompt-logprobs 2 --max-tokens 0",
    "generate tale once --prompt-logprobs 0 --max-tokens 0 --json",
    "generate mini once",
    "features deep win --layers concat_last_four",
    "features deep win lunch --json --pooling none",
    "features deep win win --word win",
    "similarity mini win lunch now",
    "similarity mini win lunch --json --measure dot",
    "fill-mask fills [MASK]",
    "fill-mask fills [MASK] --json --top-k 3",
    "fill-mask fills win[MASK] lunch[MASK] --compare",
    "classify-tokens tags win",
    "classify-tokens tags - --ndjson",
    "answer asks win --context lunch",
    "answer asks win --context lunch --json --top-k 2",
    "classify-image light WHITE GREY",
    "classify-image light WHITE --json",
    "attention looks win",
    "attention looks win --json --layer 1 --head 0",
    "infer simple NUMBERS",
    "infer simple NUMBERS --json",
    'infer strings --input IN=[["a","é"]]',
    'infer spam --input text=[["win"],["lunch"]] --json',
    "infer simple --input INPUT0=[[1]]",
    "infer nope --input a=[1]",
    "infer simple NUMBERS --version 9",
]
TIMES = re.compile(r'\d+\.\d+(e-\d+)? ?(ms|s\b|tokens/s)|"\w*(_seconds|_ms)": [\d.e-]+')


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("model_repository")
    async with every_task(folder, http_port=0) as running:
        yield running


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("images")
    contents = {"WHITE": WHITE, "GREY": file_of(GREY), "TEXT": b"no image"}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return {name: str(folder / name) for name in contents}


def http_of(served: Served) -> str:
    return f"http://127.0.0.1:{served.app.http_port}"


def untimed(result: Result) -> tuple[int, str, str]:
    """Exit code, stdout and stderr, without what a clock measured."""
    return result.exit_code, TIMES.sub("T", result.stdout), TIMES.sub("T", result.stderr)


@pytest.mark.parametrize("line", LINES)
async def test_both_transports_give_the_same(
    served: Served, images: dict[str, str], line: str
) -> None:
    words = line.replace("NUMBERS", f"--input {NUMBERS} --input {ONES}".replace(", ", ","))
    arguments = [images.get(word, word) for word in words.split()]
    by_grpc = await run(served, *arguments, stdin=SEVERAL)
    by_http = await run(served, *arguments, stdin=SEVERAL, address=http_of(served))
    assert untimed(by_http) == untimed(by_grpc)
    assert by_grpc.stdout or by_grpc.exit_code


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("classify-image light WHITE TEXT", "image 2 is not an image"),
        ("attention looks LONG", "the text has 32 tokens"),
    ],
)
async def test_what_is_refused_is_numbered_from_1_or_is_the_only_one(
    served: Served, images: dict[str, str], line: str, expected: str
) -> None:
    known = images | {"LONG": LONG}
    result = await run(served, *(known.get(word, word) for word in line.split()))
    assert result.stderr.startswith(f"attendant: error: INVALID_ARGUMENT: {expected}")


async def test_every_command_that_asks_is_among_them() -> None:
    """Without chats, which ask for lines, searches of files, and requests of files, over HTTP."""
    assert {line.split()[0] for line in LINES} == VERBS.keys() - {"chat", "batch", "search"}
