"""Who may import what: the directions that keep policy pure and the server free of torch."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
POLICY = (
    "batching",
    "batch_limits",
    "cost_curve",
    "pace",
    "backlog",
    "queue_policy",
    "request",
    "statistics",
    "response_cache",
    "manifest",
    "precision",
    "errors",
    "settings",
    "datatypes",
    "signature",
    "tasks",
    "interface",
    "graph_checks",
    "warmup_samples",
    "model_config",
    "completion",
    "config_checks",
    "session_config",
    "reshape",
    "collate",
    "tokenizer",
    "task",
    "texts",
    "fill_mask",
    "entities",
    "answers",
    "features",
    "attention",
    "image_classification",
    "text_generation",
    "comparison",
    "cpus",
    "generation/sampling_params",
    "generation/history",
    "generation/sampling",
    "generation/detokenizer",
    "generation/sequence",
    "generation/speculation",
    "generation/kv_cache",
    "generation/scheduler",
    "generation/outlook",
    "generation/beam_search",
)
# Who may import a library, by the beginning of the module's path.
DOORS = {
    "onnxruntime": ("service/runtime.py",),
    "prometheus_client": (
        "service/metrics.py",
        "service/server_metrics.py",
        "service/generation/metrics.py",
    ),
    "tokenizers": ("service/tokenizer.py",),
    "PIL": ("service/images.py",),
    "opentelemetry": ("service/telemetry.py",),
    "grpc": (
        "service/rpc/",
        "service/access.py",
        "service/client.py",
        "service/in_flight.py",
        "service/cli.py",
        "service/cli_common.py",
        "service/cli_health.py",
        "service/cli_texts.py",
    ),
    "grpc_health": ("service/rpc/", "service/cli_health.py"),
    "grpc_reflection": ("service/rpc/",),
    "attendant": (
        "service/rpc/",
        "service/client.py",
        "service/cli_",
        "service/tables.py",
        "service/heat_map.py",
    ),
    "typer": ("service/cli.py", "service/cli_"),
    # Of commands that are asked for a picture.
    "matplotlib": ("service/fill_picture.py", "service/heat_map.py"),
}
HEAVY = ("torch", "transformers", "onnx", "onnxscript", "sklearn")


def imports_of(path: Path) -> Iterator[str]:
    """Every module that a file imports anywhere, also by `import_module("...")`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            module = node.module or ""
            yield from (module, *(f"{module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else ""
            if name == "import_module" or getattr(function, "id", "") == "__import__":
                yield str(node.args[0].value)


def imported(path: Path, *libraries: str) -> set[str]:
    """Which of the libraries, or of their modules, a file imports."""
    return {
        name
        for name in imports_of(path)
        if any(name == library or name.startswith(f"{library}.") for library in libraries)
    }


def sources(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found, folder
    return found


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", sources("service"), ids=relative)
def test_the_server_imports_nothing_that_trains_or_exports(path: Path) -> None:
    assert not imported(path, *HEAVY, "models", "export")


@pytest.mark.parametrize("path", sources("models"), ids=relative)
def test_models_import_neither_the_server_nor_export(path: Path) -> None:
    """The manifest is export's business; models are PyTorch only."""
    assert not imported(path, "service", "export", "onnxruntime", "grpc")


@pytest.mark.parametrize("path", sources("export"), ids=relative)
def test_export_shares_the_manifest_and_its_vocabulary_with_the_server_only(path: Path) -> None:
    """It writes what the server reads; it runs none of it."""
    assert not imported(path, "service.rpc", "service.engine", "service.app", "service.models")


@pytest.mark.parametrize("name", POLICY)
def test_policy_has_no_socket_thread_or_session(name: str) -> None:
    path = ROOT / "service" / f"{name}.py"
    assert not imported(
        path, "asyncio", "threading", "socket", "time", "grpc", "onnxruntime", "prometheus_client"
    )


@pytest.mark.parametrize("name", POLICY)
def test_policy_imports_policy_only(name: str) -> None:
    """What it imports of the server is policy too, so it stays pure at any depth."""
    path = ROOT / "service" / f"{name}.py"
    allowed = tuple(f"service.{policy}".replace("/", ".") for policy in POLICY)
    for module in imported(path, "service"):
        assert module == "service" or module.startswith(allowed)


@pytest.mark.parametrize("library", DOORS)
def test_every_library_has_one_door(library: str) -> None:
    for path in sources("service"):
        if imported(path, library):
            assert relative(path).startswith(DOORS[library]), f"{relative(path)} imports {library}"


def test_the_doors_are_in_use() -> None:
    """A door that nobody goes through would let the rule above rot."""
    for library, doors in DOORS.items():
        used = [path for path in sources("service") if imported(path, library)]
        assert used, library
        assert any(relative(path).startswith(doors) for path in used)


def modules_after(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after running `code`."""
    script = f"{code}\nimport sys; print(chr(10).join(sys.modules))"
    result = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    return set(result.stdout.split())


def test_serving_loads_no_torch() -> None:
    """Nor onnxruntime before it is asked for: a missing build must give a message."""
    loaded = modules_after("import service.app, service.cli")
    assert not loaded & {*HEAVY, "models", "export", "onnxruntime"}
    assert "service.rpc.server" in loaded


def test_the_command_line_loads_no_torch_until_a_command_needs_it() -> None:
    """`attendant serve` reads the other commands' flags, not their libraries."""
    code = """
import sys
from service.cli import main
sys.argv = ["attendant", "--version"]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""
    assert not modules_after(code) & {"torch", "transformers", "onnx", "onnxruntime"}
