"""Who may import what: the rooms of the house, and the libraries that few modules may use."""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("service", "models", "export", "commands", "demos", "loadtests")


# Of `__init__`, those that do something: tell a version, or end a program without its extra.
SPEAKING = ("service/__init__", "models/__init__", "demos/__init__", "loadtests/__init__")
SHIPPED = PACKAGES[:4]  # demos and load tests use what they like


@dataclass(frozen=True, slots=True)
class Room:
    """A folder, or a module that stands loose: what it may import, and what others may of it.

    A folder within a room may be a room of its own, which the outer one does not stand for.
    """

    below: str = ""  # rooms, with those of other packages by their whole path
    public: str = ""  # modules that other rooms may import; none listed: all of them


# An arrow of the import graph runs from a room to one of those that it names as below it.
ROOMS = {
    "service/errors": Room(),
    "service/records": Room(),
    "service/families": Room(),
    "service/contract": Room("errors families"),
    "service/settings": Room("errors families contract"),
    "service/runtime": Room("errors contract"),
    "service/calls": Room("errors grammars"),
    "service/text": Room("errors families calls contract runtime"),
    "service/grammars": Room("errors runtime"),
    "service/observe": Room(
        "errors records settings",
        "building heartbeat live logs metrics observers server statistics telemetry trace_files"
        " watchdog",
    ),
    "service/batching": Room(
        "errors records contract runtime", "collate engine limits queue request"
    ),
    "service/generation/text_stream": Room(),
    "service/generation/adapter_places": Room("contract"),
    "service/generation/choosing": Room("errors families grammars calls"),
    "service/generation/sequence": Room(
        "families records contract grammars calls generation/choosing generation/text_stream"
    ),
    "service/generation/stream": Room("errors generation/choosing generation/sequence"),
    "service/generation/cache": Room("generation/sequence"),
    "service/generation/steps": Room(
        "errors records grammars generation/adapter_places generation/choosing generation/sequence"
        " generation/stream generation/cache",
        "packed_scheduler scheduler slot_scheduler step",
    ),
    "service/generation/decoders": Room(
        "errors contract runtime generation/adapter_places generation/choosing generation/cache"
        " generation/steps",
        "adapter_buffers decoder decoder_interface encoder_decoder opening paged_decoder shape",
    ),
    "service/generation": Room(
        "errors records contract runtime generation/choosing generation/sequence"
        " generation/stream generation/decoders generation/steps",
        "engine inbox",
    ),
    "service/serving/tasks": Room("errors records contract text calls"),
    "service/serving": Room(
        "errors families records contract settings runtime text grammars calls observe batching"
        " generation"
        " generation/choosing generation/sequence generation/stream generation/decoders"
        " serving/tasks"
    ),
    "service/repository": Room(
        "errors families records contract settings runtime text calls observe batching generation"
        " generation/choosing generation/sequence generation/decoders generation/steps serving"
        " serving/tasks",
        "loading repository version",
    ),
    # Of the engines, what a front calls knows the names of what it is given.
    "service/api": Room(
        "errors families records contract settings runtime text grammars calls observe"
        " generation/choosing generation/sequence generation/stream serving serving/tasks"
        " repository"
    ),
    "service/rpc": Room(
        "errors records settings observe serving api",
        "health ports server",
    ),
    # No front knows of another.
    "service/http/numbers": Room(),
    "service/http/status": Room("errors api"),
    "service/http/wire": Room(
        "errors settings api http/status",
        "compression connection json_faults json_parts message_schemas plain tls",
    ),
    "service/http/body": Room("errors settings api http/numbers http/status http/wire"),
    "service/http/request": Room(
        "errors records settings calls serving api http/status http/wire http/body"
    ),
    "service/http/messages": Room("http/status http/wire http/body"),
    "service/http/routes": Room("http/status http/request"),
    "service/http/stream": Room("http/status http/request"),
    "service/http/shared": Room(
        "errors settings grammars calls api http/numbers http/status http/wire http/request"
        " http/routes"
    ),
    "service/http/kserve": Room(
        "errors contract settings calls repository api http/status http/wire http/body"
        " http/messages http/request http/routes http/stream",
        "metadata routes",
    ),
    "service/http/openai": Room(
        "errors settings families grammars calls api http/numbers http/status http/request"
        " http/routes http/stream http/shared",
        "adapters chat chat_fields chat_plan completions embeddings tokens tool_calls",
    ),
    "service/http/batches/lines": Room(),
    "service/http/batches": Room(
        "errors settings runtime http/status http/request http/routes http/shared"
        " http/batches/lines",
        "routes runner store",
    ),
    "service/http/agents": Room(
        "errors calls http/numbers http/status http/request http/routes http/stream http/shared"
        " http/openai",
        "messages responses",
    ),
    "service/http/huggingface": Room(
        "contract grammars calls repository http/numbers http/status http/wire http/request"
        " http/routes http/stream http/shared",
        "routes",
    ),
    "service/http/retrieval": Room(
        "errors calls repository http/numbers http/status http/request http/routes http/shared"
    ),
    "service/http": Room(
        "errors settings repository api http/numbers http/status http/wire http/body http/request"
        " http/messages http/routes http/stream http/shared http/kserve http/openai http/agents"
        " http/batches"
        " http/huggingface http/retrieval",
        "server",
    ),
    "service/open_ports": Room("settings"),
    "service/descriptors": Room("errors settings"),
    "service/team": Room("errors api serving", "siblings merging"),
    "service/app": Room(
        "errors settings runtime observe repository api rpc http open_ports descriptors team"
    ),
    "models/errors": Room(),
    "models/choices": Room(),
    "models/remarks": Room(),
    "models/json_files": Room("errors"),
    "models/settings": Room("errors"),
    "models/writing": Room("errors"),
    "models/data": Room("errors json_files remarks"),
    "models/data/generated": Room("errors data"),
    "models/networks": Room("errors choices data"),
    "models/checkpoints": Room("errors choices json_files remarks writing data networks"),
    "models/training": Room("errors settings writing data"),
    "models/recipes": Room(
        "errors remarks choices settings data data/generated networks checkpoints training"
    ),
    "export/errors": Room(),
    "export/settings": Room("errors models/settings models/data service/contract"),
    "export/general_examples": Room("service/contract"),
    "export/examples": Room("errors settings general_examples models service/contract"),
    "export/adopted": Room(
        "errors graphs models service/errors service/contract service/runtime"
        " service/generation/decoders"
    ),
    "export/graphs": Room(
        "errors settings models service/contract service/runtime service/generation/decoders"
    ),
    "export/precision": Room(
        "errors graphs models service/contract/tensors service/generation/decoders/decoder"
        " service/generation/decoders/shape"
    ),
    "export/checks": Room(
        "errors settings graphs models service/contract service/runtime service/batching/collate"
        " service/generation/decoders service/generation/choosing/step_logits"
        " service/serving/tasks/answers service/serving/tasks/entities service/serving/tasks/task"
    ),
    "export/certificates": Room(
        "adopted checks models service/errors service/calls/conversation service/text"
        " service/contract service/runtime/session service/generation/decoders/decoder"
    ),
    "export/writer": Room(
        "errors settings graphs models service/errors service/contract service/serving/tasks/table"
        " service/generation/decoders service/text"
    ),
    "export/recipes": Room(
        "errors settings examples general_examples graphs precision checks writer models"
        " service/errors"
        " service/contract service/runtime service/text service/batching/collate"
    ),
    "export/adapters": Room("errors settings writer models service/contract/adapter"),
    "export/exporter": Room("errors settings graphs recipes writer models service/contract"),
    "commands/pictures": Room(),
    "commands/flags": Room(),
    "commands/columns": Room("flags models/data"),
    "commands/remarks": Room("pictures models/remarks"),
    "commands/errors": Room(),
    "commands/ask/lines": Room(),
    "commands/ask/message_json": Room("ask/client"),
    "commands/ask/progress": Room("errors"),
    "commands/ask/client": Room(
        "service", "access client health http_transport methods refusal tensor_client"
    ),
    "commands/ask/in_flight": Room("ask/lines ask/client"),
    "commands/ask/verbs": Room(),
    "commands/ask/served": Room("ask/client ask/verbs"),
    "commands/ask/options": Room("errors flags pictures ask/client ask/served service"),
    "commands/ask/files": Room("flags ask/options service/errors"),
    "commands/ask/remedies": Room("ask/client ask/options ask/verbs service/calls"),
    "commands/ask/asked": Room("ask/client ask/files ask/message_json ask/options"),
    "commands/ask/shown": Room("ask/asked ask/lines ask/message_json ask/options service"),
    "commands/ask/bulk": Room(
        "errors ask/asked ask/files ask/lines ask/message_json ask/progress ask/client"
        " ask/in_flight ask/options service",
        "answering batch_lines index job",
    ),
    "commands/ask": Room(
        "errors flags pictures ask/asked ask/files ask/lines ask/message_json ask/progress"
        " ask/client ask/in_flight ask/options ask/remedies ask/shown ask/bulk ask/verbs service"
    ),
    "commands/train": Room("errors flags columns help pictures remarks models"),
    "commands/folders": Room(
        "errors flags remarks train ask/client ask/options models export service/contract"
        " service/settings service/calls service/batching/collate service/runtime/cpus"
    ),
    "commands/export": Room(
        "errors remarks flags columns export_runs models/errors export/errors export/settings"
    ),
    "commands/import_adapter": Room(
        "errors flags models/errors export/errors export/settings export/adapters"
    ),
    "commands/export_runs": Room("models export service/contract"),
    "commands/processes": Room("errors service", "supervisor"),
    "commands/serve": Room(
        "ask ask/options errors flags folders processes train/messages"
        " models/recipes/import_settings service"
    ),
    "commands/variables": Room("errors"),
    "commands/missing": Room(),
    "commands/help": Room("variables help_panels"),
    "commands/help_panels": Room(),
    "commands/main": Room("ask ask/client ask/verbs errors help service/errors"),
    "commands/__main__": Room("ask/client main service"),
    "demos": Room("commands models export service/calls service/errors service/observe"),
    "loadtests/load": Room("service models"),
    "loadtests/measure": Room("load service models export commands/main"),
    "loadtests/compare": Room("load measure service models export"),
    "loadtests/gpu": Room("load compare measure service models export commands"),
    "loadtests/pages": Room("measure"),
}
# Who may import a library, by the beginning of the module's path.
ASKING = "commands/ask/"
OWNERS = {
    "onnxruntime": ("service/runtime/session.py",),
    "tokenizers": (
        "service/text/tokenizer.py",
        "service/text/token_bytes.py",
        "service/text/tokenizer_cost.py",
        "models/",
        "export/",
        "commands/train/",
    ),
    "PIL": ("service/runtime/images.py",),
    "llguidance": tuple(
        f"service/grammars/{name}.py" for name in ("compiler", "source_text", "worker")
    ),
    "prometheus_client": (
        "service/observe/metrics.py",
        "service/observe/generation.py",
        "service/observe/server.py",
        "service/team/merging.py",
        "commands/processes/supervisor.py",
    ),
    "opentelemetry": ("service/observe/telemetry.py",),
    "grpc": (
        "service/rpc/",
        "service/team/siblings.py",
        *(f"{ASKING}client/{name}.py" for name in ("access", "grpc_transport", "health")),
    ),
    "grpc_health": ("service/rpc/", f"{ASKING}client/health.py"),
    "grpc_reflection": ("service/rpc/",),
    "attendant": (
        "service/api/services.py",
        "service/api/generation_messages.py",
        f"{ASKING}client/methods.py",
    ),
    "uvicorn": ("service/http/wire/connection.py",),
    "torch.onnx._internal": ("export/graphs/operators.py",),
    "httptools": ("service/http/",),
    "msgspec": (
        f"{ASKING}bulk/batch_lines.py",
        *("service/http/", "service/calls/", "service/api/codec.py", "service/api/generation.py"),
        *(f"service/serving/tasks/{name}.py" for name in ("entities", "fill_mask")),
    ),
    "jinja2": ("service/text/template_worker.py",),
    "typer": ("commands/",),
    "urllib3": (f"{ASKING}client/http_transport.py",),
    "rich": (
        "commands/",
        "service/observe/logs.py",
        *(f"models/recipes/{name}.py" for name in ("everyday_fills", "senses")),
    ),
    "pyarrow": (f"{ASKING}bulk/parquet_files.py",),
    "ray": (f"{ASKING}bulk/ray_job.py",),
    "matplotlib": (
        "commands/pictures.py",
        "commands/ask/shown/heat_map.py",
        "commands/ask/shown/fill_picture.py",
        "commands/train/",
        "models/data/generated/digit_images.py",  # writes PNG files
    ),
}
HEAVY = ("torch", "transformers", "onnx", "onnxscript", "sklearn")
# Computes and decides, without socket, thread, clock or session; of the server it imports more of
# the same, so it is so at any depth.
POLICY = (
    *(f"calls/{name}" for name in ("answers", "conversation", "features", "images", "models")),
    *(f"calls/{name}" for name in ("reading", "record", "sampling", "sampling_values")),
    *("calls/generation", "calls/methods", "calls/texts", "calls/tokens"),
    *(
        f"families/{name}"
        for name in ("call_forms", "chosen", "marks", "thought_budget", "thoughts")
    ),
    "contract/adapter",
    "generation/decoders/adapter_buffers",
    "generation/adapter_places",
    "batching/backlog",
    "batching/collate",
    "batching/limits",
    "batching/next_batch",
    "batching/queue",
    "batching/request",
    "contract/accelerators",
    "contract/config_completion",
    "grammars/form",
    "grammars/number_bounds",
    "grammars/schema_checks",
    "grammars/schema_faults",
    "grammars/schema_places",
    "contract/config_checks",
    "contract/embedder_use",
    "contract/interface",
    "contract/image_input",
    "contract/manifest",
    "contract/model_config",
    "contract/option_rules",
    "contract/queue_policies",
    "contract/precision",
    "contract/prompt_reading",
    "contract/tensors",
    "contract/session_tuning",
    "contract/warmup_samples",
    "errors",
    "generation/steps/beams",
    "generation/cache/paged_cache",
    "generation/decoders/decoder_interface",
    "grammars/state",
    "generation/cache/kv_cache",
    "generation/choosing/top_candidates",
    "generation/wait_estimator",
    "generation/steps/packed_scheduler",
    "generation/choosing/vocabulary",
    "generation/cache/prefix_store",
    "generation/choosing/sampler_state",
    "generation/choosing/sampling",
    "generation/steps/scheduler",
    "generation/sequence",
    "generation/steps/slot_scheduler",
    "generation/steps/speculation",
    "generation/decoders/step_graphs",
    "generation/choosing/step_logits",
    "generation/text_stream",
    "observe/statistics",
    "records",
    "repository/graph_checks",
    "repository/limits",
    "runtime/assignment",
    "runtime/cost",
    "runtime/cpus",
    "runtime/cuda",
    "runtime/device_errors",
    "text/word_cache",
    "runtime/pace",
    "text/pair_tokenizer",
    "text/places",
    "text/special_texts",
    "text/token_bytes",
    "text/tokenizer",
    "text/tokenizer_cost",
    "serving/response_cache",
    "serving/tasks/answers",
    "serving/tasks/attention",
    "serving/tasks/entities",
    "serving/tasks/embedding_kinds",
    "serving/tasks/embedding_options",
    "serving/tasks/features",
    "serving/tasks/fill_mask",
    "serving/tasks/image_attention",
    "serving/tasks/image_classification",
    "serving/tasks/pair_scoring",
    "serving/tasks/table",
    "serving/tasks/task",
    "serving/tasks/text_generation",
    "serving/tasks/texts",
    "settings",
)
PURE = (
    *(f"service/{name}" for name in POLICY),
    "service/http/batches/lines",
    "service/http/batches/records",
    "commands/ask/shown/comparison",
)


