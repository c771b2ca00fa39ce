"""The same server over HTTP, asked by Triton's HTTP clients."""

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException
from tritonclient.utils import shared_memory as shm

from tests.conformance.models import write_add_sub
from tests.conformance.test_inference import COUNTING, ONES, VALUES
from tests.conformance.test_settings_calls import LOG_KEYS, TRACE_KEYS
from tests.e2e.server import ServerProcess

pytest.importorskip("geventhttpclient", reason="tritonclient[http] is not installed")
from tritonclient import http as triton
from tritonclient.http import aio

NAME = "comes_and_goes_by_http"
ALGORITHMS = [None, "gzip", "deflate"]
BINARY_ONLY = ("FP16", "BF16")


@pytest.fixture
def client(server: ServerProcess) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(server.http_address) as connected:
        yield connected


def tensor(
    name: str, array: np.ndarray, datatype: str = "INT32", *, is_binary: bool = True
) -> triton.InferInput:
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, binary_data=is_binary)
    return made


def two(*, is_binary: bool = True) -> list[Any]:
    pairs = (("INPUT0", COUNTING), ("INPUT1", ONES))
    return [tensor(name, array, is_binary=is_binary) for name, array in pairs]


def refused(status: int, text: str = "") -> Any:
    return pytest.raises(
        InferenceServerException,
        check=lambda error: error.status() == str(status) and text in error.message(),
    )


@pytest.mark.parametrize("datatype", VALUES)
def test_every_datatype_comes_back_binary(
    client: triton.InferenceServerClient, datatype: str
) -> None:
    sent = VALUES[datatype]
    result = client.infer(f"identity_{datatype.lower()}", [tensor("INPUT0", sent, datatype)])
    output = result.get_output("OUTPUT0")
    assert (output["datatype"], output["shape"]) == (datatype, list(sent.shape))
    back = result.as_numpy("OUTPUT0")
    assert back.tolist() == sent.tolist() or back.tobytes() == sent.tobytes()


@pytest.mark.parametrize("datatype", sorted(VALUES.keys() - {*BINARY_ONLY}))
def test_every_datatype_comes_back_in_json(
    client: triton.InferenceServerClient, datatype: str
) -> None:
    sent = VALUES[datatype]
    if sent.dtype.kind == "f":
        sent = np.nan_to_num(sent, posinf=0)  # JSON has no others
    outputs = [triton.InferRequestedOutput("OUTPUT0", binary_data=False)]
    inputs = [tensor("INPUT0", sent, datatype, is_binary=False)]
    result = client.infer(f"identity_{datatype.lower()}", inputs, outputs=outputs)
    back = result.as_numpy("OUTPUT0").tolist()
    expected = sent.tolist()
    if datatype == "BYTES":
        expected = [[text.decode() for text in row] for row in expected]
    assert back == expected


@pytest.mark.parametrize("datatype", BINARY_ONLY)
def test_half_precision_in_json_is_refused(
    client: triton.InferenceServerClient, datatype: str
) -> None:
    outputs = [triton.InferRequestedOutput("OUTPUT0", binary_data=False)]
    inputs = [tensor("INPUT0", VALUES[datatype], datatype)]
    with refused(400, f"sending {datatype} data via JSON is not supported"):
        client.infer(f"identity_{datatype.lower()}", inputs, outputs=outputs)


def test_numbers_that_are_not_finite_come_back_in_json(
    client: triton.InferenceServerClient,
) -> None:
    sent = np.array([[1.5, np.nan, np.inf, -np.inf]], np.float32)
    outputs = [triton.InferRequestedOutput("OUTPUT0", binary_data=False)]
    result = client.infer("identity_fp32", [tensor("INPUT0", sent, "FP32")], outputs=outputs)
    assert np.array_equal(result.as_numpy("OUTPUT0"), sent, equal_nan=True)


@pytest.mark.parametrize("answer_algorithm", ALGORITHMS)
@pytest.mark.parametrize("request_algorithm", ALGORITHMS)
@pytest.mark.parametrize("num_values", [16, 2**18])
def test_both_sides_may_compress(
    client: triton.InferenceServerClient,
    num_values: int,
    request_algorithm: str | None,
    answer_algorithm: str | None,
) -> None:
    sent = np.arange(num_values, dtype=np.float32).reshape(1, -1)
    result = client.infer(
        "identity_fp32",
        [tensor("INPUT0", sent, "FP32")],
        request_compression_algorithm=request_algorithm,
        response_compression_algorithm=answer_algorithm,
    )
    assert np.array_equal(result.as_numpy("OUTPUT0"), sent)


