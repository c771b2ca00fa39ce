"""A model version as clients write it."""

from service.errors import InvalidArgument


def parse_version(version: str) -> int | None:
    """A model version as Triton reads it: empty is open, digits count up to the first other."""
    if not version:
        return None
    digits = version[:1].replace("-", "") + version[1:]
    length = next((i for i, c in enumerate(digits) if c not in "0123456789"), len(digits))
    if not 1 <= length <= 19 or int(digits[:length]) > 2**63 - 1:  # which has 19 digits
        raise InvalidArgument(
            f"failed to get model version from specified version string '{version}' "
            "(details: stol), version should be an integral value > 0"
        )
    if version.startswith("-"):
        raise InvalidArgument(
            f"invalid model version specified '{version}' , version should be an integral value > 0"
        )
    return int(digits[:length])
