"""Run the public example clients and tests of Triton, unmodified, against generated models.

`python -m tests.conformance.run_examples EXAMPLES [--server-tests QA] [--python CLIENT_PYTHON]`

EXAMPLES is `src/python/examples` of a clone of github.com/triton-inference-server/client, QA is
`qa` of one of .../server, and CLIENT_PYTHON an interpreter with `tritonclient[all]`, `pillow`,
`attrdict`, `psutil` and `ml_dtypes`. Nothing of the clones is part of this repository. The command
`openssl` makes the certificates. What takes no address wants a server on ports 8001 and 8000, so
that these must be free for QA. Ends with 1 if something that applies fails.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tritonclient.grpc import InferenceServerClient

from tests.conformance.models import write_examples
from tests.e2e.server import ServerProcess
from tests.fakes.certificates import Authority

LIMIT_S = 60.0  # for one script
DELAY_S = 3.0  # of the model that the public tests want slow
SIDE = 64  # pixels
TOLD = 300  # characters of what a failed script said
NAME = ("--server-name", "triton")
SHARED = "--allow-client-shm"
EXPLICIT = ("--model-control-mode", "explicit", "--load-models", "*")
ADDRESS = ("-u", "{url}")
HTTP_ADDRESS = ("-u", "{http}")


@dataclass(frozen=True, slots=True)
class Script:
    """A file of a clone and its arguments, in which `{url}` and `{image}` are filled in."""

    path: str
    arguments: tuple[str, ...] = ADDRESS

    def __str__(self) -> str:
        words = [word for word in self.arguments if word not in (*ADDRESS, *HTTP_ADDRESS)]
        return " ".join((self.path, *words))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one run."""

    script: str
    result: str  # pass, fail or not applicable
    reason: str = ""


_IMAGE = ("-m", "densenet_onnx", "-s", "INCEPTION", "-c", "3", *ADDRESS, "{image}")
EXAMPLES = (
    Script("simple_grpc_infer_client.py"),
    Script("simple_grpc_infer_client.py", (*ADDRESS, "-C", "gzip")),
    Script("simple_grpc_infer_client.py", (*ADDRESS, "-C", "deflate")),
    Script("simple_grpc_infer_client.py", (*ADDRESS, "-t", "10")),
    Script("simple_grpc_async_infer_client.py"),
    Script("simple_grpc_aio_infer_client.py"),
    Script("simple_grpc_string_infer_client.py"),
    Script("simple_grpc_custom_args_client.py"),
    Script("simple_grpc_keepalive_client.py"),
    Script("simple_grpc_health_metadata.py"),
    Script("simple_grpc_shm_client.py"),
    Script("simple_grpc_shm_string_client.py"),
    Script("reuse_infer_objects_client.py", ("-i", "grpc", *ADDRESS)),
    Script("grpc_client.py"),
    Script("grpc_explicit_int_content_client.py"),
    Script("grpc_explicit_int8_content_client.py"),
    Script("grpc_explicit_byte_content_client.py"),
    Script("grpc_image_client.py", _IMAGE),
    Script("grpc_image_client.py", ("-a", *_IMAGE)),
    Script("grpc_image_client.py", ("--streaming", *_IMAGE)),
    Script("image_client.py", ("-i", "grpc", *_IMAGE)),
    Script("image_client.py", ("-i", "grpc", "-a", *_IMAGE)),
    Script("image_client.py", ("-i", "grpc", "-a", "--streaming", *_IMAGE)),
    Script("simple_grpc_model_control.py"),  # last: it unloads `simple`
)
_ZIPPED = "--request-compression-algorithm", "--response-compression-algorithm"
_HTTP_IMAGE = ("-m", "densenet_onnx", "-s", "INCEPTION", "-c", "3", *HTTP_ADDRESS, "{image}")
HTTP_EXAMPLES = (
    Script("simple_http_infer_client.py", HTTP_ADDRESS),
    Script("simple_http_infer_client.py", (*HTTP_ADDRESS, _ZIPPED[0], "gzip", _ZIPPED[1], "gzip")),
    Script(
        "simple_http_infer_client.py", (*HTTP_ADDRESS, _ZIPPED[0], "deflate", _ZIPPED[1], "deflate")
    ),
    Script("simple_http_async_infer_client.py", HTTP_ADDRESS),
    Script("simple_http_aio_infer_client.py", HTTP_ADDRESS),
    Script("simple_http_string_infer_client.py", HTTP_ADDRESS),
    Script("simple_http_health_metadata.py", HTTP_ADDRESS),
    Script("simple_http_shm_client.py", HTTP_ADDRESS),
    Script("simple_http_shm_string_client.py", HTTP_ADDRESS),
    Script("reuse_infer_objects_client.py", ("-i", "http", *HTTP_ADDRESS)),
    Script("image_client.py", ("-i", "http", *_HTTP_IMAGE)),
    Script("image_client.py", ("-i", "http", "-a", *_HTTP_IMAGE)),
)
HTTP_CONTROL = Script("simple_http_model_control.py", HTTP_ADDRESS)  # it counts seven models
_TLS = (*ADDRESS, "--ssl", "-r", "{root}", "-p", "{key}", "-x", "{cert}")
SECURE = (
    Script("simple_grpc_infer_client.py", _TLS),
    Script("simple_grpc_aio_infer_client.py", _TLS),
)
NOT_APPLICABLE = {
    "simple_grpc_sequence_stream_infer_client.py": "needs a stateful model",
    "simple_grpc_sequence_sync_infer_client.py": "needs a stateful model",
    "simple_grpc_aio_sequence_stream_infer_client.py": "needs a stateful model",
    "simple_grpc_custom_repeat.py": "needs a decoupled model that is no graph",
    "simple_grpc_cudashm_client.py": "needs a GPU's shared memory",
    "ensemble_image_client.py": "needs an ensemble",
    "simple_http_sequence_sync_infer_client.py": "needs a stateful model",
    "simple_http_cudashm_client.py": "needs a GPU's shared memory",
}


