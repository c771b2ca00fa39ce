"""Dockerfiles as lists of instructions, and their stages built and run without an engine.

`Build` and `run` make of a mount and a process namespace what an engine would: the files of
a stage, a read-only root, no capabilities, process 1. This machine's Python and C library
stand in for the base image's, without the compiled modules of the standard library, as those of
`python:slim` are.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD_LIMIT_S = 400.0  # mostly pip's
MOUNTED = ("usr", "etc", "dev")  # of this machine, besides links such as /bin
INSIDE = ("PATH=/shims:/usr/bin:/bin", "HOME=/tmp", "PYTHONPATH=", "PIP_CACHE_DIR=/cache")
PIP_CACHE = Path.home() / ".cache/pip"  # of this machine, as engines keep one for their builds
# What this machine has already, and a base image would get.
NOT_DONE = ("apt-get",)
NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--kill-child")


@dataclass(slots=True)
class Stage:
    """One FROM and what follows it."""

    base: str
    name: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, keyword: str) -> list[str]:
        return [rest for found, rest in self.instructions if found == keyword]

    def last(self, keyword: str) -> str:
        return self.all(keyword)[-1]

    @property
    def environment(self) -> dict[str, str]:
        pairs = (shlex.split(rest) for rest in self.all("ENV"))
        return dict(pair.split("=", 1) for words in pairs for pair in words)

    def command(self, keyword: str) -> list[str]:
        """The words of an instruction in exec form; `JSONDecodeError` for a shell's."""
        words: list[str] = json.loads(self.last(keyword)[self.last(keyword).index("[") :])
        return words


class Dockerfile:
    """Global arguments, and stages by name in order."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.arguments: dict[str, str] = {}
        self.stages: dict[str, Stage] = {}
        stage: Stage | None = None
        lines = (line for line in path.read_text().splitlines() if not line.startswith("#"))
        for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
            if not line.strip():
                continue
            keyword, rest = line.split(maxsplit=1)
            if keyword == "FROM":
                base, _, name = rest.split()
                stage = self.stages[name] = Stage(base, name)
            elif stage is None:
                assert keyword == "ARG", line
                name, default = rest.split("=", 1)
                (self.arguments[name],) = shlex.split(default)
            else:
                stage.instructions.append((keyword, " ".join(rest.split())))

    def ancestry(self, name: str) -> Iterator[Stage]:
        """A stage and those it is built on, itself last."""
        stage = self.stages[name]
        if stage.base in self.stages:
            yield from self.ancestry(stage.base)
        yield stage

    def whole(self, name: str) -> Stage:
        """A stage with everything that it inherits."""
        stages = list(self.ancestry(name))
        return Stage(stages[0].base, name, [one for each in stages for one in each.instructions])


def why_not_here() -> str:
    """Why a stage cannot be built and run on this machine; empty if it can."""
    python = Path("/usr/bin/python3")
    if os.geteuid() or not shutil.which("setpriv"):
        return "namespaces need root and util-linux"
    if not shutil.which("strip"):
        return "stages strip what they install, and this machine has no binutils"
    if subprocess.run([*NAMESPACES, "true"], capture_output=True, check=False).returncode:  # noqa: S603
        return "this machine allows no namespaces"
    probe = [str(python), "-c", "import sys, venv; sys.exit(sys.version_info < (3, 11))"]
    if not python.exists() or subprocess.run(probe, capture_output=True, check=False).returncode:  # noqa: S603
        return "/usr/bin/python3 is not Python 3.11 or later"
    return ""


class Build:
    """The stages of a Dockerfile as folders, each built once.

    A stage that stands on another one shares its folder: nothing here takes a file away from
    the stage before it. So the stages that fill one environment differently, `packages` and
    `cuda-packages`, need a `Build` each.
    """

    def __init__(self, file: Dockerfile, folder: Path) -> None:
        self._file, self._folder = file, folder
        self._roots: dict[str, Path] = {}

    def root(self, name: str) -> Path:
        """Do what COPY, WORKDIR and RUN of a stage say, and of those that it needs."""
        if name not in self._roots:
            stage = self._file.stages[name]
            if stage.base in self._file.stages:
                root = self.root(stage.base)
            else:
                root = self._folder / name
                _furnish(root)
            self._do(stage, root)
            self._roots[name] = root
        return self._roots[name]

    def _do(self, stage: Stage, root: Path) -> None:
        inherited = [one for each in self._file.ancestry(stage.name) for one in each.all("WORKDIR")]
        own = len(stage.all("WORKDIR"))
        folder = Path(["/", *inherited][len(inherited) - own])
        arguments: list[str] = []
        for keyword, rest in stage.instructions:
            if keyword == "ARG" and rest in self._file.arguments:
                arguments.append(f"{rest}={self._file.arguments[rest]}")
            elif keyword == "WORKDIR":
                folder = Path(rest)
            elif keyword == "COPY":
                *sources, target = rest.split()
                self._copy(sources, root / (folder / target).relative_to("/"))
            elif keyword == "RUN":
                (root / folder.relative_to("/")).mkdir(parents=True, exist_ok=True)
                _do_run(re.sub(r"--mount=\S+ ", "", rest), root, folder, arguments)

    def _copy(self, sources: list[str], target: Path) -> None:
        context = ROOT
        if sources[0].startswith("--from="):
            context = self.root(sources[0].removeprefix("--from="))
            sources = sources[1:]
        for source in sources:
            copy(context / source.removeprefix("/"), target)


def _do_run(command: str, root: Path, folder: Path, arguments: list[str]) -> None:
    """As root, but for the files of this machine."""
    shell = [
        "env",
        *INSIDE,
        *arguments,
        "bash",
        "-euo",
        "pipefail",
        "-c",
        f"cd {folder} && {command}",
    ]
    caches = f"mount --bind {PIP_CACHE} {root}/cache" if PIP_CACHE.is_dir() else "true"
    script = f"{_mounts(root)}\n{caches}\nexec chroot {root} {shlex.join(shell)}"
    done = subprocess.run(  # noqa: S603
        [*NAMESPACES, "bash", "-euc", script],
        capture_output=True,
        text=True,
        timeout=BUILD_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@contextmanager
def run(stage: Stage, root: Path, env: Mapping[str, str]) -> Iterator["Container"]:
    """ENTRYPOINT and CMD as process 1, as strictly as `docker-compose.yml` has it."""
    words = [*stage.command("ENTRYPOINT"), *stage.command("CMD")]
    variables = {**stage.environment, **env}
    inside = f"exec chroot {root} {_as_user(stage, variables, words)}"
    script = f"{_mounts(root)}\nmount -o remount,bind,ro {root}\n"
    script += f"mount -o remount,bind,ro {root}{_library()}\n{inside}"
    process = subprocess.Popen(  # noqa: S603
        [*NAMESPACES, "bash", "-euc", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    container = Container(process, stage, variables)
    try:
        yield container
    finally:
        with suppress(ValueError, OSError):  # it has ended
            os.kill(container.pid, signal.SIGKILL)  # changing its user it has left --kill-child
        process.kill()
        process.communicate()


@dataclass(slots=True)
class Container:
    """What `run` started; `process` ends as process 1 inside does."""

    process: "subprocess.Popen[str]"
    stage: Stage
    variables: dict[str, str]

    @property
    def pid(self) -> int:
        """Process 1, as this machine counts."""
        own = self.process.pid
        return int(Path(f"/proc/{own}/task/{own}/children").read_text())

    def status(self) -> dict[str, str]:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return {name: rest.strip() for name, _, rest in (line.partition(":") for line in lines)}

    def execute(self, words: list[str]) -> int:
        return self.output(words).returncode

    def output(self, words: list[str]) -> "subprocess.CompletedProcess[str]":
        """As an engine's exec: same files, same user."""
        enter = f"nsenter --target {self.pid} --mount --pid --root --wd"
        command = f"{enter} {_as_user(self.stage, self.variables, words)}"
        return subprocess.run(  # noqa: S603
            shlex.split(command), capture_output=True, text=True, timeout=30, check=False
        )


