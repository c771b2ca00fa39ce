"""Memory of a device, on the CPU: the same graphs and the same copies, over the host's memory."""

import numpy as np
import onnx
import pytest

from service.contract.tensors import DATATYPES, Datatype
from service.errors import DeviceFailed, OutOfMemory
from service.runtime import small_graphs
from service.runtime.binding import Bound, DeviceArray
from service.runtime.device_memory import DeviceMemory
from service.runtime.memory import HostMemory, Memory
from service.runtime.session import OnnxSession, SessionOptions

FP16, FP32, BF16 = DATATYPES["FP16"], DATATYPES["FP32"], DATATYPES["BF16"]


@pytest.fixture(scope="module")
def memory() -> DeviceMemory:
    return DeviceMemory("cpu")


def numbers_of(array: Bound) -> np.ndarray:
    """A copy of what is at an address of the host's memory."""
    if isinstance(array, np.ndarray):
        return array.copy()
    data = array.owner.numpy()  # type: ignore[attr-defined]
    offset = array.address - array.owner.data_ptr()  # type: ignore[attr-defined]
    part = data[offset : offset + array.nbytes]
    return np.array(part.view(array.datatype.dtype).reshape(array.shape))


def write(array: Bound, numbers: np.ndarray) -> None:
    """Through a binding, as a run writes its outputs."""
    if isinstance(array, np.ndarray):
        array[:] = numbers
        return
    session = OnnxSession(small_graphs.copies(1), SessionOptions())
    source = np.frombuffer(np.ascontiguousarray(numbers).tobytes(), np.uint8)
    target = DeviceArray("cpu", 0, DATATYPES["UINT8"], (array.nbytes,), array.address, array.owner)
    session.bind({"from_0": source}, {"to_0": target}).run()


@pytest.mark.parametrize(
    "graph", [small_graphs.copies(1), small_graphs.copies(200), small_graphs.zeros()]
)
def test_small_graphs_are_what_onnx_takes(graph: bytes) -> None:
    onnx.checker.check_model(onnx.load_model_from_string(graph), full_check=True)


def test_chosen_rows_are_what_onnx_takes() -> None:
    model = onnx.load_model_from_string(small_graphs.chosen_rows())
    onnx.checker.check_model(model, full_check=True)
    assert [each.name for each in model.graph.input] == ["rows", "places"]


def test_a_tensor_is_zero_and_its_rows_are_parts_of_it(memory: DeviceMemory) -> None:
    tensor = memory.zeros((6, 2, 3), FP16)
    assert not numbers_of(tensor).any()
    part = tensor[2:4]
    assert (part.shape, part.nbytes) == ((2, 2, 3), 24)
    assert part.address == tensor.address + 2 * 12
    assert part[1:2].address == tensor[3:4].address
    assert len(tensor[6:6]) == 0


@pytest.mark.parametrize("datatype", [FP16, FP32, BF16], ids=lambda each: each.name)
@pytest.mark.parametrize("memory", [HostMemory(), DeviceMemory("cpu")], ids=["numpy", "device"])
@pytest.mark.parametrize("axis", [1, 2])
def test_tokens_are_copied_from_one_entry_to_another(
    memory: Memory, datatype: Datatype, axis: int
) -> None:
    """Tokens 1 to 3 of 5 in three tensors, along the second and the third axis; others stay."""
    shape = (4, 5, 2, 3) if axis == 1 else (4, 2, 5, 3)
    tensors = [memory.zeros(shape, datatype) for _ in range(3)]
    random = np.random.default_rng(0)
    before = [random.normal(size=shape).astype(datatype.dtype) for _ in tensors]
    for tensor, numbers in zip(tensors, before, strict=True):
        write(tensor, numbers)
    memory.copy_rows(tensors, 3, 1, slice(1, 3), axis)
    place = (slice(None),) * (axis - 1) + (slice(1, 3),)
    for tensor, numbers in zip(tensors, before, strict=True):
        found = numbers_of(tensor)
        np.testing.assert_array_equal(found[1][place], numbers[3][place])
        np.testing.assert_array_equal(found[[0, 2, 3]], numbers[[0, 2, 3]])
        if axis == 1:
            np.testing.assert_array_equal(found[1][[0, 3, 4]], numbers[1][[0, 3, 4]])


