"""Which mutants `make mutants` draws, which it leaves out, and how it counts results."""

import ast

import pytest

from service.runtime import cpus
from tests import mutants, mutants_plugin
from tests.test_imports import POLICY

SERVICE = mutants.ROOT / "service"
SOURCE = '''
def x_fit__mutmut_orig(a: int, b: int) -> bool:
    """Whether both fit."""
    assert a >= 0, "a count"
    if a > 9:
        raise ValueError(f"{a} is above 9")
    return a + b < 10

def x_fit__mutmut_1(a: int, b: int) -> bool:
    """Whether both fit."""
    assert a >= 0, "XXa countXX"
    if a > 9:
        raise ValueError(f"{a} is above 9")
    return a + b < 10

def x_fit__mutmut_2(a: int, b: int) -> bool:
    """Whether both fit."""
    assert a >= 0, "a count"
    if a > 9:
        raise ValueError(None)
    return a + b < 10

def x_fit__mutmut_3(a: int, b: int) -> bool:
    """Whether both fit."""
    assert a >= 0, "a count"
    if a >= 9:
        raise ValueError(f"{a} is above 9")
    return a + b < 10

def x_fit__mutmut_4(a: int, b: int) -> bool:
    """Whether both fit."""
    assert a > 0, "a count"
    if a > 9:
        raise ValueError(f"{a} is above 9")
    return a + b < 10

class Pair:  # noqa: D101 - stands for any
    def xǁPairǁ__repr____mutmut_orig(self) -> str:
        return "Pair"

    def xǁPairǁ__repr____mutmut_1(self) -> str:
        return "pair"
'''
NAMES = [f"service.pair.x_fit__mutmut_{number}" for number in range(1, 5)]


def test_only_what_an_error_an_assertion_or_a_repr_says_is_left_out() -> None:
    """The conditions of errors and of assertions are not."""
    found = mutants.mutants_of("pair", SOURCE, [*NAMES, "service.pair.xǁPairǁ__repr____mutmut_1"])
    assert [mutant.changes_text_only for mutant in found] == [True, True, False, False, True]
    assert [mutant.function for mutant in found] == [*["fit"] * 4, "Pair.__repr__"]


@pytest.mark.parametrize(
    ("mutant", "is_text"),
    [
        ("zip(a, b, strict=None)", True),
        ("zip(a, b)", True),
        ("zip(b, strict=True)", False),
        ("zip(a, None, strict=True)", False),
        ("dict(zip(a, b, strict=True), strict=True)", False),
    ],
)
def test_whether_zip_asserts_equal_lengths_is_no_fault(mutant: str, is_text: bool) -> None:
    original, changed = (
        next(iter(mutants.functions_of(f"def x_f__mutmut_1(a, b):\n return {code}").values()))
        for code in ("zip(a, b, strict=True)", mutant)
    )
    assert mutants.changes_text_only(original, changed, "x_f") is is_text


def test_a_mutant_is_shown_by_the_lines_that_differ() -> None:
    mutant = mutants.mutants_of("pair", SOURCE, NAMES)[2]
    assert (mutant.before, mutant.after) == ("if a > 9:", "if a >= 9:")


def test_every_run_draws_the_same_sample() -> None:
    every = [
        mutants.Mutant(f"service.pair.x_{number}", "pair", "fit", "", "", False)
        for number in range(100)
    ]
    sample = mutants.sample_of(every, 20)
    assert len(set(sample)) == 20
    assert sample == mutants.sample_of(every, 20)
    assert mutants.sample_of(every, None) == mutants.sample_of(every, 100) == every


def test_a_mutant_that_no_test_reaches_is_not_found_and_one_that_hangs_is() -> None:
    """And what was not tried says nothing: 3 of 5 are found, a failure, a time limit, a signal."""
    assert mutants.share_of([1, 36, -9, 0, 33, None, 2]) == 0.6


def one() -> None: ...


class Pair:  # noqa: D101 - stands for any
    def one(self) -> None: ...


@pytest.mark.parametrize(
    ("purpose", "kept"),
    [
        (f"{__name__}.x_one__mutmut_12", [one]),
        (f"{__name__}.xǁPairǁone__mutmut_1", [Pair.one]),
        ("service.pair.x_one__mutmut_12", []),
        ("fail", [one, Pair.one]),  # mutmut's own check that a fault is noticed
        ("", []),
    ],
)
def test_only_the_mutated_function_goes_through_the_wrapper_of_mutmut(
    purpose: str, kept: list[object]
) -> None:
    wrapped: list[object] = []

    def mutmuts(_mutants: dict[str, object]) -> mutants_plugin.Decorator:
        return wrapped.append  # type: ignore[return-value] # what it returns stands for a wrapper

    decorate = mutants_plugin.cheaper(mutmuts, purpose, set())({})
    for function in (one, Pair.one):
        assert decorate(function) is (None if function in kept else function)
    assert wrapped == kept


def test_the_tests_of_a_mutant_s_own_module_go_first() -> None:
    tests = ["tests/a/test_engine.py::one", "tests/a/test_pair.py::one[test_engine.py]"]
    own, other = mutants_plugin.own_and_other("service.a.pair.x_fit__mutmut_1", tests)
    assert (own, other) == (tests[1:], tests[:1])


def test_which_functions_a_test_reaches_is_noted() -> None:
    reached: set[str] = set()
    decorate = mutants_plugin.cheaper(lambda: lambda _: one, "stats", reached)()
    decorate(one)()
    decorate(Pair.one)(Pair())
    assert reached == {f"{__name__}.x_one", f"{__name__}.xǁPairǁone"}


def test_every_mutant_said_to_change_nothing_is_of_the_code_and_has_a_reason() -> None:
    for entry in mutants.equivalents():
        assert entry["module"] in POLICY
        assert entry["why"]
        source = ast.unparse(ast.parse((SERVICE / f"{entry['module']}.py").read_text()))
        lines = {line.strip() for line in source.splitlines()}
        assert set(entry["before"].splitlines()) <= lines, entry


@pytest.mark.parametrize("line", [["nothing"], ["--sample", "half"]])
def test_an_argument_that_is_wrong_ends_the_command(line: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        mutants.arguments_of(line)


def test_every_test_file_that_is_chosen_exists() -> None:
    for name in mutants.TESTS:
        assert (mutants.ROOT / "tests" / "service" / f"{name}.py").is_file(), name


def test_the_test_file_of_every_policy_module_is_chosen() -> None:
    for module in POLICY:
        room, _, name = module.rpartition("/")
        path = f"{room}/test_{name}".lstrip("/")
        if (mutants.ROOT / "tests" / "service" / f"{path}.py").is_file():
            assert path in mutants.TESTS


def test_the_mutant_that_has_all_others_made_exists() -> None:
    assert f"x_{cpus.available_cpus.__name__}__mutmut_1" in mutants.FIRST
