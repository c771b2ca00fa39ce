"""Put small faults into the policy modules, one at a time, and count those that the tests find.

    python -m tests.mutants --sample 20            every policy module, 20 mutants of each
    python -m tests.mutants --sample all batching  every mutant of one module

`mutmut` makes the mutants, in a copy of the tree under build/, and runs the tests that reach the
function of each. What it lacks is here: a seeded sample of each module, a bound on the time, a
table, and the least share that must be found.

Two kinds of mutants are left out of the sample. Those that change no more than the text of an
error, of an assertion or of a `repr`, as no test reads every word, or whether `zip` asserts that
its arguments are of one length. And those that change nothing, each of which is in
tests/mutants_equivalent.toml with the reason.
"""

import argparse
import ast
import copy
import difflib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from tests.test_imports import POLICY

console = Console(highlight=False, markup=False, soft_wrap=True)
ROOT = Path(__file__).parents[1]
COPY = ROOT / "build" / "mutants"
EQUIVALENT = ROOT / "tests" / "mutants_equivalent.toml"
LEAST_SHARE = 0.95
REPORT_INTERVAL_S = 15.0
SEED = "attendant"
FIRST = "service.runtime.cpus.x_available_cpus__mutmut_1"
# The tests of each policy module and of what stands directly on it, in seconds rather than minutes.
TESTS = (
    "api/test_tensors",
    "families/test_chosen",
    "families/test_thought_budget",
    "families/test_thoughts",
    "calls/test_answers",
    "calls/test_conversation",
    "batching/test_background",
    "batching/test_backlog",
    "batching/test_collate",
    "batching/test_engine",
    "batching/test_queue",
    "batching/test_simulation",
    "contract/test_adapter",
    "contract/test_embedder_use",
    "contract/test_config_completion",
    "contract/test_config_checks",
    "contract/test_config_fields",
    "contract/test_datatypes",
    "grammars/test_form",
    "contract/test_manifest",
    "contract/test_model_config",
    "grammars/test_number_bounds",
    "grammars/test_schema_faults",
    "grammars/test_schema_places",
    "contract/test_option_rules",
    "contract/test_optional_inputs",
    "contract/test_precision",
    "contract/test_prompt_reading",
    "contract/test_reshape",
    "contract/test_session_tuning",
    "contract/test_warmup_samples",
    "generation/steps/test_beam_steps",
    "generation/steps/test_beams",
    "generation/decoders/test_adapter_buffers",
    "generation/test_adapters",
    "generation/test_engine",
    "generation/test_engine_failures",
    "generation/test_engine_leaving",
    "generation/test_engine_overload",
    "grammars/test_state",
    "generation/test_grammars",
    "generation/cache/test_kv_cache",
    "generation/choosing/test_large_vocabulary",
    "generation/choosing/test_top_candidates",
    "generation/test_wait_estimator",
    "generation/steps/test_packed_scheduler",
    "generation/steps/test_packed_simulation",
    "generation/decoders/test_paged_decoder",
    "calls/test_sampling",
    "generation/cache/test_prefix_store",
    "generation/choosing/test_sampling",
    "generation/test_simulation",
    "generation/steps/test_slot_scheduler",
    "generation/steps/test_speculation",
    "generation/choosing/test_step_logits",
    "generation/test_text_stream",
    "observe/test_metrics",
    "observe/test_statistics",
    "repository/test_graph_checks",
    "repository/test_limits",
    "repository/test_plan",
    "repository/test_warmup",
    "rpc/test_embedding_kinds",
    "rpc/test_embedding_options",
    "rpc/test_features",
    "rpc/test_fill_mask",
    "rpc/test_pair_scoring",
    "rpc/test_reading",
    "rpc/test_text",
    "rpc/test_typed_path",
    "rpc/test_vision",
    "runtime/test_assignment",
    "runtime/test_cost",
    "runtime/test_cpus",
    "runtime/test_cuda",
    "runtime/test_device_errors",
    "runtime/test_images",
    "text/test_word_cache",
    "text/test_pair_tokenizer",
    "text/test_special_texts",
    "text/test_token_bytes",
    "text/test_tokenizer",
    "text/test_tokenizer_cost",
    "serving/tasks/test_answers",
    "serving/tasks/test_attention",
    "serving/tasks/test_embedding_kinds",
    "serving/tasks/test_entities",
    "serving/tasks/test_fills",
    "serving/tasks/test_table",
    "serving/tasks/test_texts",
    "serving/test_models",
    "serving/test_response_cache",
    "test_engines",
    "test_errors",
    "test_overload_simulation",
    "test_records",
    "test_settings",
)
# Of others, which take long to import.
PRELOADED = (
    "_hypothesis_pytestplugin",
    "anyio.pytest_plugin",
    "grpc",
    "hypothesis.extra.numpy",
    "numpy",
    "onnx",
    "pytest",
    "pytest_asyncio.plugin",
    "pytest_timeout",
    "torch",
    "tritonclient.grpc",
)
# Statements about the simulations themselves, which hold for all of their seeds only; three times
# the capacity, which takes long and fails where twice the capacity does; and a bound on the
# processor's time, as functions that can be exchanged for their mutants are called more slowly.
DESELECTED = (
    "tests/service/grammars/test_number_bounds.py::test_bounds_that_meet_in_many_ways_cost_little",
    "tests/service/test_overload_simulation.py::test_goodput_under_overload_stays_at_capacity[3-",
    "tests/service/batching/test_simulation.py::"
    "test_the_simulation_meets_refusals_deadlines_and_timeouts",
    "tests/service/generation/test_simulation.py::test_the_simulation_meets_what_it_is_about",
    "tests/service/generation/steps/test_packed_simulation.py::test_the_simulation_meets_what_it_is_about",
)
NUM_SEEDS = 30  # of a simulation, instead of 200 and 300: a mutant that survives runs them all
SETTINGS = f"""
[tool.mutmut]
debug = true # or the log does not say which test failed without a mutant
source_paths = ["service"]
process_isolation = "forkserver" # gRPC, which some tests start, does not survive a fork
# A child imports our modules itself: what they call as they are imported is mutated as well.
forkserver_warmup = "import"
preload_modules_file = "preload.txt"
only_mutate = {json.dumps([f"service/{name}.py" for name in POLICY])}
also_copy = ["commands", "demos", "deploy", "docs", "export", "loadtests", "models", "protos"]
# Its plugin for unraisable exceptions collects all garbage at every end of pytest.
pytest_add_cli_args = {
    json.dumps(
        [
            "--quiet",
            "--timeout=60",
            "--hypothesis-profile=mutants",
            "-pno:cacheprovider",
            "-pno:unraisableexception",
            "-ptests.mutants_plugin",
            *(f"--deselect={test}" for test in DESELECTED),
        ]
    )
}
pytest_add_cli_args_test_selection = {json.dumps([f"tests/service/{name}.py" for name in TESTS])}
"""
# What mutmut keeps as the result of a mutant: the exit status of pytest, or of the signal's end.
SURVIVED = 0
NO_TESTS = (5, 33)
UNTRIED = (None, 2)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: mutmut's name for it, the function, and the lines that differ."""

    name: str
    module: str
    function: str
    before: str
    after: str
    changes_text_only: bool

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.module, self.function, self.before, self.after


