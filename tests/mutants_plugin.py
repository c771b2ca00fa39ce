"""A plugin of pytest for `make mutants`, in each process in which mutmut runs tests.

Mutmut sends each call of a function that it could mutate through a wrapper, which looks up what
is mutated in this process. That takes longer than many of the functions. Here it is looked up
once, when a module is imported: the one mutated function keeps mutmut's wrapper, and all others
are what they are in the source. Where mutmut measures which tests reach which function, each is
wrapped to note that and no more.

The first test that fails ends a mutant's run. So the tests of its own module go first, in a run of
their own, as to import a few files takes longer than most tests; then the quickest, by what mutmut
measured. A failure of hypothesis ends the run as it is found, and is not made smaller before.
"""

import functools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

settings.register_profile(
    "mutants", settings.get_profile("ci"), phases=(Phase.explicit, Phase.generate)
)

AnyFunction = Callable[..., Any]
Decorator = Callable[[AnyFunction], AnyFunction]
DURATIONS = Path("mutmut-stats.json")  # where mutmut runs pytest
# What tests reached since the last of them ended, in mutmut's set, and what importing reached.
reached: set[str] = set()
while_importing: set[str] = set()
QUICK_S = 0.05
DURATION_S = pytest.StashKey[float]()


def key_of(function: AnyFunction) -> str:
    """Mutmut's name of a function or method, to which it appends the number of a mutant."""
    owner, _, name = function.__qualname__.rpartition(".")
    return f"{function.__module__}." + (f"xǁ{owner}ǁ{name}" if owner else f"x_{name}")


def noting_calls(function: AnyFunction, reached: set[str]) -> AnyFunction:
    key = key_of(function)

    @functools.wraps(function)
    def noting(*args: object, **keywords: object) -> object:
        reached.add(key)
        return function(*args, **keywords)

    return noting


def cheaper(
    keep: Callable[..., Decorator], purpose: str, reached: set[str]
) -> Callable[..., Decorator]:
    """What takes the place of `keep`, mutmut's maker of wrappers.

    The purpose of a process is the name of a mutant, `stats`, `fail` or empty.
    """

    def cheap(*args: object, **keywords: object) -> Decorator:
        def decorate(function: AnyFunction) -> AnyFunction:
            if purpose == "stats":
                return noting_calls(function, reached)
            if purpose == "fail" or purpose.rpartition("__mutmut_")[0] == key_of(function):
                return keep(*args, **keywords)(function)
            return function

        return decorate

    return cheap


def purpose() -> str:
    """What mutmut runs tests for in this process: the name of a mutant, `stats`, `fail` or none."""
    return os.environ.get("MUTANT_UNDER_TEST", "")


def own_and_other(mutant: str, tests: Sequence[str]) -> tuple[list[str], list[str]]:
    """The tests in a file with the name of the mutant's module, and the others."""
    module = mutant.rpartition(".")[0].rpartition(".")[2]
    own = [test for test in tests if Path(test.partition("::")[0]).stem == f"test_{module}"]
    return own, [test for test in tests if test not in set(own)]


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """The result of a mutant's own tests where they find it; else the run goes on with others.

    Without a mutant there is nothing to run: the same tests have just passed as they were measured.
    """
    if "MUTANT_UNDER_TEST" in os.environ and not purpose():
        return int(pytest.ExitCode.OK)
    own, other = own_and_other(purpose(), config.args)
    if "__mutmut_" not in purpose() or not own or not other:
        return None
    options = [word for word in config.invocation_params.args if word not in set(config.args)]
    status = pytest.main([*options, *own])
    config.args = other
    return None if status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) else status


def pytest_configure() -> None:
    """Before any of our modules is imported."""
    global reached
    from mutmut.mutation import trampoline
    from mutmut.state import state

    reached = state()._stats
    if trampoline.wrap_in_trampoline.__name__ != "cheap":  # not yet, by a run within this process
        trampoline.wrap_in_trampoline = cheaper(trampoline.wrap_in_trampoline, purpose(), reached)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if DURATIONS.exists():
        duration_s = json.loads(DURATIONS.read_text())["duration_by_test"]
        items.sort(key=lambda item: duration_s.get(item.nodeid, 0.0))


def pytest_collection_finish() -> None:
    """Before the first test, all that was reached was reached by importing."""
    while_importing.update(reached)


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    if call.when == "call":
        item.stash[DURATION_S] = call.duration


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Every test depends on what importing calls; of those that are slow, others find the fault."""
    if item.stash.get(DURATION_S, 0.0) < QUICK_S:
        reached.update(while_importing)
    yield
