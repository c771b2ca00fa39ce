"""What is logged after a change of settings, and what cannot be set."""

import logging
from collections.abc import Iterator
from itertools import count

import pytest

from service.errors import AttendantError, InvalidArgument, Unimplemented
from service.observe.logs import LogFilter
from tests.fakes.log_lines import Lines

_numbers = count()


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger(f"tests.log_settings.{next(_numbers)}")
    logger.propagate = False
    logger.addHandler(Lines())
    logger.setLevel(logging.INFO)
    yield logger
    for handler in logger.handlers:  # pytest's own is among them, and serves later tests too
        for each in list(handler.filters):
            handler.removeFilter(each)
    logger.handlers.clear()


def logged(logger: logging.Logger) -> list[str]:
    """Which of one message per level are logged."""
    handler = next(found for found in logger.handlers if isinstance(found, Lines))
    handler.lines.clear()
    for level in ("debug", "info", "warning", "error", "critical"):
        getattr(logger, level)(level)
    return list(handler.lines)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["info", "warning", "error", "critical"]),
        ({"log_info": False}, ["warning", "error", "critical"]),
        ({"log_warning": False}, ["info", "error", "critical"]),
        ({"log_verbose_level": 1}, ["debug", "info", "warning", "error", "critical"]),
        ({"log_verbose_level": 2, "log_info": False}, ["debug", "warning", "error", "critical"]),
        ({"log_info": False, "log_warning": False, "log_error": False}, []),
    ],
)
def test_each_setting_governs_its_level(
    logger: logging.Logger, changes: dict[str, bool | int | str | None], expected: list[str]
) -> None:
    settings = LogFilter(logger)
    settings.update(changes)
    assert logged(logger) == expected
    settings.update({"log_info": True, "log_warning": True, "log_error": True})
    assert logged(logger)[-4:] == ["info", "warning", "error", "critical"]


@pytest.mark.parametrize(
    ("level", "flags", "verbose"),
    [
        ("DEBUG", (True, True, True), 1),
        ("INFO", (True, True, True), 0),
        ("WARNING", (False, True, True), 0),
        ("ERROR", (False, False, True), 0),
    ],
)
def test_settings_start_as_the_level_says(
    logger: logging.Logger, level: str, flags: tuple[bool, bool, bool], verbose: int
) -> None:
    logger.setLevel(level)
    values = LogFilter(logger).values
    assert (values.log_info, values.log_warning, values.log_error) == flags
    assert values.log_verbose_level == verbose


def test_the_format_changes_how_times_are_written(logger: logging.Logger) -> None:
    settings = LogFilter(logger)
    settings.update({"log_format": "ISO8601"})
    message = logged(logger)[0]
    assert message[10] == "T"
    assert message.endswith("Z info")
    settings.update({"log_format": "default"})
    assert len(logged(logger)[0]) == len("08:15:30 info")


@pytest.mark.parametrize(
    ("key", "value", "kind", "text"),
    [
        ("log_info", 1, InvalidArgument, "expect boolean for 'log_info'"),
        ("log_error", None, InvalidArgument, "expect boolean for 'log_error'"),
        ("log_verbose_level", True, InvalidArgument, "expect int32 for 'log_verbose_level'"),
        ("log_format", 1, InvalidArgument, "expect string for 'log_format'"),
        ("log_format", "x", InvalidArgument, "invalid argument for log_format, got: x"),
        ("log_x", True, InvalidArgument, "unknown log setting 'log_x'"),
        (
            "log_file",
            "x",
            Unimplemented,
            "log file location can not be updated through network protocol",
        ),
    ],
)
def test_a_setting_that_cannot_be_is_refused_and_changes_nothing(
    logger: logging.Logger,
    key: str,
    value: bool | int | str | None,
    kind: type[AttendantError],
    text: str,
) -> None:
    settings = LogFilter(logger)
    with pytest.raises(kind) as caught:
        settings.update({"log_warning": False, key: value})
    assert str(caught.value).startswith(text)
    assert settings.values.log_warning
