"""The classification extension: the largest values of an output, with index and label."""

import numpy as np
import pytest
from tritonclient import grpc as triton

VALUES = np.array([[0.25, -1.0, 0.5, 7.0]], np.float32)


def classes(
    client: triton.InferenceServerClient, datatype: str, values: np.ndarray, count: int
) -> list[list[bytes]]:
    tensor = triton.InferInput("INPUT0", list(values.shape), datatype)
    tensor.set_data_from_numpy(values)
    wanted = triton.InferRequestedOutput("OUTPUT0", class_count=count)
    result = client.infer(f"identity_{datatype.lower()}", [tensor], outputs=[wanted])
    assert result.get_output("OUTPUT0").datatype == "BYTES"
    found: list[list[bytes]] = result.as_numpy("OUTPUT0").tolist()
    return found


@pytest.mark.parametrize(("count", "given"), [(1, 1), (3, 3), (4, 4), (9, 4)])
def test_the_largest_come_first_and_no_more_than_there_are(
    client: triton.InferenceServerClient, count: int, given: int
) -> None:
    expected = [b"7.000000:3", b"0.500000:2", b"0.250000:0", b"-1.000000:1"]
    assert classes(client, "FP32", VALUES, count) == [expected[:given]]


@pytest.mark.parametrize(
    "datatype", ["INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"]
)
def test_whole_numbers_are_written_without_decimals(
    client: triton.InferenceServerClient, datatype: str
) -> None:
    values = np.array([[3, 100, 7]], triton.triton_to_np_dtype(datatype))
    assert classes(client, datatype, values, 2) == [[b"100:1", b"7:2"]]


def test_every_row_has_its_own(client: triton.InferenceServerClient) -> None:
    values = np.array([[1, 2], [4, 3]], np.float64)
    assert classes(client, "FP64", values, 1) == [[b"2.000000:1"], [b"4.000000:0"]]


def test_labels_of_the_models_file_are_told(client: triton.InferenceServerClient) -> None:
    tensor = triton.InferInput("data_0", [3, 224, 224], "FP32")
    tensor.set_data_from_numpy(np.ones((3, 224, 224), np.float32))
    logits = client.infer("densenet_onnx", [tensor]).as_numpy("fc6_1")
    wanted = triton.InferRequestedOutput("fc6_1", class_count=2)
    found = client.infer("densenet_onnx", [tensor], outputs=[wanted]).as_numpy("fc6_1")
    best = np.argsort(-logits)[:2]
    assert found.tolist() == [f"{logits[i]:.6f}:{i}:class {i}".encode() for i in best]