def test_long_tensors_in_json_come_and_go(client: triton.InferenceServerClient) -> None:
    sent = np.random.default_rng(0).standard_normal((8, 20_000)).astype(np.float32)
    outputs = [triton.InferRequestedOutput("OUTPUT0", binary_data=False)]
    inputs = [tensor("INPUT0", sent, "FP32", is_binary=False)]
    result = client.infer("identity_fp32", inputs, outputs=outputs)
    assert np.array_equal(result.as_numpy("OUTPUT0"), sent)


def test_long_binary_tensors_come_and_go(client: triton.InferenceServerClient) -> None:
    sent = np.arange(2**21, dtype=np.float32).reshape(8, -1)
    result = client.infer("identity_fp32", [tensor("INPUT0", sent, "FP32")])
    assert np.array_equal(result.as_numpy("OUTPUT0"), sent)


@pytest.mark.parametrize("is_binary", [True, False])
def test_classes_come_with_their_labels(
    client: triton.InferenceServerClient, is_binary: bool
) -> None:
    image = np.zeros((3, 224, 224), np.float32)
    output = triton.InferRequestedOutput("fc6_1", binary_data=is_binary, class_count=2)
    result = client.infer("densenet_onnx", [tensor("data_0", image, "FP32")], outputs=[output])
    first, second = (
        text.decode() if is_binary else text for text in result.as_numpy("fc6_1").tolist()
    )
    assert (first, second) == ("0.000000:0:class 0", "0.000000:1:class 1")


def test_the_version_and_the_id_come_back(client: triton.InferenceServerClient) -> None:
    inputs = [tensor("INPUT0", np.array([[40]], np.int32))]
    for version, answered in (("", "2"), ("1", "1")):
        result = client.infer("versions", inputs, model_version=version, request_id="seven")
        response = result.get_response()
        assert (response["model_version"], response["id"]) == (answered, "seven")
        assert result.as_numpy("OUTPUT0").tolist() == [[40 + int(answered)]]
    assert "id" not in client.infer("versions", inputs).get_response()


def test_requests_in_parallel_are_answered(client: triton.InferenceServerClient) -> None:
    waiting = [client.async_infer("simple", two()) for _ in range(3)]
    for each in waiting:
        assert np.array_equal(each.get_result().as_numpy("OUTPUT0"), COUNTING + ONES)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_aio_clients_are_answered(server: ServerProcess, algorithm: str | None) -> None:
    async with aio.InferenceServerClient(server.http_address) as client:
        assert await client.is_server_ready()
        assert (await client.get_model_metadata("simple"))["platform"] == "onnxruntime_onnx"
        options = {
            "request_compression_algorithm": algorithm,
            "response_compression_algorithm": algorithm,
        }
        results = await asyncio.gather(
            *(client.infer("simple", two(), **options) for _ in range(3))
        )
        assert all(np.array_equal(r.as_numpy("OUTPUT1"), COUNTING - ONES) for r in results)
        with refused(404, "Request for unknown model: 'nobody' is not found"):
            await client.infer("nobody", two())


@pytest.mark.parametrize("is_binary", [True, False])
@pytest.mark.parametrize(
    ("model", "version", "status", "text"),
    [
        ("nobody", "", 404, "Request for unknown model: 'nobody' is not found"),
        ("versions", "5", 404, "version 5 is not found"),
        ("identity_int8", "", 400, "expected 1 inputs but got 2 inputs for model 'identity_int8'"),
        ("simple_int8", "", 400, "inference input 'INPUT0' data-type is 'INT32', but model"),
    ],
)
def test_refusals_have_a_status_and_a_text(
    client: triton.InferenceServerClient,
    model: str,
    version: str,
    status: int,
    text: str,
    is_binary: bool,
) -> None:
    with refused(status, text):
        client.infer(model, two(is_binary=is_binary), model_version=version)


def test_an_error_of_the_model_is_500(client: triton.InferenceServerClient) -> None:
    with refused(500, "out of data bounds"):
        client.infer("lookup", [tensor("index", np.array([[99]], np.int64), "INT64")])


