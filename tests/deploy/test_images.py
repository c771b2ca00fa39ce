"""The Dockerfile: what it says, and the server's image as it runs."""

import fnmatch
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from itertools import takewhile
from pathlib import Path

import pytest

from service.settings import Settings
from tests.deploy import dockerfile
from tests.deploy.dockerfile import ROOT, Container, Dockerfile, Stage
from tests.e2e.graphs import add_sub, write_graph
from tests.e2e.server import READY, free_ports

PATH = ROOT / "deploy/docker/Dockerfile"
BASE_MB = 150.0  # python:3.11-slim on disk: 125 to 150 MB, by the tool
IMAGE_LIMIT_MB = 400.0
LOADTEST_LIMIT_MB = 600.0
CUDA_LIMIT_MB = 2000.0
COMPILED_SHARE = 1.85  # the size of a compiled module, as a share of its source: 1.75 of all
STOP_LIMIT_S = 15.0
SERVERS = {"server": "packages", "cuda": "cuda-packages"}  # and where their packages come from
OF_THE_PROJECT = {
    "commands",
    "demos",
    "export",
    "models",
    "playground",
    "protos",
    "service",
    "README.md",
    "LICENSE",
}
BUILD_TOOLS = re.compile(r"\b(gcc|g\+\+|build-essential|make|cmake|git|curl|wget|-dev)\b")


@pytest.fixture
def file() -> Dockerfile:
    return Dockerfile(PATH)


each_server = pytest.mark.parametrize("name", SERVERS)


def test_hadolint_finds_nothing() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, PATH], capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stdout


def test_bases_are_arguments_with_an_exact_default(file: Dockerfile) -> None:
    """So that a build may give a digest, and one that does not gets no moving target."""
    names = {stage.base.strip("${}") for stage in file.stages.values()} - set(file.stages)
    assert names == {"PYTHON_IMAGE"}
    default = file.arguments["PYTHON_IMAGE"]
    assert re.search(r":\d+\.\d+\.\d+-[\w.-]+$", default), default


def test_the_last_stage_is_the_server_for_the_cpu(file: Dockerfile) -> None:
    assert list(file.stages)[-1] == "server"


@each_server
def test_a_server_s_stage_builds_nothing(file: Dockerfile, name: str) -> None:
    server = file.whole(name)
    for command in server.all("RUN"):
        assert not re.search(r"\bpip\b", command), command
        assert not BUILD_TOOLS.search(command), command
    assert server.all("COPY") == [
        f"--from={SERVERS[name]} /opt/attendant /opt/attendant",
        "--from=project /opt/project /opt/attendant",
    ]


