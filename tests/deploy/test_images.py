"""The Dockerfiles: what they say, and the server's image as it runs."""

import fnmatch
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from itertools import takewhile
from pathlib import Path

import pytest

from service.settings import Settings
from tests.deploy import dockerfile
from tests.deploy.dockerfile import ROOT, Container, Dockerfile, Stage
from tests.e2e.graphs import add_sub, write_graph
from tests.e2e.server import READY

PATHS = sorted((ROOT / "deploy/docker").glob("Dockerfile*"))
NAMES = [path.name for path in PATHS]
BASE_MB = 150.0  # python:3.11-slim on disk, see docs/operations.md
IMAGE_LIMIT_MB = 400.0
STOP_LIMIT_S = 15.0
EXTRAS = {"Dockerfile": "cpu,telemetry,vision", "Dockerfile.cuda": "gpu,telemetry,vision"}
BUILD_TOOLS = re.compile(r"\b(gcc|g\+\+|build-essential|make|cmake|git|curl|wget|-dev)\b")


@pytest.fixture(params=PATHS, ids=NAMES)
def image(request: pytest.FixtureRequest) -> tuple[str, Dockerfile]:
    return request.param.name, Dockerfile(request.param)


def test_hadolint_finds_nothing() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, *PATHS], capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stdout


def test_bases_are_arguments_with_an_exact_default(image: tuple[str, Dockerfile]) -> None:
    """So that a build may give a digest, and one that does not gets no moving target."""
    _, file = image
    names = {stage.base.strip("${}") for stage in file.stages.values()} - set(file.stages)
    assert names == set(file.arguments)
    for default in file.arguments.values():
        assert re.search(r":\d+\.\d+\.\d+-[\w.-]+$", default), default


def test_the_last_stage_is_the_server_and_builds_nothing(image: tuple[str, Dockerfile]) -> None:
    _, file = image
    assert list(file.stages)[-1] == "server"
    server = file.whole("server")
    for command in server.all("RUN"):
        assert not re.search(r"\bpip\b", command), command
        assert not BUILD_TOOLS.search(command), command
    assert server.all("COPY") == ["--from=build /opt/attendant /opt/attendant"]


def test_the_server_has_neither_torch_nor_what_trains(image: tuple[str, Dockerfile]) -> None:
    name, file = image
    installs = " ".join(file.stages["build"].all("RUN"))
    assert re.findall(r"'\.\[.*?\]'", installs) == [f"'.[{EXTRAS[name]}]'"]
    assert "-c constraints.txt" in installs


def test_every_stage_that_runs_has_a_number_for_its_user(image: tuple[str, Dockerfile]) -> None:
    """Kubernetes cannot know that a name is not root's."""
    _, file = image
    for name in {"server", "train", "loadtest"} & set(file.stages):
        user, group = file.whole(name).last("USER").split(":")
        assert int(user) >= 10_000
        assert int(group) >= 10_000


def test_process_1_is_attendant(image: tuple[str, Dockerfile]) -> None:
    """The exec form: with a shell's, SIGTERM would end at the shell."""
    server = image[1].whole("server")
    assert server.command("ENTRYPOINT") == ["attendant"]
    assert server.command("CMD") == ["serve"]
    assert server.last("STOPSIGNAL") == "SIGTERM"
    assert server.command("HEALTHCHECK") == ["attendant", "healthcheck"]


def test_the_server_starts_no_child_that_process_1_would_have_to_reap() -> None:
    starts = re.compile(r"\b(subprocess|multiprocessing|os\.fork|os\.spawn|os\.system)\b")
    for path in (ROOT / "service").rglob("*.py"):
        assert not starts.search(path.read_text()), path


def test_ports_are_the_servers_and_variables_are_settings(image: tuple[str, Dockerfile]) -> None:
    server, defaults = image[1].whole("server"), Settings()
    assert server.last("EXPOSE") == f"{defaults.grpc_port} {defaults.metrics_port}"
    known = {f"ATTENDANT_{setting.name.upper()}" for setting in fields(Settings)}
    named = {name for name in server.environment if name.startswith("ATTENDANT_")}
    assert {"ATTENDANT_HOST", "ATTENDANT_METRICS_HOST"} <= named <= known


def test_labels_are_those_of_the_image_specification(image: tuple[str, Dockerfile]) -> None:
    labels = image[1].stages["server"].last("LABEL")
    for name in ("title", "description", "licenses", "version", "revision", "base.name"):
        assert f"org.opencontainers.image.{name}=" in labels


