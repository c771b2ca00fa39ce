"""Why an export was refused."""


class ExportError(Exception):
    """Nothing was written: the message says what is wrong."""
