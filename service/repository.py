"""The models that are served, by name and version.

Reads a directory in Triton's layout at start. A model that cannot be loaded is
reported under its name and does not stop the others. Lookups and registrations
happen on the event loop; loading files does not.
"""

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol

from service.errors import InvalidArgument, LoadError, NotFound, Unavailable
from service.loading import LoadedModel, Openers, find_models, load_model, start_model
from service.metrics import Metrics
from service.models import Host, ServedModel
from service.settings import Settings

logger = logging.getLogger(__name__)


class Listener(Protocol):
    """Told of each model as it becomes ready, or fails to."""

    def __call__(self, name: str, *, is_serving: bool) -> None: ...


def _nobody(name: str, *, is_serving: bool) -> None:
    """Nobody listens before models are loaded."""


class ModelRepository:
    """Every served version, and why the others are not."""

    def __init__(self, settings: Settings, metrics: Metrics, openers: Openers) -> None:
        self._settings = settings
        self._openers = openers
        self._models: dict[str, dict[int, ServedModel]] = {}
        self._listener: Listener = _nobody
        self._executor = ThreadPoolExecutor(settings.tokenizer_threads, "tokenizer")
        self._host = Host(settings, metrics, self._executor)
        self.failures: dict[str, str] = {}  # by model name
        self.is_loading = True

    def __repr__(self) -> str:
        return f"<ModelRepository {sorted(self._models)}, failed {sorted(self.failures)}>"

    async def load_all(self, listener: Listener) -> None:
        """Load every model, telling `listener` each one's name and whether it is ready."""
        self._listener = listener
        for folder in find_models(self._settings.model_repository):
            try:
                await self._load(folder)
            except LoadError as error:
                self.failures[folder.name] = str(error)
                logger.error("failed to load '%s': %s", folder.name, error)  # noqa: TRY400
            except Exception as error:  # what a damaged file makes of a library
                self.failures[folder.name] = f"{type(error).__name__}: {error}"
                logger.exception("failed to load '%s'", folder.name)
            listener(folder.name, is_serving=folder.name in self._models)
        self.is_loading = False

    @property
    def is_ready(self) -> bool:
        """Loaded; under strict readiness, with no model that failed."""
        is_whole = not (self.failures and self._settings.strict_readiness)
        return not self.is_loading and is_whole

    def models(self) -> list[ServedModel]:
        """Every served version, by name and version."""
        return [
            versions[version]
            for _, versions in sorted(self._models.items())
            for version in sorted(versions)
        ]

    def versions(self, name: str) -> list[int]:
        return sorted(self._models.get(name, ()))

    def find(self, name: str, version: str = "") -> ServedModel:
        """The model asked for, the highest version where none is named.

        Raises `InvalidArgument` for a version that is no number, `NotFound`, and
        `Unavailable` while models are still loading; with Triton's texts.
        """
        number = parse_version(version)
        versions = self._models.get(name)
        if not versions:
            if self.is_loading:
                raise Unavailable("Server not ready")
            if name in self.failures and number is not None:
                raise Unavailable(
                    f"Request for unknown model: '{name}' version {number} is not at ready state"
                )
            if name in self.failures:
                raise NotFound(f"Request for unknown model: '{name}' has no available versions")
            raise NotFound(f"Request for unknown model: '{name}' is not found")
        if number is None:
            return versions[max(versions)]
        if number not in versions:
            raise NotFound(f"Request for unknown model: '{name}' version {number} is not found")
        return versions[number]

    def has(self, name: str, version: str = "") -> bool:
        """Whether `find` would find it; a version that is no number is still refused."""
        number = parse_version(version)
        versions = self._models.get(name, {})
        return bool(versions) if number is None else number in versions

    def close(self, timeout_s: float) -> None:
        """Stop every engine; blocks until running batches end, or the time is over."""
        deadline_s = time.monotonic() + timeout_s
        for model in self.models():
            model.stop()
        for model in self.models():
            model.close(max(0.0, deadline_s - time.monotonic()))
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _load(self, folder: Path) -> None:
        started_s = time.monotonic()
        loaded = await asyncio.to_thread(load_model, folder, self._settings, self._openers)
        self._models[folder.name] = {
            version.number: self._start(loaded, version.number, started_s)
            for version in loaded.versions
        }

    def _start(self, loaded: LoadedModel, number: int, started_s: float) -> ServedModel:
        name = loaded.config.name
        metrics = self._host.metrics.for_model(name, number)
        metrics.load_s = time.monotonic() - started_s
        description = loaded.version(number).description
        logger.info(
            "loaded '%s' version %d in %.2f s: %s", name, number, metrics.load_s, description
        )
        on_broken = partial(self._withdraw, name, number)
        return start_model(loaded, number, metrics, self._host, on_broken)

    def _withdraw(self, name: str, number: int) -> None:
        """A version that serves no more: unready, unhealthy, and not to be found."""
        self._models[name].pop(number, None)
        self.failures[name] = "the model failed while serving, see the log"
        self._listener(name, is_serving=bool(self._models[name]))


def parse_version(version: str) -> int | None:
    """A model version as Triton reads it: empty is open, digits count up to the first other."""
    if not version:
        return None
    digits = version[:1].replace("-", "") + version[1:]
    length = next((i for i, c in enumerate(digits) if c not in "0123456789"), len(digits))
    if not 1 <= length <= 19 or int(digits[:length]) > 2**63 - 1:  # which has 19 digits
        raise InvalidArgument(
            f"failed to get model version from specified version string '{version}' "
            "(details: stol), version should be an integral value > 0"
        )
    if version.startswith("-"):
        raise InvalidArgument(
            f"invalid model version specified '{version}' , version should be an integral value > 0"
        )
    return int(digits[:length])