def test_what_is_copied_is_sent_to_the_build_and_nothing_else_is() -> None:
    sent = set()
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line.startswith("!"):
            assert (ROOT / line[1:]).exists(), line
            sent.add(line[1:])
    copied = {
        source
        for path in PATHS
        for stage in Dockerfile(path).stages.values()
        for rest in stage.all("COPY")
        if not rest.startswith("--from")
        for source in rest.split()[:-1]
    }
    assert copied == sent
    for kept_back in (".git", "model_repository", "build", ".venv", "tests"):
        assert not any(fnmatch.fnmatch(kept_back, name) for name in sent)


def test_the_train_stage_has_all_that_make_needs_for_the_models(tmp_path: Path) -> None:
    """A dry run; it also says that what it makes goes to the volumes of `docker-compose.yml`."""
    stage = Dockerfile(ROOT / "deploy/docker/Dockerfile").stages["train"]
    copies = [rest.split() for rest in stage.all("COPY")]
    for *sources, target in copies:
        for source in sources:
            dockerfile.copy(ROOT / source, tmp_path / target / source)
    command = [*stage.command("ENTRYPOINT"), "--dry-run"]
    done = subprocess.run(  # noqa: S603
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for model in ("minilm", "spam", "gpt"):
        assert re.search(f"export build/checkpoints/{model} --repository /models", done.stdout)
    for path in re.findall(r"\bmodels/data/[\w.]+", done.stdout):
        assert (tmp_path / path).exists(), path


# --- The image itself, as far as it can be had without an engine.


@pytest.fixture(scope="module")
def server() -> Stage:
    return Dockerfile(ROOT / "deploy/docker/Dockerfile").whole("server")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build stage, done by its own commands; takes pip a minute."""
    if reason := dockerfile.why_not_here():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("image")
    folder.chmod(0o755)  # pytest's are for root alone
    stage = Dockerfile(ROOT / "deploy/docker/Dockerfile").stages["build"]
    dockerfile.build(stage, folder)
    write_graph(add_sub(), folder / "models", "add-sub")
    return folder


@pytest.mark.timeout(600)
def test_the_image_is_under_400_mb_and_has_no_torch(root: Path) -> None:
    files = [path for path in (root / "opt/attendant").rglob("*") if not path.is_symlink()]
    own_mb = sum(path.stat().st_size for path in files if path.is_file()) / 1e6
    print(f"{own_mb:.0f} MB and the base's {BASE_MB:.0f}")  # noqa: T201
    assert own_mb + BASE_MB < IMAGE_LIMIT_MB
    names = {path.name for path in files}
    assert not names & {"torch", "pip", "setuptools", "tests", "nvidia", "hf_xet"}
    assert "attendant" in names


@pytest.fixture
def container(server: Stage, root: Path) -> Iterator[Container]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        ports = one.getsockname()[1], other.getsockname()[1]
    local = {"ATTENDANT_HOST": "127.0.0.1", "ATTENDANT_METRICS_HOST": "127.0.0.1"}
    env = {"ATTENDANT_GRPC_PORT": str(ports[0]), "ATTENDANT_METRICS_PORT": str(ports[1])}
    with dockerfile.run(server, root, local | env) as running:
        yield running


@pytest.mark.timeout(600)
def test_the_image_serves_as_process_1_without_rights_and_ends_with_0_on_sigterm(
    server: Stage, container: Container
) -> None:
    """Read-only root, no capabilities, no new privileges, a user that this machine has not."""
    healthcheck = server.command("HEALTHCHECK")
    assert container.process.stdout is not None
    lines = list(takewhile(lambda line: not READY.search(line), container.process.stdout))
    assert container.execute(healthcheck) == 0, lines
    status = container.status()
    assert status["NSpid"].split()[-1] == "1"
    assert status["Uid"].split() == [server.last("USER").split(":")[0]] * 4
    assert (status["CapEff"], status["CapBnd"], status["NoNewPrivs"]) == ("0" * 16, "0" * 16, "1")
    assert container.execute(["touch", "/opt/file"]) == 1
    assert container.execute(["touch", "/tmp/file"]) == 0
    assert container.execute(["attendant", "healthcheck", "--service", "add-sub"]) == 0
    os.kill(container.pid, signal.SIGTERM)
    assert container.process.wait(STOP_LIMIT_S) == 0
