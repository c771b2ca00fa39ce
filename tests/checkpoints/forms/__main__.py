"""Import every form of a checkpoint, compare the networks, and write the table of the outcomes.

    python -m tests.checkpoints.forms             print the table
    python -m tests.checkpoints.forms --write     and put it into docs/reference/models.md

Ends with 1 where an output differs, or where a folder is refused without saying what it is.
"""

import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from commands.folders import onnx_maker
from commands.folders.importing import read_checkpoint
from export.certificates.probes import COMPARED
from export.errors import ExportError
from models.checkpoints.checkpoint import Checkpoint
from models.checkpoints.plan import recognise
from models.errors import ModelError
from models.networks.transformer import Transformer
from models.recipes.import_settings import ImportSettings
from tests.checkpoints.forms.folders import FORMS, Made, base

DOCUMENT = Path(__file__).parents[3] / "docs/reference/models.md"
BEGIN = "<!-- written by python -m tests.checkpoints.forms --write -->"
END = "<!-- end of forms -->"
HEADER = ("| form | what happens |", "|---|---|")
MAX_DIFFERENCE = 1e-4
UNCLEAR = ("config.json is missing", "model.safetensors is missing")
KNOWN = re.compile(r" is none of [^;]*")  # methods of rounding, too many for a cell
NUMBER = re.compile(r"\d+e[+-]\d+")  # of a certificate: a difference
Outcome = float | str


def outcome_of(name: str, folder: Path) -> Outcome:
    """The largest difference of outputs from the folder's network, or why it is refused."""
    kind, changes, make = FORMS[name]
    plain = base(kind, folder, **changes)
    made = make(plain) or plain
    plan = recognise(made.folder)
    try:
        plan.check()
        if plan.form == "onnx":
            return of_graph(made, folder.with_name(f"{name}-served"))
        checkpoint = read_checkpoint(str(made.folder), ImportSettings())
    except (ModelError, ExportError) as error:
        return str(error).replace(f"{folder}/", "").replace(str(folder), "the folder")
    return max(float((ours - theirs).abs().max()) for ours, theirs in outputs(checkpoint, made))


@torch.inference_mode()
def outputs(checkpoint: Checkpoint, made: Made) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits of the import, and those of transformers, for some texts."""
    ours: Any = checkpoint.model
    theirs: Any = made.network
    for text in COMPARED:
        ids = torch.tensor([checkpoint.tokenizer.encode(text).ids])
        mask = torch.ones_like(ids)
        if isinstance(ours, Transformer):
            hidden = ours.decode(ids, ours.encode(ids, mask), mask)
            given = {"attention_mask": mask, "decoder_input_ids": ids}
            yield ours.logits(hidden), theirs(input_ids=ids, **given).logits
        elif checkpoint.task == "text-generation":
            yield ours(ids), theirs(input_ids=ids).logits
        else:
            types = torch.zeros_like(ids)
            yield ours(ids, mask, types), theirs(input_ids=ids, token_type_ids=types).logits


def of_graph(made: Made, repository: Path) -> float:
    """The difference between a graph as it is served and as it was."""
    repository.mkdir()
    job: dict[str, Any] = {
        "folder": str(made.folder),
        "import": {},
        "variant": None,
        "precision": "auto",
    }
    facts = onnx_maker.make({**job, "device": "cpu"}, repository, lambda _: None)
    return max(map(float, NUMBER.findall(facts["certificate"])), default=0.0)


def is_wrong(outcome: Outcome) -> bool:
    """Whether outputs differ, or a refusal does not say what the folder is."""
    if isinstance(outcome, float):
        return not outcome < MAX_DIFFERENCE
    return any(words in outcome for words in UNCLEAR)


def line_of(name: str, outcome: Outcome) -> str:
    if isinstance(outcome, str):
        return f"| `{name}` | refused: {KNOWN.sub(' is not known', outcome)} |"
    return f"| `{name}` | {'**differs**' if is_wrong(outcome) else 'taken'}, within {outcome:.0e} |"


def main(
    write: Annotated[bool, typer.Option("--write", help=f"Put it into {DOCUMENT.name}.")] = False,
) -> None:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as scratch:
        outcomes = {name: outcome_of(name, Path(scratch) / name) for name in FORMS}
    lines = [line_of(name, outcome) for name, outcome in outcomes.items()]
    num_taken = sum(isinstance(outcome, float) for outcome in outcomes.values())
    count = f"{num_taken} of {len(FORMS)} forms are taken, and the others are refused by name:"
    table = "\n".join([count, "", *HEADER, *lines])
    typer.echo(table)
    if write:
        before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        DOCUMENT.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")
    sys.exit(any(map(is_wrong, outcomes.values())))


if __name__ == "__main__":
    typer.run(main)
