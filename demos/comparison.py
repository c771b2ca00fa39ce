"""`attendant ladder`: runs each recipe, serves all models together, compares their speed."""

import itertools
import json
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from commands.ask.client.client import Client
from commands.train.progress import TrainingBar
from demos.ladder_report import Result, ladder_json, ladder_picture, ladder_table
from demos.ladder_settings import LadderSettings
from demos.recipes import Recipe, recipes_of
from demos.server import serving
from export.exporter import export_any
from export.settings import ExportSettings
from models.checkpoints.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from models.data.datasets import Dataset, Splits, read_dataset, split
from models.json_files import read_object
from models.recipes.finetune import finetune
from models.training.state import digest_of
from models.training.trainer import Session
from models.writing import replace_bytes
from service.calls.texts import Classify

VALIDATION_FRACTION = 0.1  # of the training texts: to choose the best epoch by
NUM_CLIENTS = 8  # at once, as on a busy server
ROUNDS = 3  # counted ones, after one that warms up
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Files:
    """The command's arguments; the last two are checkpoints, `gpt` may be empty."""

    data: Path
    test: Path
    encoder: str
    gpt: str


class Results:
    """Results so far, in a file that a later run of the same command reads."""

    def __init__(self, path: Path, run: Mapping[str, Any]) -> None:
        self._path, self._run = path, dict(run)
        self.done: list[Result] = []
        if path.exists():
            known = read_object(path)
            if known["run"] != self._run:
                raise CheckpointError(f"{path} is of another run; choose a folder that is new")
            self.done = [Result(**each) for each in known["results"]]
        elif path.parent.exists() and any(path.parent.iterdir()):
            raise CheckpointError(f"{path.parent} holds something; choose a folder that is new")
        self._write()

    def add(self, result: Result) -> None:
        self.done.append(result)
        self._write()

    def _write(self) -> None:
        values = {"run": self._run, "results": [asdict(result) for result in self.done]}
        replace_bytes(self._path, json.dumps(values, indent=1).encode())


def run_all(files: Files, output: Path, repository: Path, settings: LadderSettings) -> list[Result]:
    """Train, export to `repository`, serve it and measure; all else is written below `output`.

    A run that was stopped goes on with the recipe that it was at.
    """
    for source in filter(None, (files.encoder, files.gpt)):
        load_checkpoint(source)  # a missing one is found before anything is trained
    console = Console(stderr=True)
    splits = splits_of(files, settings)
    sources = {"encoder": files.encoder, "gpt": files.gpt, "rows": digest_of(splits)}
    results = Results(output / "results.json", sources | settings.to_dict())
    recipes = recipes_of(splits.train, files.encoder, files.gpt, settings)
    for recipe in recipes[len(results.done) :]:
        console.print(f"{recipe.name}: {recipe.what}", style="bold", highlight=False)
        checkpoint = output / "checkpoints" / recipe.name
        results.add(run(recipe, splits, settings.max_tokens, checkpoint, repository, console))
    texts = [example.text for example in _test(splits).examples]
    console.print(f"{settings.requests} requests to each model in its turn", highlight=False)
    with serving(repository, "--log-level", "warning") as address:
        rates = request_rates(
            address, [result.name for result in results.done], texts, settings.requests
        )
    timed = [replace(result, requests_per_s=rates[result.name]) for result in results.done]
    replace_bytes(output / "ladder.json", ladder_json(timed, splits, settings))
    replace_bytes(output / "ladder.png", ladder_picture(timed, splits))
    Console().print(ladder_table(timed, splits))
    return timed


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


def run(
    recipe: Recipe,
    splits: Splits[Dataset],
    max_tokens: int,
    checkpoint: Path,
    repository: Path,
    console: Console,
) -> Result:
    """Train one model, keep its checkpoint and export it."""
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    with console.status("preparing what it starts from"):
        start = recipe.start()
    training = replace(recipe.training, max_tokens=min(max_tokens, start.max_tokens))
    with TrainingBar(console=console) as bar:
        tuned = finetune(start, splits, training, Session(listener=bar))
    seconds, cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
    save_checkpoint(tuned.checkpoint, checkpoint)
    with console.status("exporting"):
        example = _test(splits).examples[0].text
        exporting = ExportSettings(recipe.name, repository, "fp32", example=example)
        folder, _ = export_any(tuned.checkpoint, exporting)
    return Result(
        name=recipe.name,
        what=recipe.what,
        accuracy=tuned.evaluation.accuracy,
        macro_f1=tuned.evaluation.macro_f1,
        training_s=seconds,
        training_cpu_s=cpu_s,
        num_weights=sum(weight.numel() for weight in tuned.checkpoint.model.parameters()),
        megabytes=(folder / "model.onnx").stat().st_size / 1e6,
    )


def _test(splits: Splits[Dataset]) -> Dataset:
    assert splits.test is not None, "the command requires a file of test texts"
    return splits.test


def request_rates(
    address: str, models: Sequence[str], texts: Sequence[str], num_requests: int
) -> dict[str, float]:
    """Classifications a second of each model, one text a request: the median of the rounds.

    Models take turns, so that whatever else the machine does slows all of them.
    """
    rates: dict[str, list[float]] = {model: [] for model in models}
    requests = list(itertools.islice(itertools.cycle(texts), num_requests))
    with (
        Client(address, TIMEOUT_S) as client,
        ThreadPoolExecutor(NUM_CLIENTS) as clients,
    ):
        for _ in range(1 + ROUNDS):
            for model in models:
                rates[model].append(_rate(client, clients, model, requests))
    return {model: statistics.median(each[1:]) for model, each in rates.items()}


def _rate(client: Client, clients: Executor, model: str, texts: Sequence[str]) -> float:
    began_s = time.perf_counter()
    requests = (Classify(model=model, texts=[text], top_k=1, truncate=True) for text in texts)
    for _ in clients.map(client.ask, requests):
        pass
    return len(texts) / (time.perf_counter() - began_s)
