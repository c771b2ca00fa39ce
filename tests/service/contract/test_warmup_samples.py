"""The requests that a configuration wants a model to run while it loads."""

import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from service.contract.warmup_samples import (
    MAX_RUNS,
    MAX_SAMPLES,
    SampleInput,
    WarmupSample,
    warmup_samples,
)
from service.errors import LoadError

ZEROS = "inputs { key: 'x' value { data_type: TYPE_FP32 dims: [3, 2] zero_data: true } }"


def samples_of(*warmups: str) -> tuple[WarmupSample, ...]:
    text = " ".join(f"model_warmup {{ {warmup} }}" for warmup in warmups)
    return warmup_samples(text_format.Parse(text, ModelConfig()))


def test_a_sample_says_what_is_run_how_often_and_with_how_many_rows() -> None:
    """Once where it does not say; values are zeros, random or those of a file."""
    inputs = (
        ZEROS,
        "inputs { key: 'r' value { data_type: TYPE_INT8 dims: [1] random_data: true } }",
        "inputs { key: 'f' value { data_type: TYPE_STRING dims: [2] input_data_file: 'a' } }",
    )
    once, often = samples_of(
        f"name: 'one' batch_size: 4 {' '.join(inputs)}", "name: 'other' batch_size: 1 count: 7"
    )
    assert (once.name, once.count, once.batch_size) == ("one", 1, 4)
    assert dict(once.inputs) == {
        "x": SampleInput("TYPE_FP32", (3, 2)),
        "r": SampleInput("TYPE_INT8", (1,), is_random=True),
        "f": SampleInput("TYPE_STRING", (2,), filename="a"),
    }
    assert often == WarmupSample("other", 7, 1, {})


def test_samples_and_their_runs_are_bounded() -> None:
    assert len(samples_of(*["name: 'a'"] * MAX_SAMPLES)) == MAX_SAMPLES
    with pytest.raises(LoadError, match=f"{MAX_SAMPLES + 1} model_warmup, expected at most"):
        samples_of(*["name: 'a'"] * (MAX_SAMPLES + 1))
    (sample,) = samples_of(f"name: 'a' count: {MAX_RUNS}")
    assert sample.count == MAX_RUNS
    with pytest.raises(LoadError, match=f"has count {MAX_RUNS + 1}, expected at most {MAX_RUNS}"):
        samples_of(f"name: 'a' count: {MAX_RUNS + 1}")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("dims: [3]", "has none of zero_data, random_data and input_data_file"),
        ("dims: [-1] zero_data: true", "has the dim -1, expected at least 1"),
        ("dims: [1] input_data_file: '../a'", "expected a file's name without a path"),
    ],
)
def test_an_input_that_cannot_be_made_is_refused_by_its_name(value: str, reason: str) -> None:
    with pytest.raises(LoadError, match="model_warmup 'a': input 'x'") as refused:
        samples_of(f"name: 'a' inputs {{ key: 'x' value {{ data_type: TYPE_FP32 {value} }} }}")
    assert reason in str(refused.value)
