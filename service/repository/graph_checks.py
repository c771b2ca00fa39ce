"""Whether a graph takes and gives what its manifest promises."""

from service.contract.manifest import Manifest
from service.contract.tensors import Signature
from service.errors import LoadError
from service.serving.tasks.table import text_signature
from service.serving.tasks.task import TextTask


def check_graph(graph: Signature, manifest: Manifest, task: TextTask | None) -> None:
    """Raise `LoadError` unless a graph is as its manifest says; without a task it is of images."""
    if task is None:
        _check_image_graph(graph, manifest)
    else:
        _check_text_graph(graph, manifest, task)


def _check_text_graph(graph: Signature, manifest: Manifest, task: TextTask) -> None:
    known = {"input_ids", "attention_mask", "token_type_ids"}
    if manifest.has_source:
        known.add("target_ids")
    if manifest.token_vector_size:
        known.add("vector_mask")
    inputs = {spec.name for spec in graph.inputs}
    if "input_ids" not in inputs or not inputs <= known:
        raise LoadError(f"a text model takes input_ids and {sorted(known)}, not {sorted(inputs)}")
    outputs = {spec.name: spec.dims for spec in graph.outputs}
    for output in task.outputs_of(manifest):
        expected, dims = output.dims(manifest), outputs.get(output.name, ())[1:]
        if len(dims) != len(expected) or any(
            -1 not in (dim, size) and dim != size for dim, size in zip(dims, expected, strict=True)
        ):
            raise LoadError(
                f"task {manifest.task} needs an output '{output.name}' of shape "
                f"{[-1, *expected]}, the graph has {outputs}"
            )


def _check_image_graph(graph: Signature, manifest: Manifest) -> None:
    promised = text_signature(manifest)
    for side, tensors, specs in (
        ("input", graph.inputs, promised.inputs),
        ("output", graph.outputs, promised.outputs),
    ):
        expected = {spec.name: (-1, *spec.dims) for spec in specs}
        found = {tensor.name: tensor.dims for tensor in tensors}
        if len(tensors) != len(specs) or found != expected:
            shapes = " and ".join(f"'{name}' of shape {[*dims]}" for name, dims in expected.items())
            number = "one" if len(expected) == 1 else len(expected)
            plural = "s" if len(expected) > 1 else ""
            raise LoadError(
                f"task {manifest.task} needs {number} {side}{plural} {shapes}, the graph has "
                f"{found}"
            )
