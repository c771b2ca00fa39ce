"""The start of each server over the same model, and how it is called.

A `Launch` is a command, what it finds in its environment, and a client of it. Files that a server
wants beside are written below `scratch`. To add a server, write its function and name it below.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from loadtests.compare.servers.clients import MODEL, Client, HttpClient, OipClient
from loadtests.load.server import SERVE

APPS = Path(__file__).with_name("apps")
WAIT_S = 0.01  # of a batch for more rows, after its first has come, alike at all servers


@dataclass(frozen=True, slots=True)
class Place:
    """The arguments of a server."""

    model: Path  # as exported, or as Hugging Face has it
    python: Path  # of its environment
    scratch: Path  # empty
    ports: tuple[int, int, int]  # free; the first takes the requests
    threads: int
    rows: int  # that a server may put into one batch; 1 is no batching
    flags: Sequence[str] = ()  # of ours, beside its defaults
    pooling: str = ""  # mean or cls, where the graph ends in hidden states
    max_tokens: int = 0  # of a text; the rest is cut

    def program(self, name: str) -> str:
        return str(self.python.with_name(name))


@dataclass(frozen=True, slots=True)
class Launch:
    """A server to start."""

    command: list[str]
    client: Callable[[], Client]
    environ: Mapping[str, str] = field(default_factory=dict)


def attendant(place: Place) -> Launch:
    """Ours with its defaults, but for the longest wait in the queue: a refusal would end a turn."""
    port = place.ports[0]
    return Launch(_serve(place), lambda: OipClient(port, can_truncate=True))


def attendant_http(place: Place) -> Launch:
    """The same, asked in JSON as the servers are that know nothing else."""
    port = place.ports[2]

    def body(text: str) -> object:
        return {"model": MODEL, "input": text, "truncate_prompt_tokens": -1}

    return Launch(_serve(place), lambda: HttpClient(port, "/v1/embeddings", body, _openai_vector))


def _serve(place: Place) -> list[str]:
    port, metrics_port, http_port = place.ports
    ports = ["--grpc-port", str(port), "--http-port", str(http_port)]
    ports += ["--metrics-port", str(metrics_port)]
    command = [*SERVE, "--model-repository", str(place.model), "--log-level", "warning", *ports]
    return [*command, "--max-queue-s", "0", *place.flags]


def _openai_vector(found: Any) -> list[float]:
    vector: list[float] = found["data"][0]["embedding"]
    return vector


def triton(place: Place) -> Launch:
    """The server itself, out of PyTriton's wheel, which brings the Python backend alone."""
    port, http_port, metrics_port = place.ports
    (packages,) = (place.python.parents[1] / "lib").glob("python3.*/site-packages")
    server = packages / "pytriton" / "tritonserver"
    version = packages.parent.name.removeprefix("python")
    backends, repository = place.scratch / "backends", place.scratch / "repository"
    (backends / "python").mkdir(parents=True)
    stub = server / "python_backend_stubs" / version / "triton_python_backend_stub"
    for source in (*(server / "backends" / "python").iterdir(), stub):
        target = backends / "python" / source.name
        target.unlink(missing_ok=True)
        target.symlink_to(source)
    (repository / MODEL / "1").mkdir(parents=True)
    for app in (
        "triton_model.py",
        "embedder.py",
        "pooling.py",
    ):  # only what is beside it can be imported
        shutil.copy(APPS / app, repository / MODEL / "1" / app.removeprefix("triton_"))
    (repository / MODEL / "config.pbtxt").write_text(triton_config(place.rows))
    command = [
        str(server / "bin" / "tritonserver"),
        f"--model-repository={repository}",
        f"--backend-directory={backends}",
        f"--cache-directory={server / 'caches'}",
        *(f"--{each}-address=127.0.0.1" for each in ("http", "grpc", "metrics")),
        f"--grpc-port={port}",
        f"--http-port={http_port}",
        f"--metrics-port={metrics_port}",
    ]
    environ = app_environ(place) | {"PYTHONPATH": str(packages)}
    return Launch(command, lambda: OipClient(port), environ)