def test_inputs_are_read_where_they_were_sent(memory: DeviceMemory) -> None:
    """Two inputs in one block, one of them without dimensions, sent twice."""
    shapes: dict[str, np.ndarray] = {
        "ids": np.zeros((2, 3), np.int64),
        "total": np.zeros((), np.int32),
    }
    inputs = memory.inputs(shapes)
    for value in (7, 8):
        inputs.arrays["ids"][:] = value
        inputs.arrays["total"][()] = 10 * value
        inputs.send()
        assert numbers_of(inputs.bound["ids"]).tolist() == [[value] * 3] * 2
        assert numbers_of(inputs.bound["total"]) == 10 * value
    inputs.arrays["ids"][:] = 9
    assert (numbers_of(inputs.bound["ids"]) == 8).all(), "not sent yet"


def test_outputs_are_read_from_one_block(memory: DeviceMemory) -> None:
    outputs = memory.outputs({"logits": ((2, 3), FP32), "ids": ((2,), DATATYPES["INT64"])})
    write(outputs.bound["logits"], np.arange(6, dtype=np.float32))
    write(outputs.bound["ids"], np.array([5, -1]))
    found = outputs.read()
    assert found["logits"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["ids"].tolist() == [5, -1]


def test_chosen_rows_come_to_the_host(memory: DeviceMemory) -> None:
    tensor = memory.zeros((5, 4), FP32)
    numbers = np.arange(20, dtype=np.float32).reshape(5, 4)
    write(tensor, numbers)
    np.testing.assert_array_equal(
        memory.chosen_rows(tensor, np.array([4, 0, 4])), numbers[[4, 0, 4]]
    )
    assert memory.chosen_rows(tensor, np.empty(0, np.int64)).shape == (0, 4)


@pytest.mark.parametrize("memory", [HostMemory(), DeviceMemory("cpu")], ids=["numpy", "device"])
def test_rows_of_logits_are_read_from_either_memory(memory: Memory) -> None:
    """Whole rows of the host's memory need no outputs beside them."""
    rows = memory.zeros((4, 3), FP32)
    numbers = np.arange(12, dtype=np.float32).reshape(4, 3)
    write(rows, numbers)
    reader = memory.read_logits(rows[:3], {"ids": ((3, 2), DATATYPES["INT64"])})
    places = reader.rows[[2, 0]]
    chosen = places if reader.fetch is None else reader.fetch(places)
    np.testing.assert_array_equal(chosen, numbers[[2, 0]])
    assert set(reader.read()) == set(reader.bound) == ({"ids"} if reader.fetch else set())


def test_parts_of_rows_are_kept_beside_the_host_s_memory_alone(memory: DeviceMemory) -> None:
    """A part of 2 tokens in two buffers of 3 heads and 4 values has 2 * 3 * 2 * 4 * 4 bytes."""
    buffers = [np.random.default_rng(seed).normal(size=(5, 3, 6, 4)) for seed in (0, 1)]
    buffers = [buffer.astype(np.float32) for buffer in buffers]
    before = [buffer.copy() for buffer in buffers]
    pieces = HostMemory().prefixes(buffers, 2, 400)
    assert pieces is not None
    assert (pieces.piece_bytes, pieces.num_places) == (192, 2)
    pieces.write(1, 3, 2)
    pieces.read(1, 0, 4)
    for buffer, numbers in zip(buffers, before, strict=True):
        np.testing.assert_array_equal(buffer[0, :, 4:6], numbers[3, :, 2:4])
        np.testing.assert_array_equal(buffer[1:], numbers[1:])
    assert HostMemory().prefixes(buffers, 2, 191) is None
    on_device: Memory = memory
    assert on_device.prefixes([memory.zeros((5, 3, 6, 4), FP32)], 2, 400) is None


def test_memory_that_is_not_there_is_refused_with_its_size(memory: DeviceMemory) -> None:
    with pytest.raises(OutOfMemory, match="4503599627370496"):
        memory.zeros((2**50,), FP32)


class LostValue:
    """A value on a device that is lost, with the CUDA runtime's words."""

    TEXT = "CUDA failure 700: an illegal memory access was encountered ; GPU=0"

    def data_ptr(self) -> int:
        return 0

    def update_inplace(self, _: np.ndarray) -> None:
        raise RuntimeError(self.TEXT)

    def numpy(self) -> np.ndarray:
        raise RuntimeError(self.TEXT)


class LostMemory(DeviceMemory):
    """A GPU that is lost once its sessions are open."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.device = "cuda"

    def _block(self, num_bytes: int) -> LostValue:
        return LostValue()


def test_copies_to_and_from_a_lost_device_say_so() -> None:
    """They raise plain errors, which would count as those of one run."""
    memory = LostMemory()
    with pytest.raises(DeviceFailed, match="illegal memory access"):
        memory.inputs({"ids": np.zeros(3, np.int64)}).send()
    with pytest.raises(DeviceFailed, match="illegal memory access"):
        memory.outputs({"logits": ((2, 3), FP32)}).read()
