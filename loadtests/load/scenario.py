"""`Scenario`: one load, as a TOML file describes it; everything in it is checked as it is read.

A key that does not exist, a value of another type and one beyond its bounds are errors that name
key, value and limit. `load` says when requests come, `traffic` what they ask, `slo` what a good
answer is, `server` what is started where no address is given, `expect` what the run must show.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from loadtests.load.lengths import Lengths, known_lengths

FOLDER = Path(__file__).parents[1] / "scenarios"
MAX_TRAFFIC = 16  # kinds of requests in one load
Read: TypeAlias = Callable[[object], Any]
T = TypeVar("T")


class ScenarioError(ValueError):
    """An error in a scenario: the key, its value, and the limit."""


def _number(default: float, low: float, high: float) -> float:
    def read(value: object) -> float:
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not low <= value <= high
        ):
            raise ScenarioError(f"it must be a number from {low:g} to {high:g}")
        return float(value)

    return field(default=default, metadata={"read": read})


def _whole(default: int, low: int, high: int) -> int:
    return field(default=default, metadata={"read": lambda value: _whole_number(value, low, high)})


def _whole_number(value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ScenarioError(f"it must be a whole number from {low} to {high}")
    return value


def _range(low: int, high: int, default: tuple[int, int]) -> tuple[int, int]:
    def read(value: object) -> tuple[int, int]:
        if not isinstance(value, list) or len(value) != 2:
            raise ScenarioError("it must be [least, most]")
        first, last = (_whole_number(part, low, high) for part in value)
        if first > last:
            raise ScenarioError("it must be [least, most]")
        return first, last

    return field(default=default, metadata={"read": read})


def _choice(*allowed: str, default: str) -> str:
    def read(value: object) -> str:
        if value not in allowed:
            raise ScenarioError(f"it must be one of {', '.join(allowed)}")
        return str(value)

    return field(default=default, metadata={"read": read})


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ScenarioError("it must be a string")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ScenarioError("it must be a list of strings")
    return tuple(_text(part) for part in value)


@dataclass(frozen=True, slots=True)
class Load:
    """When requests come. Seconds are measured; those of warming up come before."""

    arrivals: str = _choice("poisson", "constant", "closed", default="poisson")
    rate: float = _number(100.0, 0.01, 1e6)  # requests per second
    of_capacity: float = _number(0.0, 0.0, 10.0)  # above 0: the rate, over the capacity measured
    concurrency: int = _whole(32, 1, 100_000)  # of a closed loop, and of measuring the capacity
    capacity_s: float = _number(5.0, 0.1, 600.0)  # for which the capacity is measured
    seconds: float = _number(10.0, 0.1, 86_400.0)
    warm_up_s: float = _number(2.0, 0.0, 3_600.0)
    burst_factor: float = _number(1.0, 1.0, 1_000.0)  # rate of a burst over the rate between
    burst_every_s: float = _number(5.0, 0.1, 3_600.0)
    burst_s: float = _number(1.0, 0.0, 3_600.0)
    processes: int = _whole(1, 1, 64)
    max_in_flight: int = _whole(4_096, 1, 1_000_000)  # of all processes
    max_send_lag_ms: float = _number(20.0, 0.1, 10_000.0)  # p99 beyond which a run is invalid
    seed: int = _whole(0, 0, 2**31)

    @property
    def end_s(self) -> float:
        """When the last request may be due, from the start."""
        return self.warm_up_s + self.seconds


@dataclass(frozen=True, slots=True)
class Slo:
    """The bounds of a good answer, in milliseconds from when it was due; 0 is no bound."""

    latency_ms: float = _number(0.0, 0.0, 1e6)
    first_token_ms: float = _number(0.0, 0.0, 1e6)
    inter_token_ms: float = _number(0.0, 0.0, 1e6)  # mean of one answer
    share: float = _number(0.99, 0.0, 1.0)  # of good answers, that a rate must have


@dataclass(frozen=True, slots=True)
class Traffic:
    """One kind of request."""

    kind: str = _choice("classify", "embed", "generate", "infer", default="classify")
    model: str = field(default="", metadata={"read": _text})
    name: str = field(default="", metadata={"read": _text})  # in reports; else kind and model
    weight: float = _number(1.0, 1e-6, 1e6)
    lengths: str = field(default="", metadata={"read": _text})  # a name of lengths.toml; else words
    words: tuple[int, int] = _range(1, 100_000, (8, 24))
    max_tokens: tuple[int, int] = _range(1, 100_000, (16, 32))  # that a generation asks for
    rows: int = _whole(1, 1, 10_000)  # of a tensor, or texts of a request
    size: int = _whole(1, 1, 100_000)  # of a tensor's dimensions that are open, but the first
    deadline_s: float = _number(10.0, 0.001, 3_600.0)
    leave_share: float = _number(0.0, 0.0, 1.0)  # of clients that cancel
    leave_after_ms: float = _number(0.0, 0.0, 1e6)
    read_pause_ms: float = _number(0.0, 0.0, 1e6)  # of a slow reader, before each chunk

    @property
    def title(self) -> str:
        return self.name or f"{self.kind} {self.model}"

    @property
    def text_lengths(self) -> Lengths:
        return known_lengths()[self.lengths] if self.lengths else Lengths(((*self.words, 1),))


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """The servers that are started without an address."""

    command: str = _choice(
        "attendant", "sleeping", default="attendant"
    )  # see loadtests.load.sleeping
    flags: tuple[str, ...] = field(default=(), metadata={"read": _texts})
    replicas: int = _whole(1, 1, 16)
    rolling_restarts: int = _whole(0, 0, 1_000)  # of every replica in turn, while the load lasts
    settle_s: float = _number(1.5, 0.0, 600.0)  # from ready to the next one's end


@dataclass(frozen=True, slots=True)
class Expectation:
    """The expectations of a run, or the command fails; -1 is no expectation."""

    least_good_of_capacity: float = _number(-1.0, -1.0, 10.0)  # good answers per second, over it
    least_good_share: float = _number(-1.0, -1.0, 1.0)
    most_p99_ms: float = _number(-1.0, -1.0, 1e6)  # of answers
    most_lost: int = _whole(-1, -1, 10**9)  # requests that got neither answer nor were left
    least_sent: int = _whole(-1, -1, 10**9)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A whole load test."""

    name: str
    description: str
    traffic: tuple[Traffic, ...]
    load: Load = field(default_factory=Load)
    slo: Slo = field(default_factory=Slo)
    server: ServerPlan = field(default_factory=ServerPlan)
    expect: Expectation = field(default_factory=Expectation)

    @property
    def models(self) -> set[str]:
        return {traffic.model for traffic in self.traffic}


