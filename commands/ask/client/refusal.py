"""The error of a call, whatever carried it: gRPC or HTTP.

Knows nothing of either.
"""


class CallError(Exception):
    """A call that a server refused, or that found no server.

    `status` has gRPC's name, over HTTP too; `text` is one line for the user.
    """

    def __init__(self, status: str, text: str, retry_after_s: float = 0.0) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status
        self.text = text
        self.retry_after_s = retry_after_s  # the server's delay for a retry; 0: it names none
