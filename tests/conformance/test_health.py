"""What a server says of itself and its models."""

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient import grpc as triton
from tritonclient.grpc import aio

from tests.conformance.messages import refused
from tests.conformance.models import KINDS, NUM_EXAMPLE_MODELS
from tests.fakes.refusals import NAMES

EXTENSIONS = {
    "classification",
    "model_repository",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
}


def test_the_server_is_live_and_ready_and_named_as_asked(
    client: triton.InferenceServerClient,
) -> None:
    assert client.is_server_live(headers={"test": "1"})
    assert client.is_server_ready()
    metadata = client.get_server_metadata()
    assert metadata.name == "triton"
    assert metadata.version
    assert set(metadata.extensions) >= EXTENSIONS


async def test_aio_clients_are_told_the_same(aio_client: aio.InferenceServerClient) -> None:
    assert await aio_client.is_server_live()
    assert await aio_client.is_server_ready()
    assert await aio_client.is_model_ready("simple")
    assert (await aio_client.get_server_metadata(as_json=True))["name"] == "triton"
    assert (await aio_client.get_model_metadata("simple")).name == "simple"
    assert (await aio_client.get_model_config("simple")).config.name == "simple"
    assert len((await aio_client.get_model_repository_index()).models) >= NUM_EXAMPLE_MODELS
    await aio_client.get_inference_statistics()
    await aio_client.get_trace_settings()
    await aio_client.get_log_settings()


READY = [
    ("simple", "", True),
    ("simple", "1", True),
    ("simple", "2", False),
    ("versions", "2", True),
    ("versions", "5", False),
    ("nobody", "", False),
    ("", "", False),
]


@pytest.mark.parametrize(("name", "version", "is_ready"), READY)
def test_a_model_that_there_is_not_is_not_ready(
    client: triton.InferenceServerClient, name: str, version: str, is_ready: bool
) -> None:
    assert client.is_model_ready(name, version) is is_ready


def test_a_version_that_is_no_number_is_refused(client: triton.InferenceServerClient) -> None:
    with pytest.raises(triton.InferenceServerException, match="failed to get model version") as e:
        client.is_model_ready("simple", "abc")
    assert e.value.status() == "StatusCode.INVALID_ARGUMENT"


@pytest.mark.parametrize("method", ["get_model_metadata", "get_model_config"])
@pytest.mark.parametrize(("name", "version", "code", "text"), NAMES)
def test_a_model_that_there_is_not_has_no_metadata(
    client: triton.InferenceServerClient,
    method: str,
    name: str,
    version: str,
    code: str,
    text: str,
) -> None:
    with refused(code, text):
        getattr(client, method)(name, version)


@pytest.mark.parametrize("datatype", KINDS)
def test_metadata_names_tensors_with_their_batch_axis(
    client: triton.InferenceServerClient, datatype: str
) -> None:
    metadata = client.get_model_metadata(f"identity_{datatype.lower()}")
    assert (metadata.platform, list(metadata.versions)) == ("onnxruntime_onnx", ["1"])
    for tensor, name in ((metadata.inputs, "INPUT0"), (metadata.outputs, "OUTPUT0")):
        assert [(t.name, t.datatype, list(t.shape)) for t in tensor] == [(name, datatype, [-1, -1])]


def test_metadata_names_every_version_and_no_batch_axis_where_there_is_none(
    client: triton.InferenceServerClient,
) -> None:
    assert list(client.get_model_metadata("versions").versions) == ["1", "2"]
    assert list(client.get_model_metadata("unbatched").inputs[0].shape) == [-1]
    assert list(client.get_model_metadata("densenet_onnx").inputs[0].shape) == [3, 224, 224]


def test_the_configuration_is_complete(client: triton.InferenceServerClient) -> None:
    config = client.get_model_config("simple").config
    assert (config.name, config.max_batch_size) == ("simple", 8)
    assert config.platform == "onnxruntime_onnx"
    assert config.version_policy.latest.num_versions == 1
    assert config.default_model_filename == "model.onnx"
    assert config.instance_group[0].name == "simple_0"
    assert config.instance_group[0].count >= 1
    assert config.instance_group[0].kind != config.instance_group[0].KIND_AUTO
    assert not config.model_transaction_policy.decoupled
    as_json = client.get_model_config("simple", as_json=True)["config"]
    assert as_json["input"][0] == {"name": "INPUT0", "data_type": "TYPE_INT32", "dims": ["16"]}


@pytest.mark.parametrize("service", ["", "simple"])
def test_the_standard_health_service_says_serving(channel: grpc.Channel, service: str) -> None:
    request = health_pb2.HealthCheckRequest(service=service)
    answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=5)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
