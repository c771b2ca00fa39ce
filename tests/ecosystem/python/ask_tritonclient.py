"""`tritonclient[http]`, synchronous and asyncio; `tests/conformance` makes each of its calls."""

import asyncio
import os

import numpy as np
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio

ADDRESS = os.environ["ATTENDANT_URL"].removeprefix("http://")
LEFT = np.arange(16, dtype=np.int32).reshape(1, 16)
RIGHT = np.ones((1, 16), np.int32)


def inputs(*, binary: bool) -> list[triton.InferInput]:
    made = []
    for name, array in (("INPUT0", LEFT), ("INPUT1", RIGHT)):
        each = triton.InferInput(name, array.shape, "INT32")
        each.set_data_from_numpy(array, binary_data=binary)
        made.append(each)
    return made


def check_synchronous() -> None:
    with triton.InferenceServerClient(ADDRESS) as client:
        assert client.is_server_ready()
        assert client.get_model_metadata("simple")["name"] == "simple"
        for binary in (False, True):
            answer = client.infer(
                "simple", inputs(binary=binary), request_compression_algorithm="gzip"
            )
            assert (answer.as_numpy("OUTPUT0") == LEFT + RIGHT).all()
        try:
            client.infer("absent", inputs(binary=True))
        except triton.InferenceServerException as error:
            assert "unknown model" in str(error)
        else:
            raise AssertionError("a model that is absent answered")


async def check_asynchronous() -> None:
    async with triton_aio.InferenceServerClient(ADDRESS) as client:
        assert await client.is_model_ready("simple")
        answer = await client.infer("simple", inputs(binary=True))
        assert (answer.as_numpy("OUTPUT1") == LEFT - RIGHT).all()


if __name__ == "__main__":
    check_synchronous()
    asyncio.run(check_asynchronous())