TABLES = {"load": Load, "slo": Slo, "server": ServerPlan, "expect": Expectation}


def scenario_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def read_scenario(name_or_path: str) -> Scenario:
    """A scenario of ours by its name, or any other by its path."""
    path = Path(name_or_path)
    if path.suffix != ".toml":
        path = FOLDER / f"{name_or_path}.toml"
    if not path.is_file():
        names = ", ".join(scenario_names())
        raise ScenarioError(f"no scenario '{name_or_path}': give a .toml file, or one of {names}")
    try:
        return parse_scenario(path.stem, path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{path}: {error}") from error


def parse_scenario(name: str, text: str) -> Scenario:
    """Read and check everything, or raise `ScenarioError`."""
    tables = tomllib.loads(text)
    _refuse_unknown(tables, {"description", "traffic", *TABLES}, "")
    traffic = tables.get("traffic")
    if not isinstance(traffic, list) or not 1 <= len(traffic) <= MAX_TRAFFIC:
        raise ScenarioError(f"traffic must be 1 to {MAX_TRAFFIC} tables, [[traffic]]")
    scenario = Scenario(
        name,
        _checked("description", _text, tables.get("description", "")),
        tuple(_read(Traffic, table, f"traffic[{place}]") for place, table in enumerate(traffic)),
        **{key: _read(kind, tables.get(key, {}), key) for key, kind in TABLES.items()},
    )
    check_together(scenario)
    return scenario


def check_together(scenario: Scenario) -> None:
    """Raise `ScenarioError` for values that make no sense together."""
    known = known_lengths()
    for place, traffic in enumerate(scenario.traffic):
        if not traffic.model:
            raise ScenarioError(f"traffic[{place}].model is missing: name a model")
        if traffic.lengths and traffic.lengths not in known:
            names = ", ".join(known)
            raise ScenarioError(
                f"traffic[{place}].lengths is {traffic.lengths!r}: it must be one of {names}"
            )
    titles = [traffic.title for traffic in scenario.traffic]
    if len(set(titles)) < len(titles):
        raise ScenarioError(f"traffic has two of one name in {titles}: give each a name of its own")
    load = scenario.load
    if load.burst_factor > 1 and load.burst_s > load.burst_every_s:
        raise ScenarioError(
            f"load.burst_s is {load.burst_s}: it must be at most burst_every_s, "
            f"{load.burst_every_s}"
        )


def _read(kind: type[T], table: object, path: str) -> T:
    if not isinstance(table, dict):
        raise ScenarioError(f"{path} must be a table")
    known = {part.name: part for part in fields(kind)}  # type: ignore[arg-type]
    _refuse_unknown(table, set(known), f"{path}.")
    return kind(
        **{
            key: _checked(f"{path}.{key}", known[key].metadata["read"], value)
            for key, value in table.items()
        }
    )


def _checked(path: str, read: Read, value: object) -> Any:
    try:
        return read(value)
    except ScenarioError as error:
        raise ScenarioError(f"{path} is {value!r}: {error}") from None


def _refuse_unknown(table: Mapping[str, object], known: set[str], path: str) -> None:
    for key in table:
        if key not in known:
            raise ScenarioError(f"{path}{key} is unknown: there are {', '.join(sorted(known))}")
