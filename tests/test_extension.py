"""Costs of an extension: the files that a person writes, beside tests and documents.

In a copy of the tree, a made-up parameter of sampling, a made-up task and a made-up setting are
written, each in as many files as it may take. The generators run, and what is made of records and
settings has them: flags, descriptions, documents' tables, codecs and dialects.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
COPIED = ("service", "commands", "deploy", "protos", "docs", "models")
LINKED = ("pyproject.toml", "export", "demos", "loadtests", "playground")

# Before which text of a file what is written; a file that is new has no such text.
Edit = tuple[str, str, str]
PARAMETER: list[Edit] = [
    (
        "service/calls/sampling.py",
        "    named: frozenset[str]",
        """    zeal: Annotated[
        float, said("Made-up factor.", low=0.0, high=2.0, also=SHARED, off_with_beams=True)
    ] = 1.0
""",
    ),
    (
        "protos/attendant/v1/generation.proto",
        "  // The form of the output, from its first",
        "  // Made-up factor.\n  optional double zeal = 90;\n",
    ),
    (
        "service/generation/choosing/sampler_state.py",
        "    logits -= np.float32(params.presence_penalty)",
        "    logits *= np.float32(params.zeal)\n",
    ),
]
SETTING: list[Edit] = [
    (
        "service/settings.py",
        "    grpc_port: int = _network(",
        '    zeal_s: float = _network(2.5, "Made-up seconds of zeal.", 0.5)\n',
    )
]
TASKS = '    "text-classification",\n    "embedding",\n'
TASK: list[Edit] = [
    (
        "service/contract/manifest.py",
        '    "text-classification",\n    "embedding",',
        '    "tone",\n',
    ),
    ("models/networks/kinds.py", '    "text-classification",\n    "embedding",', '    "tone",\n'),
    (
        "models/networks/kinds.py",
        '    Kind(\n        "gpt-classifier"',
        """    Kind(
        "tone-reader",
        "tone",
        type("ToneReader", (SequenceClassifier,), {}),
        lambda values, num_labels: SequenceClassifier(*_classifier_parts(values, num_labels)),
        _classifier_sections,
        has_labels=True,
    ),
""",
    ),
    (
        "protos/attendant/v1/text.proto",
        "message ClassifyResponse {",
        """message JudgeToneRequest {
  string model = 1;
  string version = 2;
  repeated string texts = 3;
  bool truncate = 4;
  uint32 zeal = 5;
}

message JudgeToneResponse {
  string model = 1;
  string version = 2;
  uint64 num_tokens = 3;
  Timings timings = 4;
  repeated Classification results = 5;
}

""",
    ),
    (
        "protos/attendant/v1/text.proto",
        "  rpc ListModels(",
        "  rpc JudgeTone(JudgeToneRequest) returns (JudgeToneResponse);\n",
    ),
    (
        "service/calls/texts.py",
        "class PairScore(",
        '''class JudgeTone(Call, frozen=True):
    """Texts whose tone is asked for."""

    texts: Annotated[Texts, said("Texts to judge.", counted=True)] = ()
    truncate: Annotated[bool, said(CUT)] = False
    zeal: Annotated[int, said("Made-up number.", low=0, high=9)] = 0


class Tones(Answered, frozen=True, kw_only=True):
    """The tones of all texts, in their order."""

    num_tokens: int
    results: Sequence[Classification]


''',
    ),
    (
        "service/serving/tasks/tone.py",
        "",
        '''"""The tone of texts: a made-up task."""

from dataclasses import replace

from service.calls.texts import Classification, JudgeTone
from service.serving.tasks.task import SCORES, Ask, Method, ranked, row_fields
from service.serving.tasks.texts import CLASSIFICATION


def _judge(call, model):
    def answer(reply):
        best = ranked(SCORES["softmax"](reply.values), model.manifest.labels, 1)
        pairs = zip(reply.rows, best, strict=True)
        return {"results": [Classification(each, **row_fields(row)) for row, each in pairs]}

    return Ask(call.texts, answer)


TONE = replace(CLASSIFICATION, name="tone", verb="judge tones")
METHODS = (Method(TONE, JudgeTone, _judge),)
''',
    ),
    ("service/calls/methods.py", "    Embed: Embeddings,", "    JudgeTone: Tones,\n"),
    ("service/calls/methods.py", "    Classifications,\n", "    JudgeTone,\n    Tones,\n"),
    (
        "commands/ask/verbs.py",
        '    "generate": Verb(',
        """    "judge-tone": Verb(
        "Judge the tone of texts.",
        ("tone",),
        "texts:JudgeTone",
        "texts zeal",
        draw="tables:classifications",
        brief="briefs:label",
        takes_files=True,
    ),
""",
    ),
    ("service/serving/tasks/table.py", "MODULES = (\n", "from service.serving.tasks import tone\n"),
    ("service/serving/tasks/table.py", "    *(features, attention", "    tone,\n"),
]

# In the copy: the generators, and then what is made, as JSON.
GENERATE = """
import asyncio, json
import typer.main
from attendant.v1 import generation_pb2, text_pb2
from deploy.generate import openapi, reference

reference.main()
openapi.PATH.write_text(openapi.page_of(asyncio.run(openapi.ask())))

