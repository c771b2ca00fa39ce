"""Dates as people write them, and the same dates in ISO 8601: pairs to learn from, made by rule.

A form is a pattern such as "{wd}, {d}{th} of {month} '{yy:02}", in one of three letter cases. Some
patterns are kept from training, so that what is measured is reading forms that were never seen:
their parts were, in other company.

Knows nothing about networks. What is drawn follows from the seed alone.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from functools import cache
from itertools import product
from typing import Protocol

from models.data.pairs import Pair, PairSplits

FIRST, LAST = date(1970, 1, 1), date(2069, 12, 31)  # a year of two digits is one of these
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
BEFORE = (
    "", "{weekday}, ", "{weekday} ", "{wd}, ", "{wd}. ", "on ", "on {weekday}, ", "on {weekday} ",
)  # fmt: skip
DAYS = ("{d}", "{d:02}", "{d}{th}", "the {d}{th}")
NAMES = ("{month}", "{mon}", "{mon}.")
YEARS = ("{y}", "'{yy:02}", "{yy:02}")
SPELLED = (
    "{D} {M} {Y}", "{D} of {M} {Y}", "{D} of {M}, {Y}", "{D} {M}, {Y}", "{D}. {M} {Y}",
    "{M} {D}, {Y}", "{M} {D} {Y}",
)  # fmt: skip
JOINED = ("{D}-{M}-{Y}", "{D}/{M}/{Y}")  # of plain days and names
NUMERIC = (
    "{y}-{m:02}-{d:02}", "{y}/{m:02}/{d:02}", "{y}.{m:02}.{d:02}", "{y}{m:02}{d:02}",
    "{y}-{m}-{d}", "{y}/{m}/{d}", "{y}.{m}.{d}", "{y}-{mon}-{d:02}",
    "{d:02}.{m:02}.{y}", "{d}.{m}.{y}", "{d}.{m}.{yy:02}", "{d:02}.{m:02}.{yy:02}", "{d}. {m}. {y}",
    "{d}-{m}-{y}", "{y} {month} {d}", "{y}, {month} {d}{th}", "{y} {mon} {d:02}", "{y} {mon} {d}",
    "{y}, {mon} {d}", "{y}, {mon}. {d}{th}",
)  # fmt: skip
CASES: tuple[Callable[[str], str], ...] = (str, str.lower, str.upper)
# From the 10th of a month, from October, and in May.
MERGED = (("{d:02}", "{d}"), ("{m:02}", "{m}"), ("{mon}", "{month}"))
HELD_OUT = 10  # one of this number of patterns is never trained on


def patterns() -> list[str]:
    """Every pattern once, in the order of the lists above; each stands for a form per case."""
    orders = [(SPELLED, DAYS, NAMES), (JOINED, DAYS[:2], NAMES[:2])]
    bodies = [
        order.replace("{D}", day).replace("{M}", name).replace("{Y}", year)
        for order_group, days, names in orders
        for order, day, name, year in product(order_group, days, names, YEARS)
    ]
    return [before + body for before, body in product(BEFORE, (*bodies, *NUMERIC))]


def split_patterns(seed: int) -> tuple[list[str], list[str]]:
    """Patterns to train on, and others to test on."""
    shuffled = patterns()
    random.Random(f"patterns of {seed}").shuffle(shuffled)  # noqa: S311 - to reproduce
    count = len(shuffled) // HELD_OUT
    return shuffled[count:], shuffled[:count]


class Amounts(Protocol):
    """The amounts to generate."""

    @property
    def seed(self) -> int: ...

    @property
    def samples(self) -> int: ...

    @property
    def test_samples(self) -> int: ...


def generate(settings: Amounts) -> PairSplits:
    """Pairs of each side, as many as the settings say.

    No pattern that is trained on could have written what is tested, not by chance either: in the
    12th of a month {d} and {d:02} are written alike.
    """
    trained, tested = split_patterns(settings.seed)
    generator = random.Random(f"dates of {settings.seed}")  # noqa: S311 - to reproduce
    return PairSplits(
        "dates",
        tuple(date_pairs(trained, settings.samples, generator)),
        tuple(date_pairs(tested, settings.test_samples, generator, unlike=trained)),
    )


def date_pairs(
    chosen: Sequence[str], count: int, generator: random.Random, unlike: Sequence[str] = ()
) -> Iterator[Pair]:
    """Draw a pattern, a letter case and a date each time; none that `unlike` would write so too."""

    @cache
    def taken(alike: tuple[bool, ...]) -> frozenset[str]:
        return frozenset(_merged(pattern, alike) for pattern in unlike)

    num_days, num_drawn = (LAST - FIRST).days + 1, 0
    while num_drawn < count:
        day = FIRST + timedelta(days=generator.randrange(num_days))
        pattern, case = generator.choice(chosen), generator.choice(CASES)
        alike = (day.day >= 10, day.month >= 10, MONTHS[day.month - 1] == "May")
        if _merged(pattern, alike) not in taken(alike):
            num_drawn += 1
            yield Pair(case(written(pattern, day)), day.isoformat())


def _merged(pattern: str, alike: tuple[bool, ...]) -> str:
    """One pattern for those that write a date alike, which those of MERGED may."""
    for is_alike, (one, other) in zip(alike, MERGED, strict=True):
        pattern = pattern.replace(one, other) if is_alike else pattern
    return pattern


def written(pattern: str, day: date) -> str:
    return pattern.format(
        d=day.day,
        th=ordinal(day.day),
        m=day.month,
        month=MONTHS[day.month - 1],
        mon=MONTHS[day.month - 1][:3],
        y=day.year,
        yy=day.year % 100,
        weekday=WEEKDAYS[day.weekday()],
        wd=WEEKDAYS[day.weekday()][:3],
    )


def ordinal(day: int) -> str:
    """The letters after a day: 1st, 2nd, 3rd, 11th."""
    is_teen = day in (11, 12, 13)
    return "th" if is_teen else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
