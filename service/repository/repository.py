"""The served models by name and version: loading, replacing and unloading.

`none` loads a directory in Triton's layout once, or the models of it that a setting names; `poll`
looks for changes in these from time to time; `explicit` loads and unloads what clients name.
In every mode a new version is loaded and warmed beside the old one and replaces it at
once; the old one answers its requests and is closed. A failed load leaves the earlier version
in service.

Lookups and changes happen on the event loop; reading files and opening sessions do not.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from service.contract.files import (
    ModelSource,
    Snapshot,
    check_name,
    find_models,
    stamps_of_version,
    take_snapshot,
    versions_in,
)
from service.contract.model_config import parse_config_json
from service.errors import (
    AttendantError,
    InvalidArgument,
    LoadError,
    NotFound,
    Overloaded,
    Unavailable,
)
from service.observe.observers import Observers
from service.observe.server import Outcome
from service.repository.adapters import (
    LoadedAdapter,
    adapters_of,
    bases_first,
    holds_adapter,
    start_adapter,
)
from service.repository.known_model import IndexRow, KnownModel
from service.repository.loading import LoadedVersion, Openers, load_model, start_model
from service.repository.readiness import Readiness
from service.repository.selection import models_at_start, snapshots, source_in
from service.repository.version import parse_version
from service.runtime.background import in_thread, release_memory
from service.serving.model import Host, ServedModel
from service.serving.response_cache import ResponseCache
from service.settings import Settings, aliases_of

MAX_MODELS = 1_024  # names that are or were served
MAX_LOADS = 64  # unfinished loads for clients; each may hold a whole model's files
CHANGING = "its folder has changed, and is loaded once two polls see it alike"
logger = logging.getLogger(__name__)


class Listener(Protocol):
    """Told of each model as it becomes ready, or ceases to be."""

    def __call__(self, name: str, *, is_serving: bool) -> None: ...


def _nobody(name: str, *, is_serving: bool) -> None:
    """No-op: changes before models are loaded have no listener."""


class ModelRepository:
    """Every served version, and why the others are not."""

    def __init__(self, settings: Settings, observers: Observers, openers: Openers) -> None:
        """Raises `LoadError` where the folder, or a model to load from the start, is not there."""
        self._settings = settings
        self._names_at_start = models_at_start(settings)
        self._openers = openers
        self._models: dict[str, KnownModel] = {}
        self._listener: Listener = _nobody
        self.on_device_lost: Callable[[str, str], None] = lambda *_: None  # model, error's text
        self._executor = ThreadPoolExecutor(settings.tokenizer_threads, "tokenizer")
        self._host = Host(
            settings, observers, self._executor, ResponseCache(settings.response_cache_bytes)
        )
        cache = self._host.cache
        observers.metrics.watch_cache(lambda: cache.num_bytes, lambda: cache.num_entries)
        self._loads = asyncio.Semaphore(settings.load_threads)
        self._background: set[asyncio.Task[None]] = set()
        self._num_asked = 0  # loads that clients wait for, or have left
        self._last_seen: dict[str, Snapshot | None] = {}  # by the poll before this one
        self.readiness = Readiness(settings, self._models)
        self.loads: Counter[tuple[str, Outcome]] = Counter()  # by model
        self.aliases = aliases_of(settings)  # models by their further names
        self._is_closing = False
        self._looking: asyncio.Future[list[str]] | None = None

    def __repr__(self) -> str:
        return f"<ModelRepository {sorted(self._served)}, failed {sorted(self.failures)}>"

    async def load_all(self, listener: Listener) -> None:
        """Load what is to be served from the start; tell `listener` of each model.

        A model that cannot be loaded is reported under its name and does not stop the others.
        """
        self._listener = listener
        folder = self._settings.model_repository
        for name in sorted(self._names_at_start, key=lambda name: holds_adapter(folder / name)):
            with suppress(LoadError):
                await self._load(source_in(self._settings, name))
        self.readiness.is_loading = False
        if self.readiness.obstacle:
            logger.warning("the server is not ready: %s", self.readiness.obstacle)
        if self._settings.model_control_mode == "poll":
            self._start(self._poll())

    @property
    def failures(self) -> dict[str, str]:
        """The reason of each model's last failure, in loading or serving."""
        return {name: model.failure for name, model in self._models.items() if model.failure}

    def models(self) -> list[ServedModel]:
        """Every served version, by name and version."""
        return [
            versions[version]
            for _, versions in sorted(self._served.items())
            for version in sorted(versions)
        ]

    def engaged(self) -> list[ServedModel]:
        """Those, and the ones that were replaced or unloaded and answer their last."""
        retiring = [version for model in self._models.values() for version in model.retiring]
        return self.models() + retiring

    def versions(self, name: str) -> list[int]:
        return sorted(self._served.get(name, ()))

    def find(self, name: str, version: str = "") -> ServedModel:
        """The requested model, in the highest version if none is named.

        Whoever asks it enters its `users` before anything else happens on the event loop: then it
        is not closed while it answers, though it be replaced.

        Raises `InvalidArgument` for a version that is no number, `NotFound`, and
        `Unavailable` while models are still loading; with Triton's texts.
        """
        number, name = parse_version(version), self._named(name)
        known = self._models.get(name)
        versions = known.versions if known is not None else {}
        if not versions:
            if self.readiness.is_loading:
                raise Unavailable("Server not ready")
            if name in self._models and number is not None:
                raise Unavailable(
                    f"Request for unknown model: '{name}' version {number} is not at ready state"
                )
            if known is not None and known.lacks_base:
                raise Unavailable(f"Request for unknown model: '{name}': {known.failure}")
            if name in self._models:
                raise NotFound(f"Request for unknown model: '{name}' has no available versions")
            raise NotFound(f"Request for unknown model: '{name}' is not found")
        if number is None:
            return versions[max(versions)]
        if number not in versions:
            raise NotFound(f"Request for unknown model: '{name}' version {number} is not found")
        return versions[number]

    def _named(self, name: str) -> str:
        """The model that a request means: by its name, another one, or as the only one."""
        if name in self._models:
            return name
        if name not in self.aliases and self._settings.any_model_name and len(self._served) == 1:
            return next(iter(self._served))
        return self.aliases.get(name, name)

    def has(self, name: str, version: str = "") -> bool:
        """Whether `find` would find it; a version that is no number is still refused."""
        number = parse_version(version)
        versions = self._served.get(self._named(name), {})
        return bool(versions) if number is None else number in versions

    async def index(self) -> list[IndexRow]:
        """Every version that is served or failed to be, and folders that are not loaded.

        An unloaded model whose folder is gone too is no longer there.
        """
        if self._looking is None or self._looking.done():  # one poll serves all concurrent requests
            look = partial(find_models, self._settings.model_repository, list(self._models))
            self._looking = asyncio.ensure_future(in_thread(look))
        names = await asyncio.shield(self._looking)
        rows = [IndexRow(name) for name in names if name not in self._models]
        for model in self._models.values():
            if model.name in names or not model.is_gone:
                rows += model.rows()
        return sorted(rows, key=lambda row: (row.name, row.version))

    async def load(
        self,
        name: str,
        config_json: str | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        """Load or load anew what a client names.

        `config_json` replaces the folder's configuration and `files` the folder itself, until the
        model is unloaded. Raises `Unavailable` where clients may not, `InvalidArgument`, and
        `LoadError`; what was served before a failure still is.
        """
        self._check_explicit()
        check_name(name)
        if files and config_json is None:
            raise InvalidArgument(
                f"failed to load '{name}', files are given without parameter 'config'"
            )
        if self._num_asked >= MAX_LOADS:
            raise Overloaded(f"Exceeds maximum of {MAX_LOADS} loads at once")
        task = self._start(self._load_named(name, config_json, files or {}))
        self._num_asked += 1
        task.add_done_callback(self._count_out)
        try:
            await asyncio.shield(task)  # a client that leaves does not undo it
        except asyncio.CancelledError:
            if task.cancelled():
                raise Unavailable("Server exiting") from None
            raise

    def _count_out(self, _: object) -> None:
        self._num_asked -= 1

    async def unload(self, name: str) -> None:
        """Stop serving a model; returns at once, and the model answers its accepted requests.

        One that is not served is left as it is.
        """
        self._check_explicit()
        model = self._models.get(name)
        if model is not None:
            async with model.turn:
                self._unload(name, model)

    async def poll_once(self) -> None:
        """Load what is new or changed, and unload what is gone.

        A folder is loaded once two polls see it alike, so that none is read half written.
        """
        wanted = [name for name, model in self._models.items() if model.is_wanted]
        seen = await in_thread(partial(snapshots, self._settings, wanted))
        last_seen, self._last_seen = self._last_seen, seen
        for name in bases_first(seen):
            model, snapshot = self._models.get(name), seen[name]
            is_new = model is None or not model.is_wanted or model.snapshot != snapshot
            keeps_still = name in last_seen and last_seen[name] == snapshot
            if model is not None:
                model.delay = "" if keeps_still or not is_new else CHANGING
            if is_new and keeps_still:
                with suppress(LoadError):
                    await self._load(source_in(self._settings, name))
        for name in [name for name in self._models if name not in seen]:
            async with self._models[name].turn:
                self._unload(name, self._models[name])

    def stop_changing(self) -> None:
        """Neither load nor unload any more."""
        self._is_closing = True
        for task in self._background:
            task.cancel()

    def stop(self) -> None:
        """Every engine ends what runs and refuses the rest; does not wait for it."""
        for model in self.engaged():
            model.stop()

    def close(self, timeout_s: float) -> None:
        """Stop every engine; blocks until running batches end, or the time is over."""
        deadline_s = time.monotonic() + timeout_s
        self.stop()
        for model in self.engaged():
            model.close(max(0.0, deadline_s - time.monotonic()))
        for known in self._models.values():
            known.source.discard()
        self._executor.shutdown(wait=False, cancel_futures=True)

    @property
    def _served(self) -> dict[str, dict[int, ServedModel]]:
        return {name: model.versions for name, model in self._models.items() if model.versions}

    def _check_explicit(self) -> None:
        if self._settings.model_control_mode != "explicit":
            raise Unavailable("explicit model load / unload is not allowed if polling is enabled")
        if self._is_closing:
            raise Unavailable("Server exiting")

    async def _load_named(
        self, name: str, config_json: str | None, files: Mapping[str, bytes]
    ) -> None:
        known = self._models.get(name)
        is_again = config_json is None and known is not None and known.is_wanted
        if config_json is not None:
            try:
                # A megabyte of it takes a second: not on the event loop.
                await in_thread(partial(parse_config_json, config_json, name))
            except LoadError as error:
                raise LoadError(f"failed to load '{name}', {error}") from error
        if files:
            assert config_json is not None, "checked before"
            source = await in_thread(partial(ModelSource.received, name, config_json, files))
        elif is_again and known is not None:
            source = known.source
        else:
            source = source_in(self._settings, name, config_json)
        if not await in_thread(source.folder.is_dir):
            if known is not None and known.is_wanted:
                known.failure = "its folder is no longer in the repository"
            raise LoadError(f"failed to load '{name}', failed to poll from model repository")
        try:
            await self._load(source, is_again=is_again)
        except LoadError as error:
            latest = self._models[name].latest if name in self._models else None
            which = f"version {latest} is at UNAVAILABLE state: " if latest else ""
            raise InvalidArgument(f"load failed for model '{name}': {which}{error}") from error

    async def _load(self, source: ModelSource, *, is_again: bool = False) -> None:
        """Load a model beside what is served of it, and put it in its place.

        Again, it is what was loaded last when its turn has come, whatever it was before.
        """
        name = source.name
        if name not in self._models:
            self._make_room()
            self._models[name] = KnownModel(source)
        model = self._models[name]
        async with model.turn:
            source = model.source if is_again else source
            model.is_wanted = model.is_loading = True
            try:
                async with self._loads:
                    await self._replace(model, source)
                self.loads[name, "success"] += 1
            except LoadError as error:
                self.loads[name, "failure"] += 1
                model.failure = str(error)
                logger.error("failed to load '%s': %s", name, error)  # noqa: TRY400
                raise
            except Exception as error:  # what a damaged file makes of a library
                self.loads[name, "failure"] += 1
                model.failure = f"{type(error).__name__}: {error}"
                logger.exception("failed to load '%s'", name)
                raise LoadError(model.failure) from error
            finally:
                model.is_loading = False
                if model.source is not source:
                    source.discard()
                self._listener(name, is_serving=bool(model.versions))

    def _make_room(self) -> None:
        """Forget the name that was unloaded first, where too many are known."""
        if len(self._models) < MAX_MODELS:
            return
        idle = next((n for n, model in self._models.items() if model.is_forgettable), None)
        if idle is None:
            raise LoadError(f"{MAX_MODELS} models are served, which is the limit")
        del self._models[idle], self.loads[idle, "success"], self.loads[idle, "failure"]

    async def _replace(self, model: KnownModel, source: ModelSource) -> None:
        started_s = time.monotonic()
        model.snapshot = None
        model.snapshot = snapshot = await in_thread(partial(take_snapshot, source))
        prints = {
            number: (source.root, source.config_json, stamps_of_version(snapshot, number))
            for number in versions_in(snapshot)
        }
        model.latest = max(prints, default=None)
        kept = {
            number: version
            for number, version in model.versions.items()
            if model.prints[number] == prints.get(number)
        }
        loaded = await in_thread(
            partial(load_model, source, self._settings, self._openers, frozenset(kept))
        )
        before = model.versions
        lost = sorted(kept.keys() - before.keys())
        kept = {number: before[number] for number in kept.keys() - lost}  # on another base, perhaps
        if lost:
            model.snapshot = None  # so that a poll looks again
            raise LoadError(f"version {lost[0]}, which had not changed, failed meanwhile")
        served = dict(kept)
        if loaded.versions or loaded.adapters:
            model.parent = loaded.adapters[-1].adapter.base if loaded.adapters else ""
        try:
            for new in loaded.all_new:
                served[new.number] = self._open(model, new, started_s)
        except BaseException:
            for number in served.keys() - kept.keys():
                self._retire(model, served[number])
            raise
        model.versions = {number: served[number] for number in loaded.numbers}
        model.prints = {number: prints[number] for number in model.versions}
        model.failure, model.is_broken, model.lacks_base = "", False, False
        if model.source is not source:
            model.source.discard()
            model.source = source
        for number, version in before.items():
            if model.versions.get(number) is not version:
                self._retire(model, version)
        self._follow(model.name)

    def _follow(self, name: str) -> None:
        """Put the adapters of a model on what is served of it now; without it they wait for it."""
        served = self._served.get(name)
        base = served[max(served)] if served else None
        for adapter in adapters_of(name, self._models.values()):
            if adapter.base is base:
                continue
            model = self._models[adapter.name]
            loaded = LoadedAdapter(adapter.name, adapter.version, adapter.adapter)
            try:
                model.versions[adapter.version] = start_adapter(loaded, self._models, self._host)
            except LoadError as error:
                del model.versions[adapter.version]
                model.failure, model.lacks_base = str(error), not model.versions
                logger.warning("'%s' is not served: %s", adapter.name, error)
                self._listener(adapter.name, is_serving=bool(model.versions))
            self._retire(model, adapter)
        for model in self._models.values() if base else ():
            if (
                model.parent == name
                and model.is_wanted
                and not (model.versions or model.is_loading)
            ):
                self._start(self._load_again(model))

    async def _load_again(self, model: KnownModel) -> None:
        with suppress(LoadError):
            await self._load(model.source, is_again=True)

    def _open(
        self, model: KnownModel, loaded: LoadedVersion | LoadedAdapter, started_s: float
    ) -> ServedModel:
        adapter = None
        if isinstance(loaded, LoadedAdapter):
            adapter = start_adapter(loaded, self._models, self._host)
        metrics = self._host.observers.metrics.for_model(model.name, loaded.number)
        metrics.load_s = time.monotonic() - started_s
        logger.info(
            "loaded '%s' version %d in %.2f s: %s",
            *(model.name, loaded.number, metrics.load_s, loaded.description),
        )
        if isinstance(loaded, LoadedAdapter):
            assert adapter is not None, "it was started above"
            return adapter
        if loaded.cost is not None:
            logger.debug("costs of '%s' version %d: %r", model.name, loaded.number, loaded.cost)

        def on_broken() -> None:
            self._withdraw(model, served)

        served = start_model(loaded, self._host, on_broken)
        return served

    def _withdraw(self, model: KnownModel, version: ServedModel) -> None:
        """A version that serves no more: unready, unhealthy, and not to be found."""
        if model.versions.get(version.version) is not version:
            return  # another has its place
        del model.versions[version.version]
        model.is_broken = True
        model.failure = "the model failed while serving, see the log"
        if (failure := version.device_failure) is not None:
            model.failure = "the model's device is lost until the server is restarted, see the log"
            self.on_device_lost(version.name, str(failure))
        self._listener(version.name, is_serving=bool(model.versions))
        self._retire(model, version)
        self._follow(version.name)

    def _unload(self, name: str, model: KnownModel) -> None:
        if not model.is_wanted:
            return
        versions, model.versions = model.versions, {}
        model.is_wanted = model.is_broken = model.lacks_base = False
        model.failure = ""
        model.snapshot = None
        model.source.discard()
        model.source = source_in(self._settings, name)
        logger.info("unloading '%s'", name)
        self._listener(name, is_serving=False)
        for version in versions.values():
            self._retire(model, version)
        self._follow(name)

    def _retire(self, model: KnownModel, version: ServedModel) -> None:
        """Let a replaced version answer its accepted requests, then close it."""
        model.retiring[version] = None
        self._start(self._close(model, version))

    async def _close(self, model: KnownModel, version: ServedModel) -> None:
        timeout_s = self._settings.drain_timeout_s
        if not await version.users.wait_empty(timeout_s):
            logger.warning(
                "'%s' version %d still had %d calls %.0f s after it was replaced",
                *(version.name, version.version, version.users.count, timeout_s),
            )
        version.stop()
        await in_thread(partial(version.close, timeout_s))
        if version.version not in model.versions:
            version.unwatch()
        del model.retiring[version]
        del version
        await in_thread(release_memory)

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """A task that is not forgotten before it is done."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._settings.repository_poll_s)
            try:
                await self.poll_once()
            except (AttendantError, OSError) as error:
                logger.error("cannot read the model repository: %s", error)  # noqa: TRY400
            except Exception:
                logger.exception("a poll of the model repository failed")
