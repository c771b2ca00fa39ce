"""The forms of a file of results that grows at its end: .npy and .jsonl.

Both are bytes of windows, one after the other, behind a head whose length is known beforehand.
"""

import io
import json
import math
import re
from typing import Protocol

import numpy as np
from numpy.lib import format as npy

from commands.ask.bulk.rows import Rows
from commands.ask.bulk.windows import Window
from commands.ask.in_flight import Refused
from commands.ask.options import TRUNCATION
from service.errors import SettingError

MAX_SHOWN_CHARACTERS = 80  # of a text, in the file of errors
NUMBERED = re.compile(r"^(text 0|documents\[0\]) ")  # how a server names the only text of a request


class Form(Protocol):
    """Form of written results."""

    def head(self, num_lines: int) -> bytes:
        """The header of a file with this number of lines; its length is the same for any number."""
        ...

    def bytes_of(self, window: Window) -> bytes: ...


class NpyForm:
    """One array: row i is line i + 1 of the input; that of a line without a result is NaN or 0."""

    def __init__(self, rows: Rows) -> None:
        array = rows.array
        if array is None:
            raise SettingError(
                "--output ends with .npy, and these results are no rows of one array: write "
                ".jsonl or .parquet"
            )
        self._rows = rows
        self._dtype, self._shape = array

    def head(self, num_lines: int) -> bytes:
        described = {
            "descr": npy.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (num_lines, *self._shape),
        }
        buffer = io.BytesIO()
        npy.write_array_header_1_0(buffer, described)  # leaves room for a first axis of any length
        return buffer.getvalue()

    def bytes_of(self, window: Window) -> bytes:
        nothing = math.nan if self._dtype.kind == "f" else 0
        values = np.full((window.num_lines, *self._shape), nothing, self._dtype)
        for row, result in zip(values[..., None], window.results, strict=True):
            if result is not None:
                row[..., 0] = self._rows.values_of(result)
        return values.tobytes()


class JsonlForm:
    """A JSON object for each line that has a result, with the line's number."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def head(self, num_lines: int) -> bytes:  # noqa: ARG002
        return b""

    def bytes_of(self, window: Window) -> bytes:
        lines = []
        for line, result in enumerate(window.results, window.first):
            if result is not None:
                lines.append(self._rows.json_of(line, result) + "\n")
        return "".join(lines).encode()


def reason_of(refusal: Refused) -> str:
    """Why a line has no result, without the number that it had in its request."""
    return NUMBERED.sub("", refusal.reason).replace(*TRUNCATION)


def errors_of(window: Window) -> bytes:
    """A JSON object for each line without a result."""
    lines = []
    for refusal in window.refused:
        status = refusal.error.status if refusal.error is not None else "NOT_SENT"
        fields = {
            "line": refusal.line.number,
            "status": status,
            "reason": reason_of(refusal),
            "text": refusal.line.text[:MAX_SHOWN_CHARACTERS],
        }
        lines.append(json.dumps(fields, ensure_ascii=False) + "\n")
    return "".join(lines).encode()