@cache
def imports_of(path: Path) -> tuple[str, ...]:
    """Every module that a file imports, also by `import_module("...")`."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names]
            found += [module, *names]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else ""
            if name == "import_module" or getattr(function, "id", "") == "__import__":
                found.append(str(node.args[0].value))
    return tuple(found)


def imported(path: Path, *libraries: str) -> set[str]:
    """Which of the libraries, or of their modules, a file imports."""
    return {
        name
        for name in imports_of(path)
        if any(name == library or name.startswith(f"{library}.") for library in libraries)
    }


def sources(*folders: str) -> list[Path]:
    found = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    assert found, folders
    return found


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def room_of(module: str) -> str:
    """The room that a module, named by its path without suffix, stands in; none for a package."""
    names = [name for name in ROOMS if module == name or module.startswith(f"{name}/")]
    return max(names, key=len, default="")


def arrows_of(path: Path) -> Iterator[str]:
    """The house's own modules that a file imports, by their paths without suffix."""
    for name in imports_of(path):
        module = name.replace(".", "/")
        if name.partition(".")[0] in PACKAGES and (ROOT / f"{module}.py").is_file():
            yield module


def allowed_from(room: str) -> list[str]:
    package = room.partition("/")[0]
    names = ROOMS[room].below.split()
    return [name if name.partition("/")[0] in PACKAGES else f"{package}/{name}" for name in names]


