"""What `attendant ladder` does: train each rung, export all, serve them together, ask in turns."""

import json
import random
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from demos.ladder import LadderSettings
from demos.ladder_report import Step, ladder_json, ladder_picture, ladder_table
from demos.request_rate import request_rates
from demos.rungs import Rung, rungs_of
from demos.server import serving
from export.exporter import ExportSettings, export_checkpoint
from models.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from models.datasets import Dataset, Splits, read_dataset, split
from models.finetune import finetune
from models.json_files import read_object
from models.progress import ProgressBar
from models.training_state import digest_of
from models.writing import replace_bytes

VALIDATION_FRACTION = 0.1  # of the training texts: to choose the best epoch by


@dataclass(frozen=True, slots=True)
class Files:
    """What the command is given; the last two are checkpoints, `gpt` may be empty."""

    data: Path
    test: Path
    encoder: str
    gpt: str


class Taken:
    """The rungs that are done, in a file that a later run of the same command reads."""

    def __init__(self, path: Path, run: Mapping[str, Any]) -> None:
        self._path, self._run = path, dict(run)
        self.steps: list[Step] = []
        if path.exists():
            known = read_object(path)
            if known["run"] != self._run:
                raise CheckpointError(f"{path} is of another run; choose a folder that is new")
            self.steps = [Step(**each) for each in known["steps"]]
        elif path.parent.exists() and any(path.parent.iterdir()):
            raise CheckpointError(f"{path.parent} holds something; choose a folder that is new")
        self._write()

    def add(self, step: Step) -> None:
        self.steps.append(step)
        self._write()

    def _write(self) -> None:
        values = {"run": self._run, "steps": [asdict(step) for step in self.steps]}
        replace_bytes(self._path, json.dumps(values, indent=1).encode())


def climb(files: Files, output: Path, repository: Path, settings: LadderSettings) -> list[Step]:
    """Train, export to `repository`, serve it and measure; all else is written below `output`.

    A run that was stopped goes on with the rung that it was at.
    """
    for source in filter(None, (files.encoder, files.gpt)):
        load_checkpoint(source)  # now, rather than after others were trained
    console = Console(stderr=True)
    splits = splits_of(files, settings)
    given = {"encoder": files.encoder, "gpt": files.gpt, "rows": digest_of(splits)}
    taken = Taken(output / "taken.json", given | settings.to_dict())
    for rung in rungs_of(splits.train, files.encoder, files.gpt, settings)[len(taken.steps) :]:
        console.print(f"{rung.name}: {rung.what}", style="bold", highlight=False)
        checkpoint = output / "checkpoints" / rung.name
        taken.add(take(rung, splits, settings.max_tokens, checkpoint, repository, console))
    texts = [example.text for example in _test(splits).examples]
    console.print(f"asking all of them, {settings.requests} requests in a turn", highlight=False)
    with serving(repository, "--log-level", "warning") as address:
        rates = request_rates(
            address, [step.name for step in taken.steps], texts, settings.requests
        )
    steps = [replace(step, requests_per_s=rates[step.name]) for step in taken.steps]
    replace_bytes(output / "ladder.json", ladder_json(steps, splits, settings))
    replace_bytes(output / "ladder.png", ladder_picture(steps, splits))
    Console().print(ladder_table(steps, splits))
    return steps


def splits_of(files: Files, settings: LadderSettings) -> Splits[Dataset]:
    data, test = read_dataset(files.data), read_dataset(files.test)
    train, validation = split(
        _some(data, settings.training_texts, settings.seed), [VALIDATION_FRACTION], settings.seed
    )
    return Splits(train, validation, test)


def _some(data: Dataset, count: int, seed: int) -> Dataset:
    """A random choice, in the order of the file; all of them for 0, or where there are fewer."""
    if not 0 < count < len(data):
        return data
    chosen = random.Random(f"some {seed}").sample(range(len(data)), count)  # noqa: S311
    return replace(data, examples=tuple(data.examples[i] for i in sorted(chosen)))


def take(
    rung: Rung,
    splits: Splits[Dataset],
    max_tokens: int,
    checkpoint: Path,
    repository: Path,
    console: Console,
) -> Step:
    """Train one rung, keep its checkpoint and export it."""
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    with console.status("what it starts from"):
        start = rung.start()
    training = replace(rung.training, max_tokens=min(max_tokens, start.max_tokens))
    with ProgressBar(console) as bar:
        tuned = finetune(start, splits, training, listener=bar)
    seconds, cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
    save_checkpoint(tuned.checkpoint, checkpoint)
    with console.status("exporting"):
        example = _test(splits).examples[0].text
        exporting = ExportSettings(rung.name, repository, example=example)
        folder, _ = export_checkpoint(tuned.checkpoint, exporting)
    return Step(
        name=rung.name,
        what=rung.what,
        accuracy=tuned.evaluation.accuracy,
        macro_f1=tuned.evaluation.macro_f1,
        training_s=seconds,
        training_cpu_s=cpu_s,
        num_weights=sum(weight.numel() for weight in tuned.checkpoint.model.parameters()),
        megabytes=(folder / "model.onnx").stat().st_size / 1e6,
    )


def _test(splits: Splits[Dataset]) -> Dataset:
    assert splits.test is not None, "the command asks for a file of them"
    return splits.test
