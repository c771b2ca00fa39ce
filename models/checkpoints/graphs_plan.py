"""The plan for a folder of graphs, by the names of its files and its config.json.

Opens no graph. Imports no torch.
"""

from collections.abc import Collection, Sequence
from fnmatch import fnmatch
from pathlib import Path

from models.checkpoints import file_names
from models.checkpoints.declared import architecture_of, encoder_folder, task_of
from models.checkpoints.folder_files import NOT_READ, USES, File, is_weight, shown_in, use_of
from models.checkpoints.folder_plan import ONNX, Plan, name_of
from models.checkpoints.foreign import GRAPHS, PARTS, commands_of, is_complete
from models.checkpoints.graph_files import (
    DATA,
    WEIGHTS,
    GraphFile,
    GraphWish,
    choose,
    is_encoder_decoder,
)
from models.errors import CheckpointError
from models.json_files import read_object


def plan_of_graphs(
    folder: Path,
    names: Collection[str],
    graphs: Sequence[GraphFile],
    wish: GraphWish,
) -> Plan:
    """The plan of a folder of graphs, whose small files may be there or not."""
    has_weights = is_complete(names)
    try:
        chosen = choose(graphs, wish, has_weights=has_weights)
        values = read_object(encoder_folder(folder) / file_names.CONFIG_FILE, optional=True)
        architecture = architecture_of(values)
        task = task_of(architecture, folder, values)
    except CheckpointError as error:
        if not is_encoder_decoder(graphs):
            return Plan(folder, what=ONNX.what, refusal=str(error))
        commands = commands_of(PARTS, folder, {graph.name for graph in graphs}, "")
        return Plan(
            folder,
            what=PARTS.what,
            refusal=str(error),
            way_out="" if has_weights else PARTS.way_out,
            commands=() if has_weights else commands,
        )
    others = {graph.name: graph.variant for graph in graphs if graph != chosen}
    parts, taken, left_out = [], [], []
    for name in shown_in(names, folder):
        num_bytes = (folder / name).stat().st_size
        use = "" if is_weight(name) else use_of(name, USES)
        if _is_part(name, chosen):
            parts.append(File(name, num_bytes, "graph"))
        elif name in others:
            left_out.append(File(name, num_bytes, f"another graph (--variant {others[name]})"))
        elif use:
            taken.append(File(name, num_bytes, use))
        else:
            left_out.append(File(name, num_bytes, _why_left_out(name, has_weights)))
    return Plan(
        folder,
        ONNX.name,
        ONNX.what,
        ONNX.needs,
        str(values.get("model_type", "")),
        architecture,
        task,
        num_bytes=sum(part.num_bytes for part in parts),
        taken=(*parts, *taken),
        left_out=tuple(left_out),
        way_out=GRAPHS.way_out,
        commands=commands_of(GRAPHS, folder, {chosen.name}, name_of(folder.resolve().name)),
        graph=chosen.name,
        precision=chosen.precision,
        variants=(*sorted(set(others.values())), *([WEIGHTS] if has_weights else [])),
    )


def _is_part(name: str, graph: GraphFile) -> bool:
    """Whether a file is a graph, or has its external data."""
    end = name.removeprefix(graph.name)
    return name.startswith(graph.name) and any(fnmatch(end, each) for each in ("", *DATA))


def _why_left_out(name: str, has_weights: bool) -> str:
    if not is_weight(name):
        return use_of(name, NOT_READ) or "not read"
    return "another form of the weights" + f" (--variant {WEIGHTS})" * has_weights
