"""The plan for a folder or file of GGUF, by its header. Imports no torch."""

from collections import Counter
from math import prod
from pathlib import Path

from models.checkpoints.folder_files import NOT_READ, File, file_of, shown_in
from models.checkpoints.folder_plan import GGUF, Plan
from models.checkpoints.foreign import names_in
from models.checkpoints.gguf.files import KEPT_TYPES, GgufFile
from models.checkpoints.gguf.networks import config_of

WORDS, OUTPUT = "token_embd.weight", "output.weight"


def plan_of_gguf(folder: Path, file: GgufFile) -> Plan:
    config = config_of(file)
    stored: Counter[str] = Counter()
    for name, shape in file.shapes.items():
        stored[file.type_of(name)] += prod(shape)
    others = shown_in(names_in(folder), folder) if folder.is_dir() else []
    names = {path.name for path in file.paths}
    taken = [
        File(path.name, path.stat().st_size, "weights, tokenizer and chat template")
        for path in file.paths
    ]
    return Plan(
        folder,
        GGUF.name,
        GGUF.what,
        GGUF.needs,
        str(config["model_type"]),
        str(config["architectures"][0]),
        "text-generation",
        stored.total(),
        prod(file.shapes.get(WORDS, (0,))),
        WORDS in file.shapes and OUTPUT not in file.shapes,
        dict(stored),
        tuple(kind for kind in stored if kind in KEPT_TYPES),
        sum(each.num_bytes for each in taken),
        tuple(taken),
        tuple(file_of(folder, name, NOT_READ) for name in others if name not in names),
    )
