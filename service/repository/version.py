"""A model version as clients write it."""

import re

from service.errors import InvalidArgument

_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?[0-9]{1,})")  # what C's `strtol` reads, in ASCII
MAX_DIGITS = 64  # of 19 that a version can have; leading zeros are none


def parse_version(version: str) -> int | None:
    """A model version as Triton reads it, by `std::stol`; empty is open.

    Space before the number is skipped, and so is whatever follows it.
    """
    if not version:
        return None
    match = _NUMBER.match(version)
    digits = match[1] if match else ""
    sign, digits = digits[:1].strip("0123456789"), digits.lstrip("+-").lstrip("0") or digits[-1:]
    number = int(sign + digits) if 0 < len(digits) <= 19 else None
    if number is None or not -(2**63) <= number < 2**63:
        raise InvalidArgument(
            f"failed to get model version from specified version string '{version}' "
            "(details: stol), version should be an integral value > 0"
        )
    if number < 0:
        raise InvalidArgument(
            f"invalid model version specified '{version}' , version should be an integral value > 0"
        )
    return number
