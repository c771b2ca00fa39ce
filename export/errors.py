"""Why an export was refused."""


class ExportError(Exception):
    """An export that wrote nothing: the message says what is wrong."""
