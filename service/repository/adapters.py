"""Loads adapters from version folders, and finds the models that they are for.

Reading runs on the thread that loads; the rest on the event loop. See `adapted_model.py` of
`service/serving` for what is served.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from service.contract.adapter import ADAPTER_FILENAME, MAX_ADAPTER_BYTES, Adapter, from_bytes
from service.contract.files import Snapshot, read_bytes
from service.errors import LoadError
from service.repository.known_model import KnownModel
from service.serving.adapted_model import AdaptedModel, adapted, base_for_adapters
from service.serving.model import Host


@dataclass(frozen=True, slots=True)
class LoadedAdapter:
    """One version of an adapter, read and checked by itself."""

    name: str
    number: int
    adapter: Adapter

    @property
    def description(self) -> str:
        adapter = self.adapter
        size = adapter.num_bytes / 2**20
        return f"adapter of '{adapter.base}', rank {adapter.rank}, {size:.1f} MiB"


def holds_adapter(folder: Path) -> bool:
    """Whether a version folder, or a model's folder that has one, is of an adapter."""
    return (folder / ADAPTER_FILENAME).is_file() or any(folder.glob(f"*/{ADAPTER_FILENAME}"))


def bases_first(snapshots: Mapping[str, Snapshot | None]) -> list[str]:
    """The names of models, those of adapters behind all others."""
    return sorted(
        snapshots, key=lambda name: any(ADAPTER_FILENAME in path for path in snapshots[name] or ())
    )


def load_adapter(folder: Path, number: int) -> LoadedAdapter:
    """An adapter from a model's folder, or `LoadError`."""
    content = read_bytes(folder / str(number) / ADAPTER_FILENAME, MAX_ADAPTER_BYTES)
    return LoadedAdapter(folder.name, number, from_bytes(content))


def start_adapter(
    loaded: LoadedAdapter, models: Mapping[str, KnownModel], host: Host
) -> AdaptedModel:
    """A loaded adapter on its base as it is served now, or `LoadError`.

    At most `max_adapters` are served on one base.
    """
    name = loaded.adapter.base
    known = models.get(name)
    if known is None or not known.versions:
        raise LoadError(f"its base model '{name}' is not served: load it before the adapter")
    base = base_for_adapters(known.versions[max(known.versions)])
    if base is None:
        raise LoadError(f"its base model '{name}' is no decoder that takes adapters")
    limit = host.settings.max_adapters
    others = [each for each in adapters_of(name, models.values()) if each.name != loaded.name]
    if len(others) >= limit:
        raise LoadError(
            f"'{name}' has {len(others)} adapters, which is the limit: unload one, or raise "
            "--max-adapters"
        )
    return AdaptedModel(host, loaded.name, loaded.number, loaded.adapter, base)


def adapters_of(name: str, models: Collection[KnownModel]) -> list[AdaptedModel]:
    """The served versions of adapters of a model."""
    return adapted(
        version for model in models if model.parent == name for version in model.versions.values()
    )
