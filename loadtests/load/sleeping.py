"""A replica whose model sleeps: the real server, with a capacity that needs no processor.

    python -m loadtests.load.sleeping --model-repository FOLDER --grpc-port 0 --metrics-port 0

Everything is as in `attendant serve`, but for the session: a run of up to `MAX_ROWS` rows takes
`RUN_S`, whatever the machine. So several replicas fit on two cores, each able to answer 200
requests per second and no more. The model is `sums`.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from service.app import App, serve
from service.contract.tensors import DATATYPES, Arrays, Signature, TensorSpec
from service.repository.loading import Openers
from service.runtime.session import RunStop, SessionOptions
from service.settings import Settings

RUN_S = 0.040
MAX_ROWS = 8
INT64 = DATATYPES["INT64"]


class SleepingSession:
    """Sums of rows of two, after a while."""

    signature = Signature((TensorSpec("x", INT64, (-1, 2)),), (TensorSpec("y", INT64, (-1, 1)),))

    def __init__(self, graph: Path | bytes, options: SessionOptions) -> None: ...

    def run(
        self,
        inputs: Arrays,
        outputs: Sequence[str],  # noqa: ARG002
        stopping: RunStop | None = None,  # noqa: ARG002
    ) -> list[np.ndarray]:
        time.sleep(RUN_S)
        return [inputs["x"].sum(axis=1, keepdims=True)]


def main(
    model_repository: Annotated[Path, typer.Option()],
    grpc_port: int = 0,
    http_port: int = -1,
    metrics_port: int = 0,
    max_queue_requests: int = 32,
    log_level: str = "warning",
) -> None:
    """Serve until SIGTERM."""
    logging.basicConfig(level=log_level.upper())
    settings = Settings(
        model_repository=model_repository,
        grpc_port=grpc_port,
        http_port=http_port,
        metrics_port=metrics_port,
        max_queue_requests=max_queue_requests,
        default_max_batch_size=MAX_ROWS,
        instances=1,
    )

    async def on_ready(app: App) -> None:
        urls = (
            f"gRPC 127.0.0.1:{app.grpc_port}  metrics http://127.0.0.1:{app.metrics_port}/metrics"
        )
        if app.http_port is not None:
            urls += f"  HTTP http://127.0.0.1:{app.http_port}"
        print(urls, flush=True)  # noqa: T201 - the program that started it waits for this

    asyncio.run(serve(settings, on_ready, Openers(session=SleepingSession)))


if __name__ == "__main__":
    typer.run(main)
