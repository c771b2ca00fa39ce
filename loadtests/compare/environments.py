"""Virtual environments of peers, and files converted for them: made once, under `build/compare/`.

What fails says why and is left out; nothing is half made, since the stamp is written last.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from loadtests.compare.connection import ROOT

BUILD = (ROOT / "build").resolve() / "compare"  # programs of an environment name its whole path
MODELS = BUILD / "models"
STEP_LIMIT_S = 3_600  # llama.cpp compiles for 20 minutes on one core
NO_BYTECODE = {
    "PIP_COMPILE": "0"
}  # of modules that are not imported: most of an installation's time


class NotAvailable(Exception):  # noqa: N818 - a state of the peer, reported as such
    """Why a peer cannot take part on this machine."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment: pip's arguments, call after call, since the order matters.

    `script` runs last, in bash, in the environment's folder and with its programs on PATH: what
    pip cannot do, or has to be patched.
    """

    name: str
    pip: tuple[str, ...] = ()
    script: str = ""
    shown: tuple[str, ...] = ()  # distributions whose versions the report has

    @property
    def folder(self) -> Path:
        return BUILD / "venv" / self.name

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def is_installed(self) -> bool:
        return self._stamp.exists()

    @property
    def _stamp(self) -> Path:
        return self.folder / "versions.json"

    def install(self) -> None:
        """Make it, unless it was made in the same way before."""
        if self.is_installed:
            return
        log = BUILD / "logs" / f"install-{self.name}.log"
        _call([sys.executable, "-m", "venv", str(self.folder)], log, self)
        quiet = [str(self.python), "-m", "pip", "--disable-pip-version-check"]
        for arguments in self.pip:
            _call([*quiet, *shlex.split(arguments)], log, self, self.folder)
        if self.script:
            _call(["bash", "-euc", self.script], log, self, self.folder)
        found = subprocess.run(  # noqa: S603 - its own pip
            [*quiet, "list", "--format=json"], capture_output=True, check=True, text=True
        )
        versions = {each["name"].lower(): each["version"] for each in json.loads(found.stdout)}
        self._stamp.write_text(json.dumps(versions, indent=1))

    def versions(self) -> dict[str, str]:
        """Of what is shown; nothing where the installation failed."""
        if not self.is_installed:
            return {}
        known: dict[str, str] = json.loads(self._stamp.read_text())
        words = " ".join(self.pip).split()
        built = dict(
            word.split("==") for word in words if "==" in word
        )  # from sources, by a script
        return {name: known.get(name) or built[name] for name in self.shown}


@dataclass(frozen=True, slots=True)
class Own(Environment):
    """The environment that we run in: ours is a peer like the others."""

    @property
    def folder(self) -> Path:
        return Path(sys.prefix)

    @property
    def python(self) -> Path:
        return Path(sys.executable)

    @property
    def is_installed(self) -> bool:
        return True

    def versions(self) -> dict[str, str]:
        from importlib.metadata import version

        return {name: version(name) for name in self.shown}


@dataclass(frozen=True, slots=True)
class Conversion:
    """A model as one engine reads it: a folder made by a command of an environment.

    The command's `{model}` is the Hugging Face folder, `{out}` the folder to make, `{bin}` where
    the environment's programs are.
    """

    name: str
    model: str
    environment: Environment
    command: str

    @property
    def folder(self) -> Path:
        return MODELS / self.name

    def make(self) -> None:
        """Convert, unless that was done before."""
        if self.folder.exists():
            return
        part = self.folder.with_name(f"{self.name}.{os.getpid()}.part")
        part.parent.mkdir(parents=True, exist_ok=True)
        command = self.command.format(
            model=MODELS / self.model,
            out=part,
            bin=self.environment.python.parent,
        )
        log = BUILD / "logs" / f"convert-{self.name}.log"
        try:
            _call(["bash", "-euc", command], log, self.environment)
            if not self.folder.exists():  # or another process was faster
                part.rename(self.folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def environ(threads: int) -> dict[str, str]:
    """Variables of every worker and converter: its threads, and nothing from a hub."""
    count = str(threads)
    return {
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "CUDA_VISIBLE_DEVICES": "",
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # as our images have it: all weights alike
    }


def _call(
    command: Sequence[str], log: Path, environment: Environment, folder: Path | None = None
) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    path = f"{environment.python.parent}{os.pathsep}{os.environ['PATH']}"
    variables = {**environ(os.cpu_count() or 1), "PATH": path, **NO_BYTECODE}
    with log.open("a") as output:
        print("$", *command, file=output, flush=True)
        process = subprocess.Popen(  # noqa: S603 - as declared in peers.py
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder or ROOT,
            env={**os.environ, **variables},
            start_new_session=True,  # so that a compiler ends with what started it
        )
        try:
            code = process.wait(STEP_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise NotAvailable(f"took longer than {STEP_LIMIT_S} s; {log}") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
        errors = [line for line in lines if "error" in line.lower()] or lines
        raise NotAvailable(f"{errors[-1][:200]} ({log})")