def _unit_tests(path: str, case: str, names: str) -> tuple[Script, ...]:
    """Each by itself, as Triton's scripts run them."""
    return tuple(Script(path, (f"{case}.test_{name}",)) for name in names.split())


_AIO_TESTS = (
    "is_server_live is_server_ready is_model_ready get_server_metadata get_model_metadata "
    "get_model_config get_model_repository_index load_model unload_model "
    "get_inference_statistics update_trace_settings get_trace_settings "
    "get_system_shared_memory_status register_system_shared_memory "
    "unregister_system_shared_memory get_cuda_shared_memory_status "
    "unregister_cuda_shared_memory register_cuda_shared_memory"
)
_SHM_TESTS = (
    "invalid_create_shm valid_create_set_register unregister_before_register "
    "unregister_after_register reregister_after_register unregister_after_inference "
    "register_after_inference too_big_shm mixed_raw_shm unregisterall "
    "infer_offset_out_of_bound infer_byte_size_out_of_bound infer_integer_overflow "
    "register_out_of_bound register_invalid_shm_key python_client_leak"
)
# They count seven models.
HTTP_TESTS = (
    *_unit_tests("L0_http/python_http_aio_test.py", "TestHttpAioClient", _AIO_TESTS),
    *_unit_tests("L0_shared_memory/shared_memory_test.py", "SharedMemoryTest", _SHM_TESTS),
    *_unit_tests(
        "L0_shared_memory/shared_memory_test.py",
        "TestSharedMemoryUnregister",
        "unregister_shm_after_inference_http",
    ),
    *_unit_tests(
        "L0_logging/logging_endpoint_test.py",
        "LogEndpointTest",
        "http_get_settings http_update_settings",
    ),
)
# By the flags of the server that they want.
TESTS = {
    (SHARED,): (
        *_unit_tests("L0_grpc/python_grpc_aio_test.py", "TestGrpcAioClient", _AIO_TESTS),
        Script("L0_parameters/class_count_test.py", ()),
        *_unit_tests(
            "L0_client_timeout/client_infer_timeout_test.py",
            "ClientInferTimeoutTest",
            "grpc_infer grpc_async_infer grpc_stream_infer",
        ),
        *_unit_tests(
            "L0_request_cancellation/grpc_cancellation_test.py",
            "GrpcCancellationTest",
            "grpc_async_infer grpc_stream_infer aio_grpc_async_infer aio_grpc_stream_infer",
        ),
        *_unit_tests("L0_shared_memory/shared_memory_test.py", "SharedMemoryTest", _SHM_TESTS),
    ),
    EXPLICIT: (
        Script("L0_input_validation/input_validation_test.py", ("ModelNameValidationTest",)),
        *_unit_tests(
            "L0_shared_memory/shared_memory_test.py",
            "SharedMemoryTest",
            "client_shm_disabled_by_default",
        ),
    ),
}


