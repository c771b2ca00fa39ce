"""The observers of a server's models, put together once.

An engine or a model reports each event once, to every observer of its version. The requests that a
front watches, whether they reach a model or not, have observers of their own: `api/calls.py`.
"""

from dataclasses import dataclass, field

from service.observe.metrics import Metrics
from service.observe.trace_files import Tracing
from service.records import Observer


@dataclass(frozen=True, slots=True)
class Observers:
    """The observers of one server's models."""

    metrics: Metrics = field(default_factory=Metrics)
    tracing: Tracing = field(default_factory=Tracing)
    others: tuple[Observer, ...] = ()  # of every model

    def for_model(self, name: str, version: int) -> tuple[Observer, ...]:
        """The observers of one model version."""
        model = self.metrics.for_model(name, version)
        generation = () if model.generation is None else (model.generation,)
        return model, *generation, self.tracing.for_model(name, version), *self.others
