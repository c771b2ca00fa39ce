"""Messages as JSON values, as clients of Triton read them."""

from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.model_config_pb2 import ModelConfig

from service.http.wire.plain import plain


def test_names_are_the_protocol_s_and_numbers_of_64_bits_are_numbers() -> None:
    statistics = pb.ModelStatistics(name="m", inference_count=2**63)
    statistics.inference_stats.success.ns = 2**62
    values = plain(pb.ModelStatisticsResponse(model_stats=[statistics]))
    (only,) = values["model_stats"]
    assert only["inference_count"] == 2**63
    assert only["inference_stats"]["success"] == {"count": 0, "ns": 2**62}


def test_defaults_are_written_and_unset_messages_are_not() -> None:
    config = ModelConfig(name="m")
    config.input.add(name="x", data_type="TYPE_FP32", dims=[-1, 3])
    values = plain(config)
    assert (values["max_batch_size"], values["output"], values["platform"]) == (0, [], "")
    assert values["input"][0]["data_type"] == "TYPE_FP32"
    assert values["input"][0]["dims"] == [-1, 3]
    assert "dynamic_batching" not in values


def test_a_map_is_an_object_and_bytes_are_base64() -> None:
    config = ModelConfig()
    config.parameters["key"].string_value = "value"
    assert plain(config)["parameters"] == {"key": {"string_value": "value"}}
    parameter = pb.ModelRepositoryParameter(bytes_param=b"\x00\xff")
    assert plain(parameter) == {"bytes_param": "AP8="}
    assert plain(pb.ModelRepositoryParameter()) == {}