from commands.main import app
from models.networks.kinds import KINDS
from service.api.codec import reader
from service.api.generation_messages import own_fields
from service.calls.generation import Generate
from service.calls.sampling_values import sampling_of
from service.contract.manifest import TaskName
from service.errors import InvalidArgument
from service.http.shared.sampled import named_in, parameters_in
from service.serving.tasks.table import METHODS, TASKS
from service.settings import Settings

def refusal_of(make, *values, **named):
    try:
        return f"taken: {make(*values, **named)}"
    except Exception as error:
        return str(error)

def in_dialect(name):
    return named_in(parameters_in(name)(zeal=0.5), name)

group = typer.main.get_group(app)
flags = {name: [each.name for each in group.get_command(None, name).params]
         for name in ("generate", "chat", "serve", "judge-tone")}
request = generation_pb2.GenerateRequest(model="m", text="t")
request.sampling_params.zeal = 0.5
read = reader(generation_pb2.GenerateRequest, Generate, own_fields(request.DESCRIPTOR))
judge = METHODS["JudgeTone"]
print(json.dumps({
    "flags": flags,
    "message": read(request).sampling_params.zeal,
    "named": sampling_of({"zeal": "0.5"}).zeal,
    "dialects": [in_dialect("openai"), in_dialect("tgi")],
    "refusals": [
        refusal_of(sampling_of, {"zeal": 3}),
        refusal_of(sampling_of, {"zeal": 0.5, "beam_width": 2}),
        refusal_of(Settings, zeal_s=0.1),
        refusal_of(judge.call, model="m", zeal=10),
    ],
    "task": TASKS["tone"].verb,
    "kinds": [kind.task for kind in KINDS],
}))
"""


def written(copy: Path, edits: list[Edit]) -> int:
    """Number of files in which the edits are written."""
    for name, before, text in edits:
        path = copy / name
        if not before:
            path.write_text(text)
            continue
        found = path.read_text()
        assert found.count(before) == 1, f"{name}: {before}"
        path.write_text(found.replace(before, text + before))
    return len({name for name, _, _ in edits})


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is extended; links to the rest."""
    folder = tmp_path_factory.mktemp("extended")
    ignored = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    return folder


def run(copy: Path, *command: str) -> str:
    """The output of a program that has the copy in place of the tree."""
    paths = os.pathsep.join([str(copy), str(copy / "protos")])
    ended = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, *command],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3_000:]
    return ended.stdout


@pytest.fixture(scope="module")
def made(copy: Path) -> dict[str, Any]:
    """What is made in the copy, once each extension is written in as many files as it may take."""
    assert written(copy, PARAMETER) <= 3
    assert written(copy, SETTING) <= 1
    assert written(copy, TASK) <= 9
    files = [f"attendant/v1/{name}.proto" for name in ("generation", "text")]
    run(copy, "-m", "grpc_tools.protoc", "-Iprotos", "--python_out=protos", *files)
    found: dict[str, Any] = json.loads(run(copy, "-c", GENERATE).splitlines()[-1])
    return found


def schemas(copy: Path) -> dict[str, Any]:
    document = json.loads((copy / "docs/reference/openapi.json").read_text())
    found: dict[str, Any] = document["components"]["schemas"]
    return found


def test_a_parameter_of_sampling_is_written_in_three_files(
    copy: Path, made: dict[str, Any]
) -> None:
    """Its field, its use, and its field in the message."""
    assert "zeal" in made["flags"]["generate"]
    assert "zeal" in made["flags"]["chat"]
    assert (made["message"], made["named"]) == (0.5, 0.5)
    assert made["dialects"] == [{"zeal": 0.5}] * 2
    assert made["refusals"][0] == "zeal is 3.0, expected 0 to 2"
    assert made["refusals"][1].startswith("zeal is 0.5, expected 1.0 where beam_width is 2")
    for body in ("v1.SamplingParams", "GenerationParameters", "ChatRequest", "CompletionRequest"):
        assert "zeal" in schemas(copy)[body]["properties"], body
    page = (copy / "docs/reference/calls.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `zeal`")]
    assert any("| 0 to 2 | Made-up factor. |" in row for row in rows)


def test_a_setting_is_written_in_one_file(copy: Path, made: dict[str, Any]) -> None:
    assert "zeal_s" in made["flags"]["serve"]
    assert "--zeal-s" in made["refusals"][2]
    page = (copy / "docs/reference/settings.md").read_text()
    assert "| `--zeal-s` | `2.5` | at least 0.5 | Made-up seconds of zeal. |" in page


def test_a_task_is_written_in_nine_files(copy: Path, made: dict[str, Any]) -> None:
    """A network's entry, the task with its method, its records, its messages, and its command."""
    assert made["task"] == "judge tones"
    assert "tone" in made["kinds"]
    assert {"texts", "zeal", "truncate"} <= {*made["flags"]["judge-tone"]}
    assert (
        "| `judge-tone` | Judge the tone of texts. |"
        in (copy / "docs/reference/commands.md").read_text()
    )
    assert made["refusals"][3] == "zeal is 10, expected 0 to 9"
    found = schemas(copy)["v1.JudgeToneRequest"]["properties"]
    assert found["zeal"]["maximum"] == 2**32 - 1
