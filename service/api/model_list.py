"""`ListModels`: what every model says of itself."""

from attendant.v1 import text_pb2

from service.api.codec import writer
from service.calls.models import Models
from service.repository.repository import ModelRepository
from service.serving.model import Caller

_WRITE = writer(text_pb2.ListModelsResponse, Models)


class ModelList:
    """The models of a repository, as clients see them."""

    def __init__(self, repository: ModelRepository, max_items: int) -> None:
        self._repository = repository
        self._max_items = max_items

    async def ListModels(
        self, request: text_pb2.ListModelsRequest, caller: Caller
    ) -> text_pb2.ListModelsResponse:
        models = [model.facts() for model in self._repository.models()]
        response: text_pb2.ListModelsResponse = _WRITE(Models(models, self._max_items))
        return response
