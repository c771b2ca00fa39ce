"""A plugin of pytest for `make mutants`, in each process in which mutmut runs tests.

Mutmut sends each call of a function that it could mutate through a wrapper, which looks up what
is mutated in this process. That takes longer than many of the functions. Here it is looked up
once, when a module is imported: the one mutated function keeps mutmut's wrapper, and all others
are what they are in the source. Where mutmut measures which tests reach which function, each is
wrapped to note that and no more.

The quickest tests go first, by what mutmut measured: the first test that fails ends a mutant's
run, so most mutants end within the quick ones.
"""

import functools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

AnyFunction = Callable[..., Any]
Decorator = Callable[[AnyFunction], AnyFunction]
DURATIONS = Path("mutmut-stats.json")  # where mutmut runs pytest
# What tests reached since the last of them ended, in mutmut's set, and what importing reached.
reached: set[str] = set()
while_importing: set[str] = set()


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

    def wrap(*args: object, **keywords: object) -> Decorator:
        def decorate(function: AnyFunction) -> AnyFunction:
            if purpose == "stats":
                return noting_calls(function, reached)
            if purpose == "fail" or purpose.rpartition("__mutmut_")[0] == key_of(function):
                return keep(*args, **keywords)(function)
            return function

        return decorate

    return wrap


def pytest_configure() -> None:
    """Before any of our modules is imported."""
    global reached
    from mutmut.mutation import trampoline
    from mutmut.state import state

    reached = state()._stats
    purpose = os.environ.get("MUTANT_UNDER_TEST", "")
    trampoline.wrap_in_trampoline = cheaper(trampoline.wrap_in_trampoline, purpose, reached)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if DURATIONS.exists():
        duration_s = json.loads(DURATIONS.read_text())["duration_by_test"]
        items.sort(key=lambda item: duration_s.get(item.nodeid, 0.0))


def pytest_collection_finish() -> None:
    """Every test reaches what is called while modules are imported."""
    while_importing.update(reached)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Iterator[None]:
    reached.update(while_importing)
    yield