class WithoutTexts(ast.NodeTransformer):
    """Takes what errors and assertions say out of a tree, and the assertion that `zip` makes."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        if isinstance(node.func, ast.Name) and node.func.id == "zip":
            node.keywords = [word for word in node.keywords if word.arg != "strict"]
        self.generic_visit(node)
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        if isinstance(node.exc, ast.Call):
            node.exc = node.exc.func
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        node.msg = None
        return node


def changes_text_only(original: Function, mutant: Function, name: str) -> bool:
    """Whether two functions differ in no more than an error, assertion or `repr` says."""
    if name.endswith(("__repr__", "__str__")):
        return True
    trees = [WithoutTexts().visit(copy.deepcopy(tree)).body for tree in (original, mutant)]
    one, other = ([ast.dump(statement) for statement in tree] for tree in trees)
    return one == other


def changed_lines(original: Function, mutant: Function) -> tuple[str, str]:
    """The lines of the original that are no more, and those that are instead."""
    one, other = (
        [line.strip() for statement in tree.body for line in ast.unparse(statement).splitlines()]
        for tree in (original, mutant)
    )
    lines = list(difflib.ndiff(one, other))
    return tuple(  # type: ignore[return-value] # two of them
        "\n".join(line[2:] for line in lines if line.startswith(sign)) for sign in ("- ", "+ ")
    )


def functions_of(source: str) -> dict[str, Function]:
    nodes = ast.walk(ast.parse(source))
    return {
        node.name: node
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and "__mutmut_" in node.name
    }


def mutants_of(module: str, source: str, names: Iterable[str]) -> list[Mutant]:
    """The mutants of a module, read from the file that mutmut wrote."""
    functions = functions_of(source)
    mutants = []
    for name in names:
        mangled = name.rpartition(".")[2]
        function = mangled.rpartition("__mutmut_")[0]
        original, mutant = functions[f"{function}__mutmut_orig"], functions[mangled]
        # `xǁBatchQueueǁput` is a method, `x_due_s` a function.
        readable = function.replace("xǁ", "", 1).replace("ǁ", ".").removeprefix("x_")
        is_text = changes_text_only(original, mutant, function)
        mutants.append(Mutant(name, module, readable, *changed_lines(original, mutant), is_text))
    return mutants


def sample_of(mutants: list[Mutant], count: int | None) -> list[Mutant]:
    """The same `count` of them in every run, or all."""
    if count is None or count >= len(mutants):
        return mutants
    draw = random.Random(f"{SEED}/{mutants[0].module}")  # noqa: S311 - a sample, not a secret
    return draw.sample(mutants, count)


def is_found(result: int | None) -> bool:
    """Whether a test failed or did not end; not where no test reaches the mutant."""
    return result != SURVIVED and result not in NO_TESTS and result not in UNTRIED


def share_of(results: Iterable[int | None]) -> float:
    """The share of tried mutants that a test found; 1 where none was tried."""
    tried = [result for result in results if result not in UNTRIED]
    return sum(map(is_found, tried)) / len(tried) if tried else 1.0


def copy_tree() -> None:
    """The files that git tracks or would, so that what is not committed yet is tried as well."""
    shutil.rmtree(COPY, ignore_errors=True)
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    for name in filter(None, listing.split("\0")):
        if (ROOT / name).is_file():  # one that was removed is still tracked
            target = COPY / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
    (COPY / "preload.txt").write_text("\n".join(PRELOADED))
    with (COPY / "pyproject.toml").open("a") as settings:
        settings.write(SETTINGS)


def stored(module: str) -> dict[str, int | None]:
    """The results by mutmut's names; it writes the file anew after each mutant."""
    path = COPY / "mutants" / "service" / f"{module}.py.meta"
    for _ in range(5):
        try:
            results: dict[str, int | None] = json.loads(path.read_text())["exit_code_by_key"]
        except FileNotFoundError:  # nothing in it can be mutated
            return {}
        except json.JSONDecodeError:  # being written
            time.sleep(0.2)
        else:
            return results
    raise SystemExit(f"{path} cannot be read")


