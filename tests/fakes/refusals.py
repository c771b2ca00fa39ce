"""Requests for model `simple` that are refused: what is changed in a good one, and the message.

The same tables hold for the parser alone, for a server in this process and for one of its own.
`simple` takes INPUT0 and INPUT1, INT32 [-1, 16], in batches of at most 8.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from tritonclient.grpc import service_pb2 as pb

Change: TypeAlias = Callable[[pb.ModelInferRequest], Any]
Refusals: TypeAlias = dict[str, tuple[Change, str]]
UNKNOWN_ID = "[request id: <id_unknown>] "  # begins a message about a request without an id


def set_shape(index: int, *shape: int) -> Change:
    def change(request: pb.ModelInferRequest) -> None:
        request.inputs[index].shape[:] = shape

    return change


def set_shapes(*shape: int) -> Change:
    return lambda request: [set_shape(index, *shape)(request) for index in range(2)]


def set_parameter(key: str, value: dict[str, Any]) -> Change:
    """`value` is the message's: a field by its name, or none."""
    return lambda request: request.parameters[key].CopyFrom(pb.InferParameter(**value))


def set_output(key: str, **value: Any) -> Change:
    """Ask for the first output with a parameter."""

    def change(request: pb.ModelInferRequest) -> None:
        output = request.outputs.add(name="OUTPUT0")
        output.parameters[key].CopyFrom(pb.InferParameter(**value))

    return change


def set_typed(**contents: list[Any]) -> Change:
    """Send these as the first input's contents, any other input as ones, and none raw."""

    def change(request: pb.ModelInferRequest) -> None:
        del request.raw_input_contents[:]
        request.inputs[0].contents.CopyFrom(pb.InferTensorContents(**contents))
        for other in request.inputs[1:]:
            other.contents.int_contents.extend([1] * 16)

    return change


def _send_strings(request: pb.ModelInferRequest) -> None:
    request.inputs[0].datatype = "BYTES"
    set_typed(bytes_contents=[b"a"] * 16)(request)


def _add_input(request: pb.ModelInferRequest) -> None:
    request.inputs.add(name="INPUT2", datatype="INT32", shape=[1, 16])
    request.raw_input_contents.append(bytes(64))


def _set_datatype(name: str) -> Change:
    return lambda request: setattr(request.inputs[0], "datatype", name)


def _of_shape(shape: str) -> str:
    """The message about a first input of another shape, with Triton's advice on batching."""
    return (
        f"unexpected shape for input 'INPUT0' for model 'simple'. Expected [-1,16], got {shape}. "
        "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension "
        "to be prepended to each input shape. If you want to specify the full shape including the "
        "batch dim in your input dims config, try setting max_batch_size to zero. See the model "
        "configuration docs for more info on max_batch_size."
    )


def _of_names(count: int, given: str, missing: str) -> str:
    return (
        f"expected 2 inputs but got {count} inputs for model 'simple'. Got input(s) [{given}], but "
        f"missing required input(s) [{missing}]. Please provide all required input(s)."
    )


_CLASSES = "invalid value for 'classification' parameter, expected >= 0"
_CLASSES_TYPE = "invalid value type for 'classification' parameter, expected int64_param"
_NO_DATA = "unable to find data for input tensor '{}' for model 'simple' in request."
_EXPLICIT = "unexpected explicit tensor data for input tensor 'INPUT0' for model 'simple'"
_SIZE = "input byte size mismatch for input 'INPUT0' for model 'simple'. Expected 64, got {}"
_BATCH = "inference request batch-size must be <= 8 for 'simple'"

# Checks on the message as such: their text has no request id.
OF_MESSAGE: Refusals = {
    "duplicate input": (
        lambda r: setattr(r.inputs[1], "name", "INPUT0"),
        "input 'INPUT0' already exists in request",
    ),
    "duplicate output": (
        lambda r: [r.outputs.add(name="OUTPUT0") for _ in range(2)],
        "output 'OUTPUT0' already exists in request",
    ),
    "unknown output": (
        lambda r: r.outputs.add(name="NOPE"),
        "unexpected inference output 'NOPE' for model 'simple'",
    ),
    "raw and contents": (
        lambda r: r.inputs[0].contents.int_contents.extend([1] * 16),
        "contents field must not be specified when using raw_input_contents for 'INPUT0' for "
        "model 'simple'",
    ),
    "fewer raw entries than inputs": (
        lambda r: r.raw_input_contents.pop(),
        _NO_DATA.format("INPUT1"),
    ),
    "no data": (lambda r: r.ClearField("raw_input_contents"), _NO_DATA.format("INPUT0")),
    "typed field of another type": (
        set_typed(fp32_contents=[1.0] * 16),
        f"{_EXPLICIT} of type 'FP32', expected datatype 'INT32'",
    ),
    "two typed fields": (
        set_typed(int_contents=[1] * 16, int64_contents=[1] * 16),
        f"{_EXPLICIT}, binary data was already supplied.",
    ),
    "no classes": (set_output("classification", int64_param=0), _CLASSES),
    "fewer classes than none": (set_output("classification", int64_param=-2), _CLASSES),
    "classes as text": (set_output("classification", string_param="3"), _CLASSES_TYPE),
    "classes as an unsigned number": (set_output("classification", uint64_param=1), _CLASSES_TYPE),
    "classes without a value": (set_output("classification"), _CLASSES_TYPE),
}