def test_both_servers_run_alike(file: Dockerfile) -> None:
    """But for their packages, the time that CUDA takes to start, and variables of the driver."""
    cpu, cuda = file.whole("server"), file.whole("cuda")
    for keyword in ("USER", "WORKDIR", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD", "ARG", "RUN"):
        assert cpu.all(keyword) == cuda.all(keyword), keyword
    assert cuda.environment == cpu.environment | {
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    }
    start = "--start-period="
    assert cpu.last("HEALTHCHECK") == cuda.last("HEALTHCHECK").replace(
        f"{start}300s", f"{start}120s"
    )
    assert cpu.last("LABEL") == cuda.last("LABEL").replace("Attendant, CUDA", "Attendant")


def test_a_changed_line_of_source_changes_no_layer_of_packages(
    file: Dockerfile,
) -> None:
    """Nothing of the project is there when packages are installed, nor when they are copied.

    Of `pyproject.toml` they see the list of packages, in a file of its own: engines keep a layer
    for as long as the contents of what it copies stay.
    """
    for name, stage in file.stages.items():
        seen: set[str] = set()
        for keyword, rest in file.whole(name).instructions:
            if keyword == "COPY":
                seen |= {rest} if rest.startswith("--from") else set(rest.split()[:-1])
            if keyword == "RUN" and re.search(r"packages\.sh|install .*-r \w+\.txt", rest):
                assert not seen & {*OF_THE_PROJECT, "pyproject.toml", "loadtests", "Makefile"}, name
                assert not any("--from=project" in one for one in seen), name
        for rest in stage.all("COPY"):
            assert "pyproject.toml" not in rest or name in ("requirements", "project", "train")
    assert "--no-deps" in file.stages["project"].last("RUN")


def test_the_server_has_neither_torch_nor_what_trains(file: Dockerfile) -> None:
    command = file.stages["requirements"].last("RUN")
    lists = re.findall(r"requirements\.py ([\w ${}]+?) > (\w+)\.txt", command)
    extras = {to: extras for extras, to in lists}
    assert extras["server"] == "cpu grammar telemetry vision"
    assert extras["cuda"] == "${CUDA_EXTRAS} grammar telemetry vision"
    assert file.arguments["CUDA_EXTRAS"] == "gpu cudnn"
    for stage, packages in (("packages", "server.txt"), ("cuda-packages", "cuda.txt")):
        assert (
            file.stages[stage]
            .last("RUN")
            .endswith(f"packages.sh /opt/attendant/bin/python {packages}")
        )
    assert "-c constraints.txt" in (ROOT / "deploy/docker/packages.sh").read_text()


def test_make_serve_installs_what_holds_outputs_to_a_form() -> None:
    """As the images do: the README promises it of every server that it starts."""
    makefile = (ROOT / "Makefile").read_text()
    recipe = makefile.split("\n$(VENV)/train.stamp:")[1].split("\n\n")[0]
    extras = re.search(r"'\.\[([\w,]+)\]'", recipe)
    assert extras is not None
    assert {"cpu", "grammar", "train"} <= set(extras[1].split(","))


def test_requirements_are_those_of_the_project_and_of_the_extras_named() -> None:
    """Measuring needs no torch: its extra is the base of the image of load tests."""
    script = ROOT / "deploy/docker/requirements.py"
    done = subprocess.run(  # noqa: S603
        [sys.executable, script, "cpu", "loadtest"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    expected = [*project["dependencies"], *extras["cpu"], *extras["loadtest"]]
    assert done.stdout.splitlines() == expected
    assert not any("torch" in one for one in expected)


def test_the_libraries_of_the_image_for_gpus_have_exact_versions() -> None:
    """`make test` installs none of them, so only their lines can show that one is missing."""
    pinned = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    named = {re.split(r"[<>=\[]", one)[0] for one in (*extras["gpu"], *extras["cudnn"])}
    assert named == {one for one in pinned if one.startswith("nvidia-")} | {"onnxruntime-gpu"}


@each_server
def test_the_standard_library_is_compiled_where_it_runs(file: Dockerfile, name: str) -> None:
    compiles = [run for run in file.whole(name).all("RUN") if "compileall" in run]
    assert len(compiles) == 1
    assert 'sysconfig.get_path("stdlib")' in compiles[0]


def test_every_stage_that_runs_has_a_number_for_its_user(file: Dockerfile) -> None:
    """Kubernetes cannot know that a name is not root's."""
    for name in (*SERVERS, "train", "loadtest"):
        user, group = file.whole(name).last("USER").split(":")
        assert int(user) >= 10_000
        assert int(group) >= 10_000


@each_server
def test_process_1_is_attendant(file: Dockerfile, name: str) -> None:
    """The exec form: with a shell's, SIGTERM would end at the shell."""
    server = file.whole(name)
    assert server.command("ENTRYPOINT") == ["attendant"]
    assert server.command("CMD") == ["serve"]
    assert server.last("STOPSIGNAL") == "SIGTERM"
    assert server.command("HEALTHCHECK") == ["attendant", "healthcheck"]


def test_the_server_starts_no_child_that_process_1_would_have_to_reap() -> None:
    """But those of our scripts, which have no children and for which it waits itself."""
    workers = [
        ROOT / "service/runtime/worker_process.py",
        ROOT / "commands/folders/running.py",  # ends before the server begins
        ROOT / "commands/processes/supervisor.py",  # the processes of one server, which end it
    ]
    assert all(".wait(" in worker.read_text() for worker in workers)
    starts = re.compile(r"\b(subprocess|multiprocessing|os\.fork|os\.spawn|os\.system)\b")
    for path in [*(ROOT / "service").rglob("*.py"), *(ROOT / "commands").rglob("*.py")]:
        assert path in workers or not starts.search(path.read_text()), path


def test_ports_are_the_servers_and_variables_are_settings(file: Dockerfile) -> None:
    server, defaults = file.whole("server"), Settings()
    assert (
        server.last("EXPOSE")
        == f"{defaults.http_port} {defaults.grpc_port} {defaults.metrics_port}"
    )
    known = {f"ATTENDANT_{setting.name.upper()}" for setting in fields(Settings)}
    named = {name for name in server.environment if name.startswith("ATTENDANT_")}
    assert {"ATTENDANT_HOST", "ATTENDANT_METRICS_HOST"} <= named <= known


@each_server
def test_weights_lie_in_huge_pages(file: Dockerfile, name: str) -> None:
    """The C library reads it when a process starts, so that an image has to set it."""
    assert file.whole(name).environment["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"


@each_server
def test_labels_are_those_of_the_image_specification(file: Dockerfile, name: str) -> None:
    labels = file.stages[name].last("LABEL")
    for label in ("title", "description", "licenses", "version", "revision", "base.name"):
        assert f"org.opencontainers.image.{label}=" in labels


def test_what_is_copied_is_sent_to_the_build_and_nothing_else_is() -> None:
    sent = set()
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line.startswith("!"):
            assert (ROOT / line[1:]).exists(), line
            sent.add(line[1:])
    copied = {
        source
        for stage in Dockerfile(PATH).stages.values()
        for rest in stage.all("COPY")
        if not rest.startswith("--from")
        for source in rest.split()[:-1]
    }
    assert copied == sent
    for kept_back in (".git", "model_repository", "build", ".venv", "tests"):
        assert not any(fnmatch.fnmatch(kept_back, name) for name in sent)


def test_the_train_stage_has_all_that_make_needs_for_the_models(tmp_path: Path) -> None:
    """A dry run; it also says that what it makes goes to the volumes of `docker-compose.yml`."""
    stage = Dockerfile(PATH).stages["train"]
    for *sources, target in (rest.split() for rest in stage.all("COPY")):
        for source in sources if not sources[0].startswith("--from") else ():
            dockerfile.copy(ROOT / source, tmp_path / target)
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
def built(tmp_path_factory: pytest.TempPathFactory) -> dockerfile.Build:
    """Its stages are done by their own commands; takes pip a minute."""
    if reason := dockerfile.why_not_here():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("image")
    folder.chmod(0o755)  # pytest's are for root alone
    return dockerfile.Build(Dockerfile(PATH), folder)


@pytest.fixture(scope="module")
def server() -> Stage:
    return Dockerfile(PATH).whole("server")


@pytest.fixture(scope="module")
def root(built: dockerfile.Build) -> Path:
    folder = built.root("server")
    write_graph(add_sub(), folder / "models", "add-sub")
    return folder


def _megabytes(*folders: Path) -> float:
    files = [path for folder in folders for path in folder.rglob("*") if not path.is_symlink()]
    return sum(path.stat().st_size for path in files if path.is_file()) / 1e6


@pytest.mark.timeout(600)
def test_the_image_is_under_400_mb_and_has_no_torch(root: Path) -> None:
    own_mb = _megabytes(root / "opt/attendant")
    library_mb = _megabytes(*root.glob("library/**/__pycache__"))
    print(f"{own_mb:.0f} MB, {library_mb:.0f} MB and the base's {BASE_MB:.0f}")  # noqa: T201
    assert own_mb + library_mb + BASE_MB < IMAGE_LIMIT_MB
    names = {path.name for path in (root / "opt/attendant").rglob("*")}
    assert not names & {"torch", "pip", "setuptools", "tests", "nvidia", "hf_xet", "quantization"}
    assert "attendant" in names


@pytest.mark.timeout(600)
def test_the_layer_of_the_project_has_nothing_but_the_project(built: dockerfile.Build) -> None:
    """What a changed line of source builds, pushes and pulls anew: the sources, and compiled."""
    folder = built.root("project") / "opt/project"
    sources = [ROOT / name for name in OF_THE_PROJECT if (ROOT / name).is_dir()]
    in_git = subprocess.run(  # noqa: S603 - what is there beside, such as compiled modules, is none
        ["git", "-C", ROOT, "ls-files", "-z", *sources],  # noqa: S607
        capture_output=True,
        check=True,
        text=True,
    )
    sizes = {name: (ROOT / name).stat().st_size for name in in_git.stdout.split("\0")[:-1]}
    compiled_bytes = sum(size for name, size in sizes.items() if name.endswith(".py"))
    limit_mb = (sum(sizes.values()) + COMPILED_SHARE * compiled_bytes) / 1e6
    print(f"{_megabytes(folder):.2f} MB of {limit_mb:.2f}")  # noqa: T201
    assert _megabytes(folder) < limit_mb
    (packages,) = folder.glob("lib/python3.*/site-packages")
    names = {path.name for path in packages.iterdir()}
    assert names == {
        "attendant",
        "attendant-0.1.0.dist-info",
        "commands",
        "demos",
        "export",
        "models",
        "playground",
        "service",
    }
    compiled = packages / "service/__pycache__"
    assert len(list(compiled.glob("app.*.pyc"))) == 1
    assert b"/opt/project" not in next(compiled.glob("app.*.pyc")).read_bytes()


@contextmanager
def started(server: Stage, root: Path, **variables: str) -> Iterator[tuple[Container, list[str]]]:
    """A container, and the lines that it wrote until it was ready."""
    ports = free_ports(2)
    local = {"ATTENDANT_HOST": "127.0.0.1", "ATTENDANT_METRICS_HOST": "127.0.0.1"}
    env = {"ATTENDANT_GRPC_PORT": str(ports[0]), "ATTENDANT_METRICS_PORT": str(ports[1])}
    env["ATTENDANT_HTTP_PORT"] = "-1"
    with dockerfile.run(server, root, local | env | variables) as running:
        assert running.process.stdout is not None
        lines = list(takewhile(lambda line: not READY.search(line), running.process.stdout))
        yield running, lines


@pytest.mark.timeout(600)
def test_the_image_serves_as_process_1_without_rights_and_ends_with_0_on_sigterm(
    server: Stage, root: Path
) -> None:
    """Read-only root, no capabilities, no new privileges, a user that this machine has not."""
    with started(server, root) as (container, lines):
        assert container.execute(server.command("HEALTHCHECK")) == 0, lines
        _check_life(server, container)


def _check_life(server: Stage, container: Container) -> None:
    status = container.status()
    assert status["NSpid"].split()[-1] == "1"
    assert status["Uid"].split() == [server.last("USER").split(":")[0]] * 4
    assert (status["CapEff"], status["CapBnd"], status["NoNewPrivs"]) == ("0" * 16, "0" * 16, "1")
    assert container.execute(["touch", "/opt/file"]) == 1
    assert container.execute(["touch", "/tmp/file"]) == 0
    assert container.execute(["attendant", "healthcheck", "--service", "add-sub"]) == 0
    os.kill(container.pid, signal.SIGTERM)
    assert container.process.wait(STOP_LIMIT_S) == 0


@pytest.mark.timeout(600)
def test_neither_a_start_nor_a_health_check_compiles_anything(server: Stage, root: Path) -> None:
    """`python:slim` has no compiled modules, and the root is read-only: each would compile anew."""
    with started(server, root, PYTHONVERBOSE="1") as (container, lines):
        done = container.output(server.command("HEALTHCHECK"))
        assert "SERVING" in done.stdout, done.stderr[-2000:]
    for text in ("".join(lines), done.stderr):
        read = re.findall(r"^# code object from '?(.+?)'?$", text, re.MULTILINE)
        assert len(read) > 100
        assert [path for path in read if not path.endswith(".pyc")] == []


@pytest.mark.timeout(600)
def test_the_image_of_load_tests_has_what_they_need_and_no_torch(built: dockerfile.Build) -> None:
    """They start servers, write a model, draw a report: here as user and on a read-only root."""
    folder = built.root("loadtest")
    own_mb = _megabytes(folder / "opt/attendant")
    print(f"{own_mb:.0f} MB and the base's {BASE_MB:.0f}")  # noqa: T201
    assert own_mb + BASE_MB < LOADTEST_LIMIT_MB
    names = {path.name for path in (folder / "opt/attendant").rglob("*")}
    assert "matplotlib" in names
    assert not names & {"torch", "pip", "scipy", "sklearn", "onnxscript"}
    stage = Dockerfile(PATH).whole("loadtest")
    stage.instructions.append(
        ("CMD", '["overload_sleeping", "--brief", "--output", "/tmp/reports"]')
    )
    with dockerfile.run(stage, folder, {}) as running:
        text, _ = running.process.communicate(timeout=120)
    assert running.process.returncode == 0, text
    assert "report: /tmp/reports/overload_sleeping" in text, text


@pytest.mark.skipif("CUDA_IMAGE" not in os.environ, reason="downloads 0.9 GB: set CUDA_IMAGE=1")
@pytest.mark.timeout(1200)
def test_the_cuda_image_lacks_no_library_but_the_driver_s(tmp_path: Path) -> None:
    """It serves on the CPU of a machine without a GPU, so far as it can be checked there."""
    if reason := dockerfile.why_not_here():
        pytest.skip(reason)
    tmp_path.chmod(0o755)
    file = Dockerfile(PATH)
    root = dockerfile.Build(file, tmp_path).root("cuda")
    own_mb = _megabytes(root / "opt/attendant")
    print(f"{own_mb:.0f} MB and the base's {BASE_MB:.0f}")  # noqa: T201
    assert own_mb + BASE_MB < CUDA_LIMIT_MB
    write_graph(add_sub(), root / "models", "add-sub")
    with started(file.whole("cuda"), root) as (container, lines):
        assert container.execute(file.whole("cuda").command("HEALTHCHECK")) == 0, lines
        assert any("there is no NVIDIA driver" in line for line in lines), lines
        code = (
            "import ctypes, pathlib, onnxruntime; onnxruntime.preload_dlls(); "
            "capi = pathlib.Path(onnxruntime.__file__).parent / 'capi'; "
            "ctypes.CDLL(str(capi / 'libonnxruntime_providers_cuda.so'))"
        )
        done = container.output(["python", "-c", code])
    assert done.stdout == ""  # preload_dlls prints what it cannot load
    assert "OSError: libcuda.so.1: cannot open shared object file" in done.stderr
