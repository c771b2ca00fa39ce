"""Ray Serve, through gRPC: `python ray_app.py PORT HTTP_PORT`, until stdin ends."""
# mypy: disable-error-code="import-not-found, untyped-decorator, misc, attr-defined"

import asyncio
import sys
from typing import Any

import numpy as np
import ray
from embedder import MAX_ROWS, WAIT_S, Embedder
from ray import serve
from ray.serve.config import gRPCOptions
from tritonclient.grpc import service_pb2

SERVICER = "tritonclient.grpc.service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server"
STORE_BYTES = 200_000_000  # shared memory of objects, of which we have none


@serve.deployment(max_ongoing_requests=256)
class EmbedderDeployment:
    """The model runs on a thread, so that requests come in meanwhile."""

    def __init__(self) -> None:
        self._embed = Embedder()

    @serve.batch(max_batch_size=MAX_ROWS, batch_wait_timeout_s=WAIT_S)
    async def vectors(self, texts: list[str]) -> list[np.ndarray]:
        return list(await asyncio.to_thread(self._embed, texts))

    async def ModelInfer(self, request: Any) -> Any:  # noqa: N802 - named by the protocol
        text = request.raw_input_contents[0][4:].decode()  # after its length
        vector = await self.vectors(text)
        return service_pb2.ModelInferResponse(
            model_name=request.model_name,
            outputs=[{"name": "embedding", "datatype": "FP32", "shape": [1, len(vector)]}],
            raw_output_contents=[vector.astype("<f4").tobytes()],
        )


if __name__ == "__main__":
    ray.init(
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        object_store_memory=STORE_BYTES,
        log_to_driver=False,
    )
    serve.start(
        http_options={"host": "127.0.0.1", "port": int(sys.argv[2])},
        grpc_options=gRPCOptions(port=int(sys.argv[1]), grpc_servicer_functions=[SERVICER]),
    )
    serve.run(EmbedderDeployment.bind(), name="model", route_prefix="/")
    sys.stdin.read()
    serve.shutdown()
    ray.shutdown()
