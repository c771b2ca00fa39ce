"""An adapter as a model of its own name, on the engine of its base model.

It has its own requests, metrics and configuration; tokenizer, chat templates, grammars and the
engine are the base's. All methods run on the event loop, but `close`.
"""

from collections.abc import Iterable
from dataclasses import replace
from weakref import WeakSet

from tritonclient.grpc.model_config_pb2 import ModelConfig

from service.contract.adapter import Adapter
from service.contract.interface import ModelInterface
from service.errors import AttendantError, LoadError, Unavailable
from service.generation.decoders.adapter_buffers import AdapterShape
from service.generation.sequence import GenerationRequest, Sequence
from service.generation.stream import Generation
from service.serving.generative_model import GenerativeModel, TextEngine
from service.serving.model import Host, ServedModel
from service.serving.occupancy import Occupancy

BASE_PARAMETER = "base_model"  # in the configuration that clients see


class AdaptedModel(GenerativeModel):
    """One version of an adapter; its base answers until it has, also where it is replaced."""

    def __init__(
        self, host: Host, name: str, version: int, adapter: Adapter, base: GenerativeModel
    ) -> None:
        """Raises `LoadError` for an adapter that does not fit the base."""
        if base.engine.adapters is None:
            raise LoadError(
                f"its base model '{base.name}' takes no adapters: `attendant export --lora-rank "
                f"{adapter.rank}` writes a graph that does, for the CPU"
            )
        base.engine.adapters.check(adapter)
        host.observers.metrics.for_generation(name, version)  # so that it is among the observers
        super().__init__(
            host,
            _interface_of(name, version, adapter, base.interface),
            AdapterEngine(base.engine),
            base.tokenizer,
            base.room,
            base.chat,
            base.own_sampling,
            base.grammars,
        )
        self.users = _UsersOfBoth(base.users)
        self.base = base
        self.adapter: Adapter = adapter

    def close(self, timeout_s: float) -> None:
        """Close what is the adapter's own; the base stays open."""
        self.tokenizing.close()
        self._engine.close(timeout_s)


class AdapterEngine:
    """The part of an engine that serves the requests of one adapter."""

    def __init__(self, engine: TextEngine) -> None:
        self._engine = engine
        self._generations: WeakSet[Generation] = WeakSet()
        self._is_stopped = False

    @property
    def vocab_size(self) -> int:
        return self._engine.vocab_size

    @property
    def adapters(self) -> AdapterShape | None:
        """None: an adapter takes no adapters."""
        return None

    @property
    def num_waiting(self) -> int:
        return sum(not sequence.timings.scheduled_s for sequence in self._live())

    @property
    def num_running(self) -> int:
        return sum(sequence.timings.scheduled_s > 0 for sequence in self._live())

    @property
    def running_since_s(self) -> float | None:
        """Steps are the base model's, which reports them."""
        return None

    @property
    def failure(self) -> AttendantError | None:
        return self._engine.failure

    def check_room(self, priority: int = 0, deadline_s: float | None = None) -> None:
        """The engine's check, or `Unavailable` once the adapter is unloaded."""
        if self._is_stopped:
            raise Unavailable("the adapter is being unloaded")
        self._engine.check_room(priority, deadline_s)

    def generate(self, request: GenerationRequest) -> Generation:
        """Generation of the base's engine."""
        self.check_room(request.priority, request.deadline_s)
        generation = self._engine.generate(request)
        self._generations.add(generation)
        return generation

    def stop(self) -> None:
        """End the adapter's requests; their sequences go within a step."""
        self._is_stopped = True
        for generation in self._generations:
            generation.fail(Unavailable("the adapter is being unloaded"))

    def close(self, timeout_s: float) -> None:
        """No-op: the engine goes on."""

    def _live(self) -> list[Sequence]:
        return [
            sequence
            for generation in list(self._generations)
            for sequence in generation.sequences
            if not sequence.is_finished
        ]


class _UsersOfBoth(Occupancy):
    """The users of an adapter, which are users of its base too."""

    def __init__(self, of_base: Occupancy) -> None:
        super().__init__()
        self._of_base = of_base

    def enter(self) -> None:
        super().enter()
        self._of_base.enter()

    def leave(self) -> None:
        super().leave()
        self._of_base.leave()


def base_for_adapters(model: ServedModel) -> GenerativeModel | None:
    """The model as one that adapters are put on; None for an adapter and for other kinds."""
    if isinstance(model, GenerativeModel) and not isinstance(model, AdaptedModel):
        return model
    return None


def adapted(models: Iterable[ServedModel]) -> list[AdaptedModel]:
    """Models that are adapters, of those given."""
    return [model for model in models if isinstance(model, AdaptedModel)]


def _interface_of(
    name: str, version: int, adapter: Adapter, base: ModelInterface
) -> ModelInterface:
    """The base's tensors under the adapter's name."""
    assert base.manifest is not None, "a generative model has one"
    config = ModelConfig.FromString(base.shown)
    config.name = name
    config.parameters[BASE_PARAMETER].string_value = base.name
    return replace(
        base,
        name=name,
        version=version,
        parent=base.name,
        manifest=replace(base.manifest, origin=adapter.origin or base.manifest.origin),
        shown=config.SerializeToString(deterministic=True),
    )
