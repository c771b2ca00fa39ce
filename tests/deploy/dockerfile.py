"""Dockerfiles as lists of instructions, and their build stage run without an engine.

`build` and `run` make of a mount and a process namespace what an engine would: the files of
the stage, a read-only root, no capabilities, process 1. This machine's Python and C library
stand in for the base image's.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD_LIMIT_S = 400.0  # mostly pip's
MOUNTED = ("usr", "etc", "dev")  # of this machine, besides links such as /bin
INSIDE = ("PATH=/shims:/usr/bin:/bin", "HOME=/tmp", "PYTHONPATH=")
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
                self.arguments[name] = default
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
    if subprocess.run([*NAMESPACES, "true"], capture_output=True, check=False).returncode:  # noqa: S603
        return "this machine allows no namespaces"
    probe = [str(python), "-c", "import sys, venv; sys.exit(sys.version_info < (3, 11))"]
    if not python.exists() or subprocess.run(probe, capture_output=True, check=False).returncode:  # noqa: S603
        return "/usr/bin/python3 is not Python 3.11 or later"
    return ""


def build(stage: Stage, root: Path) -> None:
    """Do what COPY, WORKDIR and RUN say, with `root` as the root."""
    _furnish(root)
    folder = Path("/")
    for keyword, rest in stage.instructions:
        if keyword == "WORKDIR":
            folder = Path(rest)
        elif keyword == "COPY":
            *sources, target = rest.split()
            for source in sources:
                copy(ROOT / source, root / (folder / target).relative_to("/") / source)
        elif keyword == "RUN":
            (root / folder.relative_to("/")).mkdir(parents=True, exist_ok=True)
            inside = f"cd {folder} && {rest}"
            shell = shlex.join(["env", *INSIDE, "bash", "-euo", "pipefail", "-c", inside])
            script = f"{_mounts(root)}\nexec chroot {root} {shell}"
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
    script = f"{_mounts(root)}\nmount -o remount,bind,ro {root}\n{inside}"
    process = subprocess.Popen(  # noqa: S603
        [*NAMESPACES, "bash", "-euc", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield Container(process, stage, variables)
    finally:
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
        """As an engine's exec: same files, same user."""
        enter = f"nsenter --target {self.pid} --mount --pid --root --wd"
        command = f"{enter} {_as_user(self.stage, self.variables, words)}"
        done = subprocess.run(shlex.split(command), capture_output=True, timeout=30, check=False)  # noqa: S603
        return done.returncode


def _as_user(stage: Stage, variables: Mapping[str, str], words: list[str]) -> str:
    user, _, group = stage.last("USER").partition(":")
    dropped = "--clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs"
    pairs = [f"{name}={value}" for name, value in variables.items()]
    inside = ["env", "-i", "-C", stage.last("WORKDIR"), *pairs, *words]
    return f"setpriv --reuid {user} --regid {group} {dropped} {shlex.join(inside)}"


def _furnish(root: Path) -> None:
    for name in ("proc", "tmp", "shims", *MOUNTED):
        (root / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        if (Path("/") / name).is_symlink():
            (root / name).symlink_to(f"usr/{name}")
    import pip

    shutil.copytree(Path(pip.__file__).parent, root / "shims/packages/pip")
    pip_here = "PYTHONPATH=/shims/packages exec /usr/bin/python3 -m pip --disable-pip-version-check"
    for name, command in (("python", "exec /usr/bin/python3"), ("pip", pip_here)):
        shim = root / "shims" / name
        shim.write_text(f'#!/bin/sh\n{command} "$@"\n')
        shim.chmod(0o755)


def _mounts(root: Path) -> str:
    """Shell commands; they hold in the namespace only."""
    lines = ["mount --make-rprivate /", f"mount --bind {root} {root}"]
    lines += [f"mount --rbind /{name} {root}/{name}" for name in MOUNTED]
    lines += [f"mount -t proc proc {root}/proc", f"mount -t tmpfs -o mode=1777 tmpfs {root}/tmp"]
    return "\n".join(lines)


def copy(source: Path, target: Path) -> None:
    """A file, or as COPY does a folder's contents, when `target` ends with the source's name."""
    if source.is_dir():
        target = target.parent  # a folder's contents go into the target
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(source, target, ignore=ignore, dirs_exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
