"""`ListModels`: what every model says of itself."""

from collections.abc import Callable

from service.calls.models import ListModels, Models
from service.repository.repository import ModelRepository
from service.serving.model import Caller


class ModelList:
    """The models of a repository, as clients see them."""

    def __init__(self, repository: ModelRepository, max_items: int) -> None:
        self._repository = repository
        self._max_items = max_items

    async def ListModels(
        self,
        _: ListModels,
        _caller: Caller,
        build: Callable[[Models], object] = lambda models: models,
    ) -> object:
        """The facts of all models, and of further names that have one, by `build`."""
        facts = [model.facts() for model in self._repository.models()]
        names = {each.name for each in facts}
        facts += [
            each.also(name=name)
            for name, model in self._repository.aliases.items()
            for each in facts
            if each.name == model and name not in names
        ]
        return build(Models(facts, self._max_items))
