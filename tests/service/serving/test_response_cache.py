"""What is kept and what leaves, what requests are the same, and that the books are right."""

from collections import OrderedDict
from collections.abc import Mapping

import numpy as np
import pytest

from service.serving.response_cache import (
    MAX_INPUT_BYTES,
    LoadCache,
    Parameters,
    ResponseCache,
    size_of,
)

Inputs = dict[str, np.ndarray]


def floats(count: int, value: float = 0.0) -> dict[str, np.ndarray]:
    return {"out": np.full((1, count), value, np.float32)}


def texts(*elements: bytes) -> np.ndarray:
    array = np.empty(len(elements), object)
    array[:] = elements
    return array


def key_of(inputs: Mapping[str, np.ndarray], parameters: Parameters | None = None) -> bytes:
    key = LoadCache(ResponseCache(), 0).key_of(inputs, parameters or {})
    assert key is not None
    return key


def test_an_answer_is_given_again_and_cannot_be_written_to() -> None:
    cache = ResponseCache(10_000)
    batch = np.arange(64, dtype=np.float32).reshape(8, 8)
    cache.put(b"k", {"out": batch[2:3]})
    batch[:] = -1  # the batch that it came from
    found = cache.get(b"k")
    assert found is not None
    assert found["out"].tolist() == [[16, 17, 18, 19, 20, 21, 22, 23]]
    assert found["out"].base is None, "a view would keep the whole batch"
    with pytest.raises(ValueError, match="read-only"):
        found["out"][0, 0] = 5
    found.clear()
    assert cache.get(b"k"), "what a reader does with its answer is its own"
    assert cache.get(b"another") is None


def test_the_least_recently_used_leaves_first() -> None:
    """Room for three; a is asked for, so that d takes the place of b."""
    cache = ResponseCache(3 * size_of(floats(10)))
    for key in (b"a", b"b", b"c"):
        cache.put(key, floats(10))
    cache.get(b"a")
    cache.put(b"d", floats(10))
    assert [key for key in (b"a", b"b", b"c", b"d") if cache.get(key)] == [b"a", b"c", b"d"]
    cache.put(b"large", floats(20))  # more than one of them
    assert cache.num_entries == 2
    cache.check_integrity()


def test_what_is_larger_than_the_cache_is_not_kept_and_drives_out_nothing() -> None:
    cache = ResponseCache(size_of(floats(10)))
    cache.put(b"a", floats(10))
    cache.put(b"b", floats(11))
    assert cache.get(b"a")
    assert not cache.get(b"b")
    off = ResponseCache()
    off.put(b"a", {})
    assert not off.num_entries


def test_texts_count_with_their_bytes() -> None:
    long, short = size_of({"out": texts(b"x" * 1000)}), size_of({"out": texts(b"x")})
    assert long - short == 999
    assert short > 500, "an entry costs more than its numbers"
    as_text = np.array(["日本"], object)
    assert size_of({"out": as_text}) == size_of({"out": texts("日本".encode())}), "as UTF-8"


def test_every_sequence_of_calls_keeps_the_bound_and_the_order() -> None:
    """2,000 calls over 30 keys against a list in order of use, sizes from 1 to 400 numbers."""
    for seed in range(5):
        random = np.random.default_rng(seed)
        cache = ResponseCache(6_000)
        expected: OrderedDict[bytes, dict[str, np.ndarray]] = OrderedDict()
        for _ in range(2_000):
            key = bytes([random.integers(30)])
            if random.random() < 0.5:
                found = cache.get(key)
                assert (found is None) == (key not in expected)
                if found is not None:
                    expected.move_to_end(key)
                    assert found["out"].tolist() == expected[key]["out"].tolist()
                continue
            outputs = floats(int(random.integers(1, 400)), random.random())
            cache.put(key, outputs)
            expected.pop(key, None)
            expected[key] = outputs
            while sum(map(size_of, expected.values())) > 6_000:
                expected.popitem(last=False)
            cache.check_integrity()
        assert cache.num_entries == len(expected)


BASE: Inputs = {"a": np.arange(6, dtype=np.int32).reshape(2, 3), "t": texts(b"one", b"two")}
OTHERS: dict[str, Inputs] = {
    "value": {"a": BASE["a"] + 1},
    "shape": {"a": BASE["a"].reshape(3, 2)},
    "type": {"a": BASE["a"].view(np.uint32)},
    "text": {"t": texts(b"one", b"twoo")},
    "where a text ends": {"t": texts(b"onet", b"wo")},
    "order of texts": {"t": texts(b"two", b"one")},
    "one input more": {"b": BASE["a"]},
}


@pytest.mark.parametrize("case", OTHERS)
def test_requests_that_differ_have_different_keys(case: str) -> None:
    assert key_of(BASE | OTHERS[case]) != key_of(BASE)


def test_requests_that_are_the_same_have_one_key() -> None:
    """In whatever order their inputs come, and however they lie in memory."""
    same = {"t": BASE["t"].copy(), "a": np.asfortranarray(BASE["a"])}
    assert key_of(same) == key_of(BASE)
    assert key_of(BASE, {"x": 1, "y": "2"}) == key_of(BASE, {"y": "2", "x": 1})


def test_parameters_are_part_of_the_key() -> None:
    """Also their types: 1 and true are not the same."""
    different: list[Parameters] = [{}, {"x": 1}, {"x": True}, {"x": "1"}, {"x": 1.0}, {"y": 1}]
    assert len({key_of(BASE, parameters) for parameters in different}) == len(different)


def test_a_model_loaded_anew_does_not_find_what_was_kept_before() -> None:
    cache = ResponseCache(10_000)
    first, second = cache.for_load(), cache.for_load()
    key, other = first.key_of(BASE, {}), second.key_of(BASE, {})
    assert key
    assert other
    first.put(key, floats(1))
    assert first.get(key)
    assert second.get(other) is None


def test_large_requests_are_not_looked_for() -> None:
    """Hashing them would hold up the event loop."""
    largest = np.zeros(MAX_INPUT_BYTES, np.uint8)
    load = ResponseCache(10_000).for_load()
    assert load.key_of({"a": largest}, {})
    assert load.key_of({"a": np.zeros(MAX_INPUT_BYTES + 1, np.uint8)}, {}) is None
