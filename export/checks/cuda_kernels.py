"""The kernels of ONNX Runtime's CUDA provider, version 1.31.1, for operators that exports use.

Read from the registry of onnxruntime-gpu 1.31.1 (`get_all_opkernel_def`), for opsets 23 and 24 and
version 1 of com.microsoft; docs/OperatorKernels.md of microsoft/onnxruntime lists that of its main
branch. Types that no graph of ours has, as int16 and double, are left out; so are operators: what
is not in the table has no kernel as far as an export is concerned. docs/how-to/cuda.md says what
was verified on CUDA.
"""

from collections.abc import Mapping

OPSETS = (23, 24)
HALVES = frozenset(("float16", "bfloat16"))
FLOATS = HALVES | {"float"}
EXACT = frozenset(("float", "float16"))  # the kernels without bfloat16
INTEGERS = frozenset(("int32", "int64"))
BOOL = frozenset(("bool",))
NUMBERS = FLOATS | INTEGERS
Types = frozenset[str]

_ALL = (
    *(
        "Cast",
        "Concat",
        "ConstantOfShape",
        "Expand",
        "Gather",
        "GatherElements",
        "Identity",
        "Reshape",
        "Shape",
    ),
    *("Slice", "Split", "Squeeze", "Transpose", "Trilu", "Unsqueeze"),
)
_NUMBERS = ("Add", "Div", "Max", "Min", "Mul", "ReduceSum", "Sub")
_FLOATS = (
    *("Erf", "Exp", "Gelu", "Gemm", "LayerNormalization", "MatMul", "RMSNormalization", "Relu"),
    *("Sigmoid", "Softmax", "Sqrt", "Tanh"),
)
_EXACT = ("ArgMax", "LSTM", "Log", "LogSoftmax")
_COMPARED = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
# By operator, the types of each of its type parameters, by the names of its schema. A parameter
# that is not here has one type only, or as many as any value may have.
KERNELS: Mapping[str, Mapping[str, Types]] = {
    **{name: {} for name in _ALL},
    **{name: {"T": NUMBERS} for name in _NUMBERS},
    **{name: {"T": FLOATS} for name in _FLOATS},
    **{name: {"T": EXACT} for name in _EXACT},
    **{name: {"T": EXACT | INTEGERS} for name in _COMPARED},
    "And": {},
    "Attention": {"T1": FLOATS, "T2": FLOATS, "U": FLOATS | BOOL},
    "Clip": {"T": EXACT | {"int64"}},
    "CumSum": {"T": EXACT | INTEGERS},
    "GatherND": {"T": FLOATS | BOOL | {"int64"}},
    "NonZero": {"T": EXACT | INTEGERS | BOOL},
    "Not": {},
    "Or": {},
    "Pow": {"T": NUMBERS, "T1": NUMBERS},
    "Range": {"T": INTEGERS | {"float"}},
    "ReduceL2": {"T": EXACT | {"int32"}},
    "ReduceMax": {"T": EXACT | INTEGERS},
    "ReduceMean": {"T": FLOATS | {"int32"}},
    "TopK": {"T": EXACT | INTEGERS},
    "Where": {"T": NUMBERS},  # not of booleans
    "GroupQueryAttention": {"T": HALVES, "T_CACHE": HALVES | {"int8", "uint8"}},
    "MultiHeadAttention": {"T": FLOATS},
    "PagedAttention": {"T": HALVES, "T_CACHE": HALVES | {"int8", "uint8"}},
}
# The type parameters of inputs and of outputs of com.microsoft's operators, whose schemas the
# package `onnx` does not have.
_CACHED = (("T", "T", "T", "T_CACHE", "T_CACHE"), ("T", "T_CACHE", "T_CACHE"))
MICROSOFT: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "GroupQueryAttention": _CACHED,
    "MultiHeadAttention": (("T", "T", "T"), ("T", "T", "T")),
    "PagedAttention": _CACHED,
}