def is_below(room: str, target: str) -> bool:
    """Whether a room may import a module: of a room that it names, or of a package or module."""
    return any(
        target == name or (target.startswith(f"{name}/") and room_of(target) == name)
        if name in ROOMS
        else target == name or target.startswith(f"{name}/")
        for name in allowed_from(room)
    )


@pytest.mark.parametrize("path", sources(*PACKAGES), ids=relative)
def test_every_module_stands_in_a_room_and_imports_what_is_below_it(path: Path) -> None:
    module = relative(path).removesuffix(".py")
    room = room_of(module)
    if path.name == "__init__.py":
        body = [node for node in ast.parse(path.read_text()).body if not _is_sentence(node)]
        assert not body or module in SPEAKING, "re-exports nothing"
        return
    assert room, f"{module} stands in no room"
    for target in arrows_of(path):
        other = room_of(target)
        if other == room:
            continue
        assert is_below(room, target), f"{module} imports {target}, which is not below {room}"
        public = ROOMS[other].public.split()
        if public and target.partition("/")[0] == room.partition("/")[0]:
            name = target.removeprefix(f"{other}/")
            assert name in public, f"{module} imports {target}, which is not public in {other}"


def _is_sentence(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def test_no_room_is_below_itself() -> None:
    table = {room: {name for name in allowed_from(room) if name in ROOMS} for room in ROOMS}
    assert not circle_in(table)


@cache
def arrows() -> dict[str, frozenset[str]]:
    """What each module imports of the house: at once, within a function, or for types alone."""
    return {
        relative(path).removesuffix(".py"): frozenset(arrows_of(path))
        for path in sources(*PACKAGES)
        if path.name != "__init__.py"
    }


def within(folder: str, arrows: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    """The arrows between the folders and modules that stand in a folder; each is a room here."""
    graph: dict[str, set[str]] = {}
    for module, targets in arrows.items():
        if module.startswith(folder):
            room = module.removeprefix(folder).partition("/")[0]
            inside = [name.removeprefix(folder) for name in targets if name.startswith(folder)]
            graph.setdefault(room, set()).update({name.partition("/")[0] for name in inside})
            graph[room].discard(room)
    return graph


def circle_in(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """Rooms that import each other, the first one again at the end; none where all arrows fall."""
    done: set[str] = set()

    def visit(room: str, above: tuple[str, ...]) -> list[str]:
        if room in above:
            return [*above[above.index(room) :], room]
        if room not in done:
            for target in sorted(graph.get(room, ())):
                if circle := visit(target, (*above, room)):
                    return circle
            done.add(room)
        return []

    return next((circle for room in sorted(graph) if (circle := visit(room, ()))), [])


def num_floors(graph: Mapping[str, Iterable[str]]) -> int:
    """Floors of rooms without a circle: a room stands above all that it imports."""
    floors: dict[str, int] = {}

    def floor(room: str) -> int:
        if room not in floors:
            floors[room] = 1 + max(map(floor, graph.get(room, ())), default=0)
        return floors[room]

    return max(map(floor, graph), default=0)


# The whole house, and each folder of it that has modules or rooms.
MAX_FLOORS = 11  # of one folder
FOLDERS = sorted(
    {f"{parent}/" for path in sources(*PACKAGES) for parent in Path(relative(path)).parents} | {""}
)


@pytest.mark.parametrize("folder", [name for name in FOLDERS if name != "./"])
def test_imports_run_down_in_every_folder(folder: str) -> None:
    """Those for types alone and those within functions, too, between folders and modules."""
    graph = within(folder, arrows())
    assert not circle_in(graph)
    assert num_floors(graph) <= MAX_FLOORS


# An import that no folder has, and the folder in which it would run up.
UPWARDS = {
    "service/": ("service/runtime/session", "service/generation/engine"),
    "service/generation/": ("service/generation/steps/step", "service/generation/decoders/decoder"),
    "service/http/": ("service/http/wire/plain", "service/http/front"),
    "commands/": ("commands/flags", "commands/main"),
    "commands/ask/": ("commands/ask/client/client", "commands/ask/shown/tables"),
    "": ("models/settings", "commands/main"),
}


@pytest.mark.parametrize("folder", UPWARDS)
def test_an_import_upwards_is_found(folder: str) -> None:
    lower, higher = UPWARDS[folder]
    circle = circle_in(within(folder, {**arrows(), lower: {*arrows()[lower], higher}}))
    assert {path.removeprefix(folder).partition("/")[0] for path in (lower, higher)} <= set(circle)
    assert circle[0] == circle[-1]


@pytest.mark.parametrize(
    ("room", "target"),
    [
        ("service/http/wire", "service/http/front"),
        ("service/http/openai", "service/http/huggingface/texts"),
        ("service/http/retrieval", "service/http/openai/embeddings"),
        ("service/http/retrieval", "service/http/huggingface/texts"),
        ("service/generation/decoders", "service/generation/engine"),
        ("service/api", "service/generation/engine"),
        ("service/text", "service/generation/choosing/vocabulary"),
        ("commands/ask/client", "commands/ask/shown/tables"),
    ],
)
def test_the_table_refuses_an_import_upwards(room: str, target: str) -> None:
    assert not is_below(room, target)


@pytest.mark.parametrize("room", ROOMS)
def test_the_table_says_no_more_than_there_is(room: str) -> None:
    """Each room exists, and each public module of it is used by another room."""
    assert (ROOT / room).is_dir() or (ROOT / f"{room}.py").is_file()
    used = {
        target
        for module, targets in arrows().items()
        if room_of(module) != room
        for target in targets
    }
    assert {f"{room}/{name}" for name in ROOMS[room].public.split()} <= used


@pytest.mark.parametrize("path", sources("service"), ids=relative)
def test_the_server_imports_nothing_that_trains_or_exports(path: Path) -> None:
    assert not imported(path, *HEAVY, "models", "export", "commands")


@pytest.mark.parametrize("path", sources("models"), ids=relative)
def test_models_import_neither_the_server_nor_export(path: Path) -> None:
    """The manifest is export's business; models are PyTorch only."""
    assert not imported(path, "service", "export", "commands", "onnxruntime", "grpc")


@pytest.mark.parametrize("name", PURE)
def test_policy_has_no_socket_thread_or_session(name: str) -> None:
    path = ROOT / f"{name}.py"
    assert not imported(
        path, "asyncio", "threading", "socket", "time", "grpc", "onnxruntime", "prometheus_client"
    )


@pytest.mark.parametrize("name", PURE)
def test_policy_imports_policy_only(name: str) -> None:
    assert set(arrows_of(ROOT / f"{name}.py")) <= set(PURE)


@pytest.mark.parametrize("library", OWNERS)
def test_every_library_has_its_owners(library: str) -> None:
    users = {relative(path) for path in sources(*SHIPPED) if imported(path, library)}
    outside = {user for user in users if not user.startswith(OWNERS[library])}
    assert not outside, f"import {library}"
    for owner in OWNERS[library]:
        assert any(user.startswith(owner) for user in users), f"{owner} does not import {library}"


# Kinds that say themselves what they take and do: nobody outside their room tells them apart.
KINDS = {
    "service/serving/": {
        *("TextModel", "ImageModel", "GenerativeModel", "AdaptedModel", "SequenceModel"),
        *("TensorModel", "BatchedModel"),
    },
    "service/generation/decoders/": {
        *("Decoder", "SlotDecoder", "PagedDecoder"),
        *("OnnxDecoder", "OnnxPagedDecoder", "EncoderDecoder"),
    },
    "service/runtime/": {"Memory", "HostMemory", "DeviceMemory"},
    "service/generation/cache/": {"KVCache", "PagedCache"},
    "service/generation/steps/": {"SlotScheduler", "PackedScheduler", "SlotPlan", "PackedPlan"},
}


def told_apart(code: str) -> set[str]:
    """Names of classes that a module asks for by `isinstance`."""
    return {
        getattr(name, "id", "") or getattr(name, "attr", "")
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance"
        for name in ast.walk(node.args[1])
        if isinstance(name, ast.Name | ast.Attribute)
    }


@pytest.mark.parametrize("path", sources("service"), ids=relative)
def test_kinds_are_told_apart_in_their_own_room_alone(path: Path) -> None:
    """Of models, decoders, memories, caches and schedulers."""
    asked = told_apart(path.read_text())
    for room, kinds in KINDS.items():
        assert relative(path).startswith(room) or not asked & kinds


def test_every_kind_is_a_class_of_its_room() -> None:
    for room, kinds in KINDS.items():
        trees = [ast.parse(path.read_text()) for path in sources(room)]
        assert kinds <= {n.name for tree in trees for n in tree.body if isinstance(n, ast.ClassDef)}


def test_a_kind_that_is_told_apart_is_found() -> None:
    code = (
        "isinstance(model, TextModel | ImageModel) or isinstance(each, (Other, room.AdaptedModel))"
    )
    assert {"TextModel", "ImageModel", "Other", "AdaptedModel"} <= told_apart(code)


def modules_after(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after running `code`."""
    script = f"{code}\nimport sys; print(chr(10).join(sys.modules))"
    result = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    return set(result.stdout.split())


# Modules of settings, which `attendant serve` makes the flags of its folders of.
FLAGS_OF_FOLDERS = ("choices", "errors", "recipes", "recipes.import_settings", "settings")


def test_serving_loads_no_torch() -> None:
    """Nor onnxruntime before it is asked for: a missing build must give a message.

    Nor the library of grammars before a model needs it, which takes 40 ms.
    """
    loaded = modules_after("import service.app, commands.main, commands.serve")
    assert not loaded & {*HEAVY, "export", "onnxruntime", "llguidance"}
    of_models = {name for name in loaded if name.startswith("models.")}
    assert of_models <= {f"models.{name}" for name in FLAGS_OF_FOLDERS}
    assert "service.rpc.server" in loaded


def test_every_command_is_imported_without_the_libraries_of_training() -> None:
    """The image of the server has none of them, and says so when a command needs one."""
    code = f"""
import sys
for name in {HEAVY}: sys.modules[name] = None
import typer
from commands.main import COMMANDS, app
group = typer.main.get_group(app)
for name in COMMANDS: assert group.get_command(None, name) is not None, name
"""
    assert not modules_after(code) & {"torch.nn", "onnxruntime"}


LARGE = {"grpc", "google.protobuf", "numpy", "msgspec", "asyncio"}


@pytest.mark.parametrize(
    ("program", "unused"),
    [
        ("sys.argv[1:] = ['--version']; main()", LARGE | {"typer", "rich", "commands.main"}),
        ("completed('attendant ')", LARGE | {"rich", "pydantic"}),
        ("completed('attendant -')", LARGE | {"rich", "pydantic"}),
    ],
)
def test_the_command_starts_without_what_it_does_not_use(program: str, unused: set[str]) -> None:
    """A shell waits for both, of which each of these libraries would be a third or more."""
    code = f"""
import os, sys
from commands.__main__ import main
def completed(line):
    os.environ |= {{"_ATTENDANT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": "1"}}
    sys.argv[:] = ["attendant"]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
{program}
"""
    loaded = modules_after(code)
    assert not loaded & unused
    assert not [
        name
        for name in loaded - {"commands.ask.verbs"}
        if name.startswith("commands.ask.") and "client" not in name
    ]


@pytest.mark.parametrize("name", ["embed", "rerank", "generate", "models"])
def test_the_flags_of_a_command_are_read_without_numpy_and_grpc(name: str) -> None:
    """They are read for each TAB."""
    code = f"""
import typer
from commands.main import app
assert typer.main.get_group(app).get_command(None, {name!r}) is not None
"""
    assert not modules_after(code) & {"grpc", "numpy", "asyncio", "commands.ask.bulk.job"}


@pytest.mark.parametrize("name", ["Classify", "ClassifyTokens", "Generate", "ListModels"])
def test_a_method_without_rows_of_numbers_is_asked_without_numpy(name: str) -> None:
    """Its import would be a third of such a command's start."""
    code = f"""
from commands.ask.client.methods import method_named
method_named({name!r})
"""
    assert "numpy" not in modules_after(code)


def test_the_command_line_loads_no_torch_until_a_command_needs_it() -> None:
    """`attendant serve` imports no other command, nor its libraries."""
    code = """
import sys
from commands.main import main
sys.argv = ["attendant", "--version"]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""
    assert not modules_after(code) & {"torch", "transformers", "onnx", "onnxruntime", "models"}
