"""`kserve`: health, inference in JSON and binary, BYTES, and the error of an unknown model."""

import asyncio
import os

import numpy as np
from kserve import InferInput, InferRequest
from kserve.inference_client import InferenceRESTClient, RESTConfig

URL = os.environ["ATTENDANT_URL"]
LEFT = np.arange(16, dtype=np.int32).reshape(1, 16)
RIGHT = np.ones((1, 16), np.int32)


async def check_numbers(client: InferenceRESTClient, *, binary: bool) -> None:
    inputs = []
    for name, array in (("INPUT0", LEFT), ("INPUT1", RIGHT)):
        each = InferInput(name, [1, 16], "INT32")
        each.set_data_from_numpy(array, binary_data=binary)
        inputs.append(each)
    request = InferRequest("simple", inputs, request_id="seven")
    answer = await client.infer(URL, request, model_name="simple")
    assert answer.id == "seven"
    assert (answer.outputs[0].as_numpy() == LEFT + RIGHT).all()


async def check_texts(client: InferenceRESTClient) -> None:
    texts = InferInput("INPUT0", [1, 2], "BYTES")
    texts.set_data_from_numpy(np.array([["a", "é"]], object), binary_data=False)
    request = InferRequest("identity_bytes", [texts])
    answer = await client.infer(URL, request, model_name="identity_bytes")
    assert [str(each) for each in answer.outputs[0].as_numpy().ravel()] == ["a", "é"]
    try:
        await client.infer(URL, InferRequest("absent", [texts]), model_name="absent")
    except Exception as error:
        assert "404" in str(error) or "400" in str(error), error
    else:
        raise AssertionError("a model that is absent answered")


async def main() -> None:
    client = InferenceRESTClient(RESTConfig(protocol="v2", timeout=10, retries=0, verbose=False))
    assert await client.is_server_live(URL)
    assert await client.is_server_ready(URL)
    assert await client.is_model_ready(URL, "simple")
    await check_numbers(client, binary=False)
    await check_numbers(client, binary=True)
    await check_texts(client)


if __name__ == "__main__":
    asyncio.run(main())