def triton_config(rows: int) -> str:
    return f"""
        name: "{MODEL}"
        backend: "python"
        max_batch_size: {rows}
        input [ {{ name: "text" data_type: TYPE_STRING dims: [ 1 ] }} ]
        output [ {{ name: "embedding" data_type: TYPE_FP32 dims: [ -1 ] }} ]
        instance_group [ {{ count: 1 kind: KIND_CPU }} ]
        dynamic_batching {{ max_queue_delay_microseconds: {round(WAIT_S * 1e6)} }}
    """


def mlserver(place: Place) -> Launch:
    """One process: with workers beside it, requests would be copied between processes."""
    port, http_port, metrics_port = place.ports
    settings = {
        "host": "127.0.0.1",
        "grpc_port": port,
        "http_port": http_port,
        "metrics_port": metrics_port,
        "parallel_workers": 0,
        "gzip_enabled": False,
    }
    model = {
        "name": MODEL,
        "implementation": "mlserver_runtime.EmbedderRuntime",
        "max_batch_size": place.rows,
        "max_batch_time": WAIT_S,
    }
    (place.scratch / MODEL).mkdir()
    (place.scratch / "settings.json").write_text(json.dumps(settings))
    (place.scratch / MODEL / "model-settings.json").write_text(json.dumps(model))
    command = [place.program("mlserver"), "start", str(place.scratch)]
    return Launch(command, lambda: OipClient(port), app_environ(place))


def litserve(place: Place) -> Launch:
    port = place.ports[0]
    command = [str(place.python), str(APPS / "lit.py"), str(port)]

    def client() -> Client:
        return HttpClient(
            port, "/predict", lambda text: {"text": text}, lambda found: found["embedding"]
        )

    return Launch(command, client, app_environ(place))


def bentoml(place: Place) -> Launch:
    port = place.ports[0]
    command = [place.program("bentoml"), "serve", "bento:EmbedderService", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--working-dir", str(APPS)]

    def client() -> Client:
        return HttpClient(port, "/predict", lambda text: {"texts": [text]}, lambda found: found[0])

    return Launch(command, client, app_environ(place) | {"BENTOML_DO_NOT_TRACK": "True"})


def ray(place: Place) -> Launch:
    port, http_port, _ = place.ports
    command = [str(place.python), str(APPS / "ray_app.py"), str(port), str(http_port)]
    environ = app_environ(place) | {"RAY_USAGE_STATS_ENABLED": "0"}
    return Launch(command, lambda: OipClient(port, [("application", MODEL)]), environ)


def infinity(place: Place) -> Launch:
    """On PyTorch, with what does not run here switched off."""
    port = place.ports[0]
    command = [place.program("infinity_emb"), "v2", "--model-id", str(place.model)]
    command += ["--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--engine", "torch", "--device", "cpu", "--no-bettertransformer", "--no-compile"]
    command += ["--no-model-warmup"]  # takes minutes on a CPU

    def body(text: str) -> object:
        return {"model": MODEL, "input": [text]}

    environ = {"DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0"}
    return Launch(command, lambda: HttpClient(port, "/embeddings", body, _openai_vector), environ)


Start: TypeAlias = Callable[[Place], Launch]
LAUNCHES: dict[str, Start] = {
    launch.__name__: launch
    for launch in (attendant, attendant_http, triton, mlserver, litserve, bentoml, ray, infinity)
}


def environ_of(place: Place, launch: Launch) -> dict[str, str]:
    """The server's own programs come first."""
    paths = [str(place.python.parent), os.environ.get("PATH", "")]
    return {"PATH": os.pathsep.join(paths), **launch.environ}


def app_environ(place: Place) -> dict[str, str]:
    """Variables for `apps/embedder.py`, and where it is."""
    exported = place.model / MODEL / "1"  # of ours; what others exported is a folder of the graph
    return {
        "PYTHONPATH": str(APPS),
        "EMBEDDER_FOLDER": str(exported if exported.is_dir() else place.model),
        "EMBEDDER_THREADS": str(place.threads),
        "EMBEDDER_ROWS": str(place.rows),
        "EMBEDDER_WAIT_S": str(WAIT_S),
        "EMBEDDER_POOLING": place.pooling,
        "EMBEDDER_MAX_TOKENS": str(place.max_tokens),
    }
