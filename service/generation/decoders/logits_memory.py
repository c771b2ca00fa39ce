"""Where runs of a decoder leave their logits, and what of them comes to the host.

On a device whole rows stay there, and a graph that gives candidates (`top_logits`, `top_ids` and
`log_sum`, see `choosing/step_logits.py`) sends these alone. What a run left is
overwritten by the next.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from service.contract.tensors import DATATYPES, Arrays, Signature
from service.errors import LoadError
from service.generation.choosing.step_logits import Candidates, StepLogits
from service.runtime.binding import Bound
from service.runtime.memory import Memory

FP32 = DATATYPES["FP32"]
LOGITS = "logits"
TOP_LOGITS, TOP_IDS, LOG_SUM = "top_logits", "top_ids", "log_sum"


@dataclass(frozen=True, slots=True)
class BoundLogits:
    """The outputs of runs with as many rows, and what comes of them."""

    outputs: Mapping[str, Bound]
    read: Callable[[], StepLogits]  # after a run


class LogitsMemory:
    """Room for the logits of a run, in the host's memory or a device's.

    On a device whole rows stay there, with their candidates where the graph gives any.
    """

    def __init__(self, memory: Memory, num_rows: int, vocab_size: int, num_candidates: int) -> None:
        self._memory = memory
        self._num_candidates = num_candidates
        self._vocab_size = vocab_size
        self.rows = memory.zeros((num_rows, vocab_size), FP32)

    def bind(self, num_rows: int) -> BoundLogits:
        if num_rows > len(self.rows):
            self.rows = self._memory.zeros((2 * num_rows, self._vocab_size), FP32)
        size = (num_rows, self._num_candidates)
        candidates = {
            TOP_LOGITS: (size, FP32),
            TOP_IDS: (size, DATATYPES["INT64"]),
            LOG_SUM: (size[:1], FP32),
        }
        rows = self.rows[:num_rows]
        reader = self._memory.read_logits(rows, candidates if self._num_candidates else {})

        def read() -> StepLogits:
            return StepLogits(reader.rows, reader.fetch, self._candidates(reader.read()))

        return BoundLogits({LOGITS: rows, **reader.bound}, read)

    def _candidates(self, found: Arrays) -> Candidates | None:
        if not found:
            return None
        return Candidates(found[TOP_IDS], found[TOP_LOGITS], found[LOG_SUM], self._vocab_size)


def num_candidates_of(signature: Signature) -> int:
    """The number of likeliest tokens that a graph gives for each row; 0 where it gives none.

    Raises `LoadError` for outputs of another form.
    """
    outputs = {spec.name: spec for spec in signature.outputs}
    names = {TOP_LOGITS, TOP_IDS, LOG_SUM}
    if not names & outputs.keys():
        return 0
    forms = {name: outputs[name].dims for name in names & outputs.keys()}
    num_candidates = forms.get(TOP_IDS, (0,))[-1]
    expected = {
        TOP_LOGITS: (-1, num_candidates),
        TOP_IDS: (-1, num_candidates),
        LOG_SUM: (-1,),
    }
    if forms != expected or num_candidates < 1:
        raise LoadError(
            f"candidates are {TOP_LOGITS} and {TOP_IDS} [-1, number] and {LOG_SUM} [-1]; the graph "
            f"gives {dict(sorted(forms.items()))}"
        )
    return num_candidates
