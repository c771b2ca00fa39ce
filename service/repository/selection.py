"""Which models of a repository's folder are served: all, or those that `--load-models` names.

Reads folders, so it runs on a worker thread.
"""

import logging
from collections.abc import Collection

from service.contract.files import (
    ModelSource,
    Snapshot,
    find_folders,
    find_models,
    take_snapshot,
    why_no_model,
)
from service.errors import LoadError
from service.settings import Settings, link_targets_of

logger = logging.getLogger(__name__)


def models_at_start(settings: Settings) -> list[str]:
    """The names of the models to load first, with a line in the log where there is none.

    Raises `LoadError` where `--load-models` names one that is not there.
    """
    repository, selected = settings.model_repository, _selected(settings)
    names = find_models(repository, known=selected)
    if selected:
        unknown = sorted(set(selected) - set(names))
        if unknown:
            raise LoadError(
                f"--load-models names '{unknown[0]}', but the repository has {', '.join(names)}"
            )
        return selected
    for name in find_folders(repository):
        if name not in names:
            reason = why_no_model(repository / name)
            logger.info("'%s' in the repository is no model, and is passed over: %s", name, reason)
    is_explicit = settings.model_control_mode == "explicit"
    if is_explicit and not settings.load_models.strip():
        names = []
    if not names and is_explicit:
        logger.info("--load-models names none: clients load models")
    elif not names:  # a wrong mount looks like this
        logger.warning(
            "--model-repository %s has no models: expected a folder for each, "
            "with its versions in folders of their own",
            settings.model_repository.absolute(),
        )
    return names


def source_in(settings: Settings, name: str, config_json: str | None = None) -> ModelSource:
    """A model of the repository, whose links may lead to the folders that a setting names."""
    targets = link_targets_of(settings)
    return ModelSource.of(settings.model_repository, name, config_json, targets)


def snapshots(settings: Settings, known: Collection[str]) -> dict[str, Snapshot | None]:
    """The selected models by name; None where a folder may not be read.

    `known` are the models that are served, or failed to be: their folders stay models.
    """
    repository, selected = settings.model_repository, _selected(settings)
    by_name: dict[str, Snapshot | None] = {}
    for name in find_models(repository, [*known, *selected]):
        if selected and name not in selected:
            continue
        try:
            by_name[name] = take_snapshot(source_in(settings, name))
        except (LoadError, OSError):
            by_name[name] = None
    return by_name


def _selected(settings: Settings) -> list[str]:
    """The names in `--load-models`, each once; empty if it names none in particular."""
    names = (name.strip() for name in settings.load_models.split(","))
    selected = list(dict.fromkeys(name for name in names if name))
    return [] if selected == ["*"] else selected
