"""Graphs of networks that a test has traced already, kept for the other tests of the run.

`torch.onnx.export` takes a second or more for the smallest network, which is nearly all the time
of an export, and hundreds of tests export the same few networks only to have them served, rounded
or compared. So its program is kept in the run's temporary folder, where every worker finds it,
under a digest of all that it depends on: the modules and their settings, every weight, the code of
their `forward`, the lists of our modules, the examples and the names. Nothing is kept where one of
them is of a kind that the digest does not know, while a test has exchanged something within
`export` or `models`, and for tests with the marker `traced_anew`, which are about the tracer.
"""

import hashlib
import io
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

PACKAGES = ("export.", "models.")
MAX_VALUES = 2**22  # of a network's weights: beyond it, tracing is not what takes the time


class UnknownPartError(ValueError):
    """Something that the digest does not describe wholly."""


# Also what pickle says of objects that it cannot write, or that go deeper than it does.
NOT_DESCRIBED = (
    *(UnknownPartError, ValueError, TypeError, AttributeError, RuntimeError),
    pickle.PicklingError,
)


class Traces:
    """Programs in a folder by their digests; `install` puts it before the tracer."""

    def __init__(self) -> None:
        self.folder: Path | None = None  # nothing is kept before there is one
        self.is_asked = True  # False while a test is about the tracer
        self._first_seen: dict[str, dict[str, int]] = {}
        self._num_modules = 0

    def install(self) -> None:
        """Put this before `torch.onnx.export`, once torch is there, and look at new modules."""
        if self._num_modules == len(sys.modules):
            return
        self._num_modules = len(sys.modules)
        for name, module in list(sys.modules.items()):
            if name.startswith(PACKAGES) and name not in self._first_seen:
                self._first_seen[name] = identities(module)
        tracer = sys.modules.get("torch.onnx")
        if tracer is not None and not hasattr(tracer, "traces_of_tests"):
            tracer.traces_of_tests = self  # type: ignore[attr-defined]
            tracer.export = self._before(tracer.export)  # type: ignore[attr-defined]

    def _before(self, trace: Callable[..., Any]) -> Callable[..., Any]:
        def export(module: Any, args: Any, **options: Any) -> Any:
            if self.folder is None:
                return trace(module, args, **options)
            try:
                digest = digest_of((module, args, options, *self._lists()))
            except NOT_DESCRIBED:
                return trace(module, args, **options)
            path = self.folder / f"{digest}.onnx"
            if not path.is_file() or not self.is_asked or self._is_exchanged():
                graph = trace(module, args, **options).model_proto.SerializeToString()
                if not self.is_asked or self._is_exchanged():
                    return program_of(graph)
                self.folder.mkdir(exist_ok=True)
                part = path.with_suffix(f".{os.getpid()}")
                part.write_bytes(graph)
                part.replace(path)
            return program_of(path.read_bytes())

        return export

    def _lists(self) -> Iterator[tuple[str, list[object]]]:
        """The lists of our modules, as of who answers for attention while a graph is traced."""
        for name in self._first_seen:
            for attribute, value in vars(sys.modules.get(name, object)).items():
                if isinstance(value, list) and not attribute.startswith("__"):
                    yield f"{name}.{attribute}", value

    def _is_exchanged(self) -> bool:
        """Whether something of our modules is another than when they were first seen."""
        return any(
            not first.items() <= identities(sys.modules[name]).items()
            for name, first in self._first_seen.items()
            if name in sys.modules
        )


def identities(module: ModuleType) -> dict[str, int]:
    """What a module and its classes consist of, by name; modules within it come and go."""
    held = dict(vars(module))
    for name, value in vars(module).items():
        if isinstance(value, type) and value.__module__ == module.__name__:
            held |= {f"{name}.{attribute}": each for attribute, each in vars(value).items()}
    return {name: id(value) for name, value in held.items() if not isinstance(value, ModuleType)}


def program_of(graph: bytes) -> Any:
    """A program of a serialized graph: always that, so that all have the same names of values."""
    import onnx
    import onnx_ir
    import torch

    model = onnx.ModelProto.FromString(graph)
    return torch.onnx.ONNXProgram(onnx_ir.serde.deserialize_model(model), None)


def digest_of(traced: object) -> str:
    """The same for two networks only where their graphs are the same. Raises `UnknownPartError`."""
    described = io.BytesIO()
    _Description(described).dump(traced)
    return hashlib.sha256(described.getvalue()).hexdigest()


class Part:
    """What stands in a description in the place of an object."""

    def __init__(self, *fields: object) -> None:
        self.fields = fields


class _Description(pickle.Pickler):
    """Writes objects by their contents alone, also those that pickle would write by name."""

    def __init__(self, file: io.BytesIO) -> None:
        import torch

        super().__init__(file, protocol=4)
        self.fast = True  # nothing depends on which equal strings are one object
        self._torch = torch
        # Modules, tensors and functions that were written, which repeat; none is freed meanwhile.
        self._places: dict[int, int] = {}
        self._kept: list[object] = []
        self._num_values = 0

    def reducer_override(self, each: Any) -> Any:
        if each is Part:
            return NotImplemented
        torch = self._torch
        if isinstance(each, torch.nn.Module | torch.Tensor | FunctionType):
            if id(each) in self._places:
                return Part, ("again", self._places[id(each)])
            self._places[id(each)] = len(self._places)
            self._kept.append(each)
            if isinstance(each, FunctionType):
                return Part, of_function(each)
            is_tensor = isinstance(each, torch.Tensor)
            return Part, self._of_tensor(each) if is_tensor else of_module(each)
        if isinstance(each, type | torch.dtype | torch.device):
            return Part, (str(each),)
        if isinstance(each, torch.export.Dim):
            return Part, (str(each), each.min == 0, str(each.max))
        if type(each).__module__.split(".")[0] not in KNOWN:
            raise UnknownPartError(type(each))
        return NotImplemented

    def _of_tensor(self, tensor: Any) -> tuple[object, ...]:
        torch = self._torch
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.is_meta:
            raise UnknownPartError(type(tensor))
        # A weight without numbers is one number that is repeated without memory.
        is_one = not any(tensor.stride())
        values = tensor.detach().as_strided((1,), (1,)) if is_one else tensor.detach().contiguous()
        self._num_values += values.numel()
        if self._num_values > MAX_VALUES or tensor.numel() > MAX_VALUES:
            raise UnknownPartError("too large")
        digest = hashlib.sha256(values.view(torch.uint8).numpy().tobytes()).hexdigest()
        return str(tensor.dtype), tuple(tensor.shape), tensor.stride(), digest, vars(tensor)


KNOWN = (
    *("builtins", "collections", "functools", "enum", "pathlib", "torch", "transformers"),
    *("export", "models", "tests", "service"),
)


def of_module(module: Any) -> tuple[object, ...]:
    forward = type(module).forward
    return str(type(module)), forward, list(vars(module).items())


def of_function(function: FunctionType) -> tuple[object, ...]:
    """Its code, and what it was given when it was made."""
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    given = function.__defaults__, function.__kwdefaults__, vars(function)
    return function.__qualname__, of_code(function.__code__), given, held


def of_code(code: CodeType) -> tuple[object, ...]:
    constants = [of_code(each) if isinstance(each, CodeType) else each for each in code.co_consts]
    return code.co_code, code.co_names, repr(constants)
