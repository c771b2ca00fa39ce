"""Token ids in, text out, as early as it is certain."""

from collections.abc import Sequence


class TextStream:
    """The text of one sequence while it grows."""

    def __init__(self, token_bytes: Sequence[bytes], stop: tuple[str, ...] = ()) -> None:
        self.matched_stop: str | None = None

    def push(self, token_id: int, may_stop: bool = True) -> str:
        """Text that may be sent now, often none; nothing more once `matched_stop` is set."""
        raise NotImplementedError

    def finish(self) -> str:
        """What was held back, unless a stop string was found."""
        raise NotImplementedError
