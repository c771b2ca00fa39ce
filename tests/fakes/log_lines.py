"""Lines of a log, kept for a test."""

import logging


class Lines(logging.Handler):
    """Keeps what is logged, formatted."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))
