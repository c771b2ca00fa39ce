"""`LoneSession`: runs that have the processors to themselves are computed by threads that poll.

Whether threads poll is a property of a session and not of a run, so there are two of one graph.
"""

from collections.abc import Sequence
from dataclasses import replace
from threading import Lock

import numpy as np

from service.contract.tensors import Arrays, Signature
from service.runtime.session import RunStop, Session, SessionOptions

SPIN_US = 50  # measured: decision 0040


class LoneSession:
    """Two sessions of one graph, of which the runs under way choose.

    A run that begins while no other is under way is one of a client alone, or the first of many;
    those that begin beside it sleep, as polling would take the turns of its threads.
    """

    def __init__(self, asleep: Session, polling: Session) -> None:
        self._asleep, self._polling = asleep, polling
        self._lock = Lock()
        self._num_running = 0

    @property
    def signature(self) -> Signature:
        return self._asleep.signature

    @property
    def num_running(self) -> int:
        return self._num_running

    def run(
        self, inputs: Arrays, outputs: Sequence[str], stopping: RunStop | None = None
    ) -> list[np.ndarray]:
        """Outputs as of `Session.run`; both sessions give the same values."""
        with self._lock:
            is_alone = self._num_running == 0
            self._num_running += 1
        try:
            session = self._polling if is_alone else self._asleep
            return session.run(inputs, outputs, stopping)
        finally:
            with self._lock:
                self._num_running -= 1


def polling_options(num_bytes: int, options: SessionOptions, max_mib: int) -> SessionOptions | None:
    """Options of a second session of a graph, for runs that are alone; None where there is none.

    `max_mib` bounds the bytes of file and weights, of which a second session holds another copy.
    """
    is_asleep = options.device == "cpu" and not options.can_spin and not options.spin_us
    if not max_mib or not is_asleep or options.num_threads == 1:
        return None
    if num_bytes > max_mib * 2**20:
        return None
    return replace(options, spin_us=SPIN_US)
