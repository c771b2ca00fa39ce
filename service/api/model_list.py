"""`ListModels`: what every model says of itself."""

from collections.abc import Callable
from typing import Any

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
        call: ListModels,
        caller: Caller,
        build: Callable[[Any], Any] = lambda models: models,
    ) -> object:
        models = [model.facts() for model in self._repository.models()]
        return build(Models(models, self._max_items))
