"""`/v2`: what is known of the server and its models, in the JSON of the Open Inference Protocol.

Each handler makes the message of an operation from the path, and JSON of its answer.
"""

from collections.abc import Callable
from typing import TypeVar

from tritonclient.grpc import service_pb2 as pb

from service.http.kserve.calls import PREFIX
from service.http.messages import to_json
from service.http.request import Reply, Request
from service.http.routes import Route

T = TypeVar("T")
MODEL = "/v2/models/{model}"
VERSION = f"{MODEL}/versions/{{version}}"


def metadata_routes() -> tuple[Route, ...]:
    of_models = {
        "": ("ModelMetadata", model_metadata),
        "/ready": ("ModelReady", model_ready),
        "/config": ("ModelConfig", model_config),
        "/stats": ("ModelStatistics", model_statistics),
    }
    return (
        Route("GET", "/v2", server_metadata, f"{PREFIX}ServerMetadata"),
        Route("GET", "/v2/models/stats", model_statistics, f"{PREFIX}ModelStatistics"),
        *(
            Route(
                "GET",
                f"{path}{suffix}",
                handler,
                f"{PREFIX}{operation}",
                answers_503=handler is model_ready,
            )
            for path in (MODEL, VERSION)
            for suffix, (operation, handler) in of_models.items()
        ),
    )


async def server_metadata(request: Request) -> Reply:
    answer = await request.ask(f"{PREFIX}ServerMetadata", pb.ServerMetadataRequest())
    return Reply(to_json(answer))


async def model_metadata(request: Request) -> Reply:
    answer = await request.ask(f"{PREFIX}ModelMetadata", named(request, pb.ModelMetadataRequest))
    return Reply(to_json(answer))


async def model_ready(request: Request) -> Reply:
    answer = await request.ask(f"{PREFIX}ModelReady", named(request, pb.ModelReadyRequest))
    name = request.parameters["model"]
    return Reply.json({"name": name, "ready": answer.ready}, 200 if answer.ready else 503)


async def model_config(request: Request) -> Reply:
    answer = await request.ask(f"{PREFIX}ModelConfig", named(request, pb.ModelConfigRequest))
    return Reply(to_json(answer.config))


async def model_statistics(request: Request) -> Reply:
    message = named(request, pb.ModelStatisticsRequest)
    answer = await request.ask(f"{PREFIX}ModelStatistics", message)
    return Reply(to_json(answer))


def named(request: Request, kind: Callable[..., T]) -> T:
    """A message about the model that the path names, if it does."""
    parameters = request.parameters
    return kind(name=parameters.get("model", ""), version=parameters.get("version", ""))
