"""Which messages are logged and how they look, changed while serving; Triton's log settings.

Acts on one logger's handlers, by default the root's, and on nothing before the first change.
"""

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from service.errors import InvalidArgument, Unimplemented
from service.logs import CONSOLE_TIMES, set_times


@dataclass(frozen=True, slots=True)
class LogValues:
    """Log settings by the protocol's names."""

    log_file: str = ""  # cannot be set: what is logged goes to standard error
    log_info: bool = True
    log_warning: bool = True
    log_error: bool = True
    log_verbose_level: int = 0  # above 0 debug messages are logged
    log_format: str = "default"

    def lets_pass(self, level: int) -> bool:
        """Whether messages of this level of `logging` are logged."""
        if level < logging.INFO:
            return self.log_verbose_level > 0
        if level < logging.WARNING:
            return self.log_info
        return self.log_warning if level < logging.ERROR else self.log_error


class LogFilter(logging.Filter):
    """The filter of the logger's handlers; it follows the logger's level until it is changed."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        super().__init__()
        self._logger = logger or logging.getLogger()
        level = self._logger.getEffectiveLevel()
        self.values = LogValues(
            log_info=level <= logging.INFO,
            log_warning=level <= logging.WARNING,
            log_error=level <= logging.ERROR,
            log_verbose_level=int(level <= logging.DEBUG),
        )

    def filter(self, record: logging.LogRecord) -> bool:
        return self.values.lets_pass(record.levelno)

    def update(self, changes: Mapping[str, bool | int | str | None]) -> None:
        """Change some settings, all or none."""
        for key, value in changes.items():
            _check(key, value)
        self.values = replace(self.values, **changes)  # type: ignore[arg-type]
        levels = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
        passing = (level for level in levels if self.values.lets_pass(level))
        self._logger.setLevel(next(passing, logging.CRITICAL))
        for handler in self._logger.handlers:
            handler.addFilter(self)
            if "log_format" in changes:
                set_times(handler, self.values.log_format)


def _check(key: str, value: bool | int | str | None) -> None:
    known = asdict(LogValues())
    if key not in known:
        raise InvalidArgument(f"unknown log setting '{key}', expected {', '.join(known)}")
    if key == "log_file":
        raise Unimplemented("log file location can not be updated through network protocol")
    if type(value) is not type(known[key]):
        expected = {bool: "boolean", int: "int32", str: "string"}[type(known[key])]
        raise InvalidArgument(f"expect {expected} for '{key}'")
    if key == "log_format" and value not in CONSOLE_TIMES:
        raise InvalidArgument(f"invalid argument for log_format, got: {value}")