def run_examples(folder: Path, python: str, repository: Path) -> list[Outcome]:
    image = repository.with_name("image.ppm")
    image.write_bytes(b"P6 %d %d 255\n" % (SIDE, SIDE) + bytes(3 * SIDE * SIDE))
    flags = (*NAME, *EXPLICIT, SHARED, "--http-port", "0")
    with ServerProcess(repository, *flags) as server:
        known = {"url": server.address, "http": server.http_address, "image": str(image)}
        ran = [_run(folder, python, script, known) for script in (*HTTP_EXAMPLES, *EXAMPLES)]
    shutil.rmtree(repository / "identity_bytes")
    with ServerProcess(repository, *flags) as server:
        known["http"] = server.http_address
        ran.append(_run(folder, python, HTTP_CONTROL, known))
    return ran + [
        Outcome(script, "not applicable", reason) for script, reason in NOT_APPLICABLE.items()
    ]


def run_secure(folder: Path, python: str, repository: Path) -> list[Outcome]:
    """Server and client show each other a certificate."""
    authority = Authority(repository.parent, "authority")
    server_pair, client_pair = (authority.sign(name) for name in ("server", "client"))
    certificates = ("--tls-cert", str(server_pair.cert), "--tls-key", str(server_pair.key))
    with ServerProcess(
        repository, *NAME, *certificates, "--tls-client-ca", str(authority.cert)
    ) as server:
        known = {
            "url": server.address,
            "root": str(authority.cert),
            "cert": str(client_pair.cert),
            "key": str(client_pair.key),
        }
        return [_run(folder, python, script, known) for script in SECURE]


def run_tests(folder: Path, python: str, repository: Path) -> list[Outcome]:
    """Triton's own tests of its server, where they ask no more than the examples' models."""
    outcomes = []
    for flags, scripts in TESTS.items():
        with (
            ServerProcess(repository, *NAME, *flags, "--grpc-port", "8001") as server,
            InferenceServerClient(server.address) as client,
        ):
            for script in scripts:
                outcomes.append(_run(folder, python, script, {}))
                if SHARED in flags:
                    client.unregister_system_shared_memory()  # what the script left
    return outcomes


def run_http_tests(folder: Path, python: str, repository: Path) -> list[Outcome]:
    """Those of them that ask over HTTP, or over either by the environment."""
    ports = ("--grpc-port", "8001", "--http-port", "8000")
    outcomes = []
    with (
        ServerProcess(repository, *NAME, SHARED, *ports) as server,
        InferenceServerClient(server.address) as client,
    ):
        for script in HTTP_TESTS:
            outcomes.append(_run(folder, python, script, {}, protocol="http"))
            client.unregister_system_shared_memory()
    return outcomes


def _run(
    folder: Path, python: str, script: Script, known: dict[str, str], protocol: str = "grpc"
) -> Outcome:
    path = folder.absolute() / script.path
    if not path.exists():
        return Outcome(str(script), "fail", "the folder has no such script")
    arguments = [word.format(**known) for word in script.arguments]
    try:
        ended = subprocess.run(  # noqa: S603 - the user named the folder and the interpreter
            [python, path, *arguments],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            cwd=path.parent,
            env=os.environ | {"CLIENT_TYPE": protocol},
        )
    except subprocess.TimeoutExpired:
        return Outcome(str(script), "fail", f"did not end in {LIMIT_S:.0f} s")
    if ended.returncode == 0:
        return Outcome(str(script), "pass")
    return Outcome(str(script), "fail", (ended.stdout + ended.stderr).strip()[-TOLD:])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("examples", type=Path)
    parser.add_argument("--server-tests", type=Path, metavar="QA")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--json", type=Path, help="where to write the outcomes")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        repository = Path(name) / "repository"
        write_examples(repository, DELAY_S)
        outcomes = run_secure(asked.examples, asked.python, repository)
        if asked.server_tests:
            outcomes += run_tests(asked.server_tests, asked.python, repository)
        # Last: the examples unload a model, and leave one out.
        outcomes += run_examples(asked.examples, asked.python, repository)
        if asked.server_tests:
            outcomes += run_http_tests(asked.server_tests, asked.python, repository)
    table = Table("script", "result", "reason")
    for outcome in outcomes:
        table.add_row(outcome.script, outcome.result, outcome.reason)
    Console().print(table)
    if asked.json:
        asked.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    return int(any(outcome.result == "fail" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