def results_of(mutants: Iterable[Mutant]) -> dict[str, int | None]:
    mutants = list(mutants)
    every = {module: stored(module) for module in {mutant.module for mutant in mutants}}
    return {mutant.name: every[mutant.module][mutant.name] for mutant in mutants}


def start_mutmut(names: Iterable[str], children: int) -> subprocess.Popen[bytes]:
    # Without the compiled files, each process compiles all mutants of what it imports.
    left_out = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    environment = {name: text for name, text in os.environ.items() if name not in left_out}
    environment |= {"PYTHONHASHSEED": "0", "SIMULATION_SEEDS": str(NUM_SEEDS)}
    program = Path(sys.executable).parent / "mutmut"
    if not program.exists():
        raise SystemExit("mutmut is not installed: `make mutants` installs it")
    with (COPY / "mutmut.log").open("ab") as log:
        return subprocess.Popen(  # noqa: S603 - the one of this environment
            [program, "run", "--max-children", str(children), *names],
            cwd=COPY,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that its children end with it
        )


def run_mutmut(mutants: list[Mutant], names: list[str], children: int, end_s: float) -> None:
    """Run it until it ends or the time is over, and say how far it is meanwhile."""
    process = start_mutmut(names, children)
    try:
        while process.poll() is None and time.monotonic() < end_s:
            try:
                process.wait(REPORT_INTERVAL_S)
            except subprocess.TimeoutExpired:
                report_progress(mutants)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode > 0:
        log = (COPY / "mutmut.log").read_text(errors="replace")
        raise SystemExit(f"mutmut ended with {process.returncode}:\n{log[-4_000:]}")


