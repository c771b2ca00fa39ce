"""Computes what grammars allow next while the model computes the logits.

One thread beside the engine's, which the first grammar starts. Only one of both threads has a
sequence's grammar at a time: the engine's has none of them while a run is under way.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Many
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from service.generation.sequence import Sequence
from service.grammars.state import GrammarState


class MaskThread:
    """The thread of one engine."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    @contextmanager
    def beside(self, sequences: Many[Sequence]) -> Iterator[None]:
        """Prepare the grammars of these sequences while the block runs."""
        grammars = [each.sampler.grammar for each in sequences]
        present = [grammar for grammar in grammars if grammar is not None]
        if not present:
            yield
            return
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, "grammar-masks")
        prepared = self._executor.submit(_prepare, present)
        try:
            yield
        finally:
            prepared.result()

    def close(self) -> None:
        """End the thread."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)


def _prepare(grammars: Many[GrammarState]) -> None:
    for grammar in grammars:
        grammar.prepare()
