"""`/v1/load_lora_adapter` and `/v1/unload_lora_adapter`, as vLLM has them.

They load and unload an adapter of the model repository by its name, as the protocol's calls do,
with their access; `lora_path` can name no other folder. Served only under `lora_endpoints`.
"""

import msgspec

from service.errors import LoadError, NotFound
from service.http.request import TEXT, Reply, Request
from service.http.routes import Route
from service.http.shared.models import newest_models
from service.http.status import invalid
from service.settings import Settings

LOAD = "/inference.GRPCInferenceService/RepositoryModelLoad"
UNLOAD = "/inference.GRPCInferenceService/RepositoryModelUnload"


class LoadAdapter(msgspec.Struct, kw_only=True):
    """The body, as vLLM has it."""

    lora_name: str
    lora_path: str
    load_inplace: bool = False


class UnloadAdapter(msgspec.Struct, kw_only=True):
    """The body, as vLLM has it."""

    lora_name: str
    lora_int_id: int | None = None


def adapter_routes(settings: Settings) -> tuple[Route, ...]:
    """Routes that load and unload adapters; none unless the settings offer them."""
    if not settings.lora_endpoints:
        return ()
    return (
        Route("POST", "/v1/load_lora_adapter", load, LOAD, (LoadAdapter,), gives="text/plain"),
        Route(
            "POST", "/v1/unload_lora_adapter", unload, UNLOAD, (UnloadAdapter,), gives="text/plain"
        ),
    )


async def load(request: Request) -> Reply:
    """Load an adapter of the repository; one that is served already only with `load_inplace`."""
    body = await request.json(LoadAdapter)
    name = body.lora_name
    folder = request.front.settings.model_repository / name
    if body.lora_path not in (name, str(folder), str(folder.absolute())):
        raise invalid(
            f"lora_path is '{body.lora_path}', expected '{name}': adapters come from the model "
            "repository, into which `attendant import-adapter` puts them",
            "lora_path",
        )
    served = (await newest_models(request)).get(name)
    if served is not None and not (served.parent and body.load_inplace):
        reason = "is served already: set load_inplace" if served.parent else "is no adapter"
        raise invalid(f"lora_name is '{name}', which {reason}", "lora_name")
    try:
        await request.ask(LOAD, request.front.operations[LOAD].request(model_name=name))
    except LoadError as error:
        raise invalid(str(error), "lora_name") from error
    return _done(f"Success: LoRA adapter '{name}' added successfully.")


async def unload(request: Request) -> Reply:
    """Unload a served adapter, and no other model."""
    name = (await request.json(UnloadAdapter)).lora_name
    served = (await newest_models(request)).get(name)
    if served is None or not served.parent:
        raise NotFound(f"Request for unknown adapter: '{name}' is not found")
    await request.ask(UNLOAD, request.front.operations[UNLOAD].request(model_name=name))
    return _done(f"Success: LoRA adapter '{name}' removed successfully.")


def _done(text: str) -> Reply:
    return Reply(text.encode(), content_type=TEXT)