# Checks against the model's inputs: the request's id comes before their text.
OF_TENSORS: Refusals = {
    "missing input": (
        lambda r: (r.inputs.pop(), r.raw_input_contents.pop()),
        _of_names(1, "'INPUT0'", "'INPUT1'"),
    ),
    "no inputs": (
        lambda r: (r.ClearField("inputs"), r.ClearField("raw_input_contents")),
        _of_names(0, "", "'INPUT0','INPUT1'"),
    ),
    "extra input": (_add_input, _of_names(3, "'INPUT0','INPUT1','INPUT2'", "")),
    "misnamed input": (
        lambda r: setattr(r.inputs[1], "name", "INPUTX"),
        "unexpected inference input 'INPUTX' for model 'simple'",
    ),
    **{
        f"datatype {sent or 'empty'}": (
            change,
            f"inference input 'INPUT0' data-type is '{shown}', but model 'simple' expects 'INT32'",
        )
        for sent, shown, change in (
            ("FP32", "FP32", _set_datatype("FP32")),
            ("BF16", "BF16", _set_datatype("BF16")),
            ("INT33", "<invalid>", _set_datatype("INT33")),
            ("", "<invalid>", _set_datatype("")),
            ("BYTES", "BYTES", _send_strings),
        )
    },
    "wrong shape": (set_shape(0, 1, 15), _of_shape("[1,15]")),
    "wrong rank": (set_shape(0, 1, 4, 4), _of_shape("[1,4,4]")),
    "rank 1 that is read as a batch": (set_shapes(16), _BATCH),
    "no shape": (
        set_shape(1),
        "input 'INPUT1' has no shape but model requires batch dimension for 'simple'",
    ),
    "dimension -1": (
        set_shapes(1, -1),
        "All input dimensions should be specified for input 'INPUT0' for model 'simple', "
        "got [1,-1]",
    ),
    "negative dimension": (
        set_shapes(1, -5),
        "tensor 'INPUT0' contains an invalid dimension [1,-5]",
    ),
    "negative batch": (set_shapes(-5, 16), "tensor 'INPUT0' contains an invalid dimension [-5,16]"),
    "batch above the limit": (set_shapes(9, 16), _BATCH),
    "batch differs": (
        set_shape(1, 2, 16),
        "input 'INPUT1' batch size does not match other inputs for 'simple'",
    ),
    "raw size": (lambda r: r.raw_input_contents.__setitem__(0, bytes(60)), _SIZE.format(60)),
    "typed size": (set_typed(int_contents=[1] * 15), _SIZE.format(60)),
    "contents present but empty": (set_typed(), _SIZE.format(0)),
}

# Parameters of a type that they may not have, and the types that they may have.
_TYPES: list[tuple[str, dict[str, Any], str]] = [
    ("timeout", {"string_param": "1"}, "int64_param"),
    ("priority", {"bool_param": True}, "int64_param or uint64_param"),
    ("priority", {"string_param": "1"}, "int64_param or uint64_param"),
    ("sequence_id", {"bool_param": True}, "int64_param or string_param"),
    ("sequence_start", {"int64_param": 1}, "bool_param"),
    ("truncate", {"int64_param": 1}, "bool_param"),
    ("mine", {"uint64_param": 1}, "int64_param, bool_param, or string_param"),
    ("mine", {}, "int64_param, bool_param, or string_param"),
]
# Parameters of models with a state, which `simple` has not, and how their values are shown.
_OF_SEQUENCES: list[tuple[str, dict[str, Any], str]] = [
    ("sequence_id", {"int64_param": 7}, "'7'"),
    ("sequence_id", {"string_param": "x"}, "'x'"),
    ("sequence_start", {"bool_param": True}, "true"),
    ("sequence_end", {"bool_param": True}, "true"),
]
OF_PARAMETERS: Refusals = {
    **{
        f"{key} {value}": (
            set_parameter(key, value),
            f"invalid value type for '{key}' parameter, expected {types}.",
        )
        for key, value, types in _TYPES
    },
    **{
        f"{key} {value}": (
            set_parameter(key, value),
            f"{UNKNOWN_ID}parameter '{key}' is {shown}, but model 'simple' is not stateful",
        )
        for key, value, shown in _OF_SEQUENCES
    },
    "negative priority": (
        set_parameter("priority", {"int64_param": -1}),
        "invalid value for 'priority', expected value >= 0.",
    ),
    **{
        f"reserved parameter {value}": (
            set_parameter("triton_x", value),
            "parameter keys starting with 'triton_' are reserved for Triton usage. Only the "
            "following keys starting with 'triton_' are allowed: "
            "triton_enable_empty_final_response",
        )
        for value in ({"bool_param": True}, {"int64_param": 1})
    },
}

_STOL = "failed to get model version from specified version string '{}' (details: stol), "
_INTEGRAL = "version should be an integral value > 0"
_UNKNOWN = "Request for unknown model:"
# Names and versions of models that are not there: the status and the message.
NAMES = [
    ("nope", "", "NOT_FOUND", f"{_UNKNOWN} 'nope' is not found"),
    ("", "", "NOT_FOUND", f"{_UNKNOWN} '' is not found"),
    ("../simple", "", "NOT_FOUND", f"{_UNKNOWN} '../simple' is not found"),
    ("simple", "99", "NOT_FOUND", f"{_UNKNOWN} 'simple' version 99 is not found"),
    ("simple", "0", "NOT_FOUND", f"{_UNKNOWN} 'simple' version 0 is not found"),
    ("simple", "abc", "INVALID_ARGUMENT", _STOL.format("abc") + _INTEGRAL),
    ("simple", "9" * 20, "INVALID_ARGUMENT", _STOL.format("9" * 20) + _INTEGRAL),
    ("simple", "-1", "INVALID_ARGUMENT", f"invalid model version specified '-1' , {_INTEGRAL}"),
]

# Every request that can never succeed, with the whole message where the request has no id.
INVALID: Refusals = {
    **OF_MESSAGE,
    **{case: (change, UNKNOWN_ID + text) for case, (change, text) in OF_TENSORS.items()},
    **OF_PARAMETERS,
}
