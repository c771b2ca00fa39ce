"""Whether a repository is ready to serve, and if not, the reason and the remedy.

Reads the state of each model; it may be read on any thread.
"""

from collections.abc import Mapping, Sequence

from service.repository.known_model import KnownModel
from service.settings import Settings

MAX_NAMED = 3  # models in one line


class Readiness:
    """The readiness of the models in `known`; under strict readiness all wanted ones must serve."""

    def __init__(self, settings: Settings, known: Mapping[str, KnownModel]) -> None:
        self._settings = settings
        self._known = known
        self.is_loading = True  # until the models of the start are loaded, or failed

    @property
    def is_ready(self) -> bool:
        """Loaded, with no fewer than `min_models`; under strict readiness with all wanted."""
        return not self.obstacle

    @property
    def obstacle(self) -> str:
        """Why the server is not ready, and what can be done; empty if it is."""
        if self.is_loading:
            return "models are loading"
        unserved = self._unserved()
        if not self._settings.strict_readiness or not unserved:
            return self.shortage
        failed = sorted(model.name for model in unserved if not model.is_loading)
        if not failed:
            return f"{_quoted(sorted(model.name for model in unserved))} being loaded"
        return (
            f"{_quoted(failed)} not served, and the log says why: {self._remedy()}; under "
            "--no-strict-readiness the server is ready without it"
        )

    @property
    def shortage(self) -> str:
        """Why there are too few models for `min_models`; empty if there are enough."""
        least = self._settings.min_models
        count = sum(bool(model.versions) for model in list(self._known.values()))
        if count >= least:
            return ""
        folder = self._settings.model_repository.absolute()
        served = "1 model is" if count == 1 else f"{count} models are"
        return f"{served} served of those in {folder}, expected --min-models {least}"

    @property
    def num_unserved(self) -> int:
        """Models that are wanted, and have no version that serves or one that broke."""
        return len(self._unserved())

    def obstacle_of(self, name: str) -> str:
        """Why a model does not serve; empty if it does, or is not known."""
        model = self._known.get(name)
        if model is None or (model.is_wanted and model.is_as_wanted and not model.lacks_base):
            return ""
        if not model.is_wanted:
            return "the model is unloaded"
        if model.is_loading:
            return "the model is being loaded"
        if model.lacks_base:
            return model.failure
        return f"the model failed, and the log says why: {self._remedy()}"

    def _unserved(self) -> list[KnownModel]:
        return [model for model in list(self._known.values()) if not model.is_as_wanted]

    def _remedy(self) -> str:
        return {
            "none": "mend or remove it, and start the server again",
            "poll": "mend or remove it in the repository, which is looked at every "
            f"{self._settings.repository_poll_s:g} s",
            "explicit": "mend it and load it again, or unload it",
        }[self._settings.model_control_mode]


def _quoted(names: Sequence[str]) -> str:
    """`'a' is`, or `'a', 'b' and 2 more are`."""
    shown = ", ".join(f"'{name}'" for name in names[:MAX_NAMED])
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{shown}{more} {'is' if len(names) == 1 else 'are'}"