def report_progress(mutants: list[Mutant]) -> None:
    if mutants:
        tried = [result for result in results_of(mutants).values() if result not in UNTRIED]
        num_survivors = len(tried) - sum(map(is_found, tried))
        console.print(f"{len(tried)} of {len(mutants)} tried, {num_survivors} survived")


def equivalents() -> list[dict[str, str]]:
    """The mutants that a person read and found to change nothing, with the reason of each."""
    entries: list[dict[str, str]] = tomllib.loads(EQUIVALENT.read_text()).get("mutant", [])
    return entries


def table_of(
    every: Mapping[str, list[Mutant]],
    same: set[tuple[str, str, str, str]],
    results: Mapping[str, int | None],
) -> Table:
    """A row for each module: all of its mutants, those left out by kind, and the sample."""
    table = Table(Column("module", no_wrap=True, min_width=26))  # the longest name of one
    for column in ("made", "texts", "equal", "tried", "found", "survived"):
        table.add_column(column, justify="right")
    for module, mutants in {**every, "all": [m for each in every.values() for m in each]}.items():
        tried = [results.get(mutant.name) for mutant in mutants]
        tried = [result for result in tried if result not in UNTRIED]
        found = sum(is_found(result) for result in tried)
        num_texts = sum(mutant.changes_text_only for mutant in mutants)
        num_same = sum(mutant.key in same for mutant in mutants)
        counts = len(mutants), num_texts, num_same, len(tried), found, len(tried) - found
        table.add_row(module, *map(str, counts))
    return table


def print_survivors(sample: list[Mutant], results: Mapping[str, int | None]) -> None:
    for mutant in sorted(sample, key=lambda mutant: mutant.name):
        result = results[mutant.name]
        if result not in UNTRIED and not is_found(result):
            reached = ": no test reaches it" if result in NO_TESTS else ""
            console.print(f"\n{mutant.module}: {mutant.function}{reached}")
            console.print("\n".join(f"  - {line}" for line in mutant.before.splitlines()))
            console.print("\n".join(f"  + {line}" for line in mutant.after.splitlines()))


def arguments_of(line: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument(
        "modules", nargs="*", help="such as generation/cache/kv_cache; all by default"
    )
    parser.add_argument("--sample", default="20", help="mutants of each module, or `all`")
    parser.add_argument("--minutes", type=float, default=45.0, help="after which it ends")
    parser.add_argument("--children", type=int, default=2, help="processes that run tests")
    arguments = parser.parse_args(line)
    if unknown := set(arguments.modules) - set(POLICY):
        parser.error(f"no policy module: {', '.join(sorted(unknown))}")
    if arguments.sample != "all" and not arguments.sample.isdigit():
        parser.error(f"--sample {arguments.sample!r} is neither a number nor `all`")
    return arguments


def main(line: list[str] | None = None) -> int:
    """The exit status: 0 where enough of the sample was found and all of it tried."""
    arguments = arguments_of(line)
    end_s = time.monotonic() + 60 * arguments.minutes
    copy_tree()
    console.print(f"{COPY}: making mutants, and running all tests once, takes some minutes")
    # mutmut makes every mutant before it tries the first, which may be any.
    run_mutmut([], [FIRST], arguments.children, end_s)
    every = {}
    for module in arguments.modules or POLICY:
        if names := stored(module):
            source = (COPY / "mutants" / "service" / f"{module}.py").read_text()
            every[module] = mutants_of(module, source, names)
    same = {(e["module"], e["function"], e["before"], e["after"]) for e in equivalents()}
    count = None if arguments.sample == "all" else int(arguments.sample)
    sample = []
    for mutants in every.values():
        worth = [m for m in mutants if not m.changes_text_only and m.key not in same]
        sample += sample_of(worth, count)
    run_mutmut(sample, [mutant.name for mutant in sample], arguments.children, end_s)
    results = results_of(sample)
    print_survivors(sample, results)
    console.print(table_of(every, same, results))
    share = share_of(results.values())
    untried = sum(result in UNTRIED for result in results.values())
    console.print(f"{share:.1%} found, {LEAST_SHARE:.0%} wanted")
    if untried:
        console.print(
            f"{untried} of {len(sample)} were not tried: the time was over, see --minutes"
        )
    return int(share < LEAST_SHARE or bool(untried))


if __name__ == "__main__":
    sys.exit(main())