def test_health_and_descriptions(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("simple")
    assert not client.is_model_ready("nobody")
    server = client.get_server_metadata()
    assert server["name"] == "triton"
    assert "binary_tensor_data" in server["extensions"]
    metadata = client.get_model_metadata("simple")
    assert metadata["inputs"][0] == {"name": "INPUT0", "datatype": "INT32", "shape": [-1, 16]}
    config = client.get_model_config("simple")
    assert (config["max_batch_size"], config["input"][0]["dims"]) == (8, [16])
    (statistics,) = client.get_inference_statistics("simple")["model_stats"]
    assert isinstance(statistics["inference_stats"]["success"]["ns"], int)
    assert len(client.get_inference_statistics()["model_stats"]) > 5
    with refused(404):
        client.get_model_metadata("nobody")


class Region:
    """A region that the server knows by its name, gone after the test."""

    def __init__(self, client: triton.InferenceServerClient, num_bytes: int) -> None:
        self.name, self.key = "a region of http", "/attendant-http"
        self.handle = shm.create_shared_memory_region(self.name, self.key, num_bytes)
        client.register_system_shared_memory(self.name, self.key, num_bytes)


@pytest.fixture
def region(client: triton.InferenceServerClient) -> Iterator[Region]:
    made = Region(client, 256)
    yield made
    client.unregister_system_shared_memory(made.name)
    shm.destroy_shared_memory_region(made.handle)


def test_tensors_in_shared_memory(client: triton.InferenceServerClient, region: Region) -> None:
    (status,) = client.get_system_shared_memory_status(region.name)
    assert status == {"name": region.name, "key": region.key, "offset": 0, "byte_size": 256}
    shm.set_shared_memory_region(region.handle, [COUNTING, ONES])
    inputs = [triton.InferInput(f"INPUT{index}", [1, 16], "INT32") for index in range(2)]
    outputs = [triton.InferRequestedOutput(f"OUTPUT{index}") for index in range(2)]
    for index in range(2):
        inputs[index].set_shared_memory(region.name, 64, 64 * index)
        outputs[index].set_shared_memory(region.name, 64, 128 + 64 * index)
    response = client.infer("simple", inputs, outputs=outputs).get_response()
    assert [output.keys() for output in response["outputs"]] == [{"name", "datatype", "shape"}] * 2
    total = shm.get_contents_as_numpy(region.handle, np.int32, [1, 16], 128)
    assert np.array_equal(total, COUNTING + ONES)
    inputs[1] = tensor("INPUT1", ONES)
    mixed = client.infer("simple", inputs)
    assert np.array_equal(mixed.as_numpy("OUTPUT0"), COUNTING + ONES)
    with refused(400, "already in manager"):
        client.register_system_shared_memory(region.name, region.key, 256)
    inputs[0].set_shared_memory("nobody", 64)
    with refused(404, "Unable to find shared memory region: 'nobody'"):
        client.infer("simple", inputs)


def test_cuda_memory_is_refused(client: triton.InferenceServerClient) -> None:
    assert client.get_cuda_shared_memory_status() == []
    with refused(400, "failed to register"):
        client.register_cuda_shared_memory("c", base64.b64encode(bytes(64)), 0, 64)
    client.unregister_cuda_shared_memory()


def test_a_model_comes_and_goes(client: triton.InferenceServerClient, repository: Path) -> None:
    if not (repository / NAME).exists():
        write_add_sub(repository, NAME, "INT32")
    client.load_model(NAME, config=json.dumps({"max_batch_size": 16}))
    assert client.get_model_config(NAME)["max_batch_size"] == 16
    index = {row["name"]: row for row in client.get_model_repository_index()}
    assert index[NAME] == {"name": NAME, "version": "1", "state": "READY", "reason": ""}
    client.unload_model(NAME)
    assert not client.is_model_ready(NAME)
    graph = (repository / "simple/1/model.onnx").read_bytes()
    files = {"file:3/model.onnx": graph}
    client.load_model("sent_by_http", config=json.dumps({"backend": "onnxruntime"}), files=files)
    assert client.infer("sent_by_http", two()).get_response()["model_version"] == "3"
    client.unload_model("sent_by_http")
    with refused(500, "failed to load 'nobody', failed to poll from model repository"):
        client.load_model("nobody")


def test_trace_and_log_settings(client: triton.InferenceServerClient) -> None:
    settings = client.get_trace_settings()
    assert settings.keys() >= TRACE_KEYS
    assert settings["trace_level"] == ["OFF"]
    assert client.update_trace_settings("simple", {"trace_rate": "7"})["trace_rate"] == "7"
    assert client.get_trace_settings("simple")["trace_rate"] == "7"
    cleared = client.update_trace_settings("simple", {"trace_rate": None})
    assert cleared["trace_rate"] == settings["trace_rate"]
    logs = client.get_log_settings()
    assert logs.keys() == LOG_KEYS
    changed = client.update_log_settings({"log_verbose_level": 1})
    assert changed["log_verbose_level"] == 1
    client.update_log_settings({"log_verbose_level": logs["log_verbose_level"]})
    with refused(501, "log file location can not be updated through network protocol"):
        client.update_log_settings({"log_file": "somewhere"})
    with refused(400, "unknown model : nobody"):
        client.get_trace_settings("nobody")