def _as_user(stage: Stage, variables: Mapping[str, str], words: list[str]) -> str:
    user, _, group = stage.last("USER").partition(":")
    dropped = "--clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs"
    pairs = [f"{name}={value}" for name, value in variables.items()]
    inside = ["env", "-i", "-C", stage.last("WORKDIR"), *pairs, *words]
    return f"setpriv --reuid {user} --regid {group} {dropped} {shlex.join(inside)}"


def _furnish(root: Path) -> None:
    for name in ("proc", "tmp", "shims", "cache", *MOUNTED):
        (root / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        if (Path("/") / name).is_symlink():
            (root / name).symlink_to(f"usr/{name}")
    left_out = shutil.ignore_patterns("__pycache__", "test", "tests", "idle_test")
    shutil.copytree(_library(), root / "library", symlinks=True, ignore=left_out)
    import pip

    shutil.copytree(Path(pip.__file__).parent, root / "shims/packages/pip")
    pip_here = "PYTHONPATH=/shims/packages exec /usr/bin/python3 -m pip --disable-pip-version-check"
    for name, command in (("python", "exec /usr/bin/python3"), ("pip", pip_here)):
        shim = root / "shims" / name
        shim.write_text(f'#!/bin/sh\n{command} "$@"\n')
        shim.chmod(0o755)
    for name in NOT_DONE:
        (root / "shims" / name).symlink_to("/bin/true")


@cache
def _library() -> str:
    """The folder of the standard library that stages run with."""
    code = "import sysconfig; print(sysconfig.get_path('stdlib'))"
    done = subprocess.run(["/usr/bin/python3", "-c", code], capture_output=True, check=True)  # noqa: S603
    return done.stdout.decode().strip()


def _mounts(root: Path) -> str:
    """Shell commands; they hold in the namespace only."""
    lines = ["mount --make-rprivate /", f"mount --bind {root} {root}"]
    lines += [f"mount --rbind /{name} {root}/{name}" for name in MOUNTED]
    lines += [f"mount -o remount,bind,ro {root}/{name}" for name in ("usr", "etc")]
    lines += [f"mount --bind {root}/library {root}{_library()}"]
    lines += [f"mount -t proc proc {root}/proc", f"mount -t tmpfs -o mode=1777 tmpfs {root}/tmp"]
    return "\n".join(lines)


def copy(source: Path, target: Path) -> None:
    """As COPY does: a folder's contents, or a file, into a folder."""
    if source.is_dir():
        is_context = source.is_relative_to(ROOT)  # of which .dockerignore leaves these out
        ignore = shutil.ignore_patterns("*.egg-info", "__pycache__") if is_context else None
        shutil.copytree(source, target, symlinks=True, ignore=ignore, dirs_exist_ok=True)
    else:
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
