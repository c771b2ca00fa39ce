"""Fuzz every method for some time; what does harm is kept in the corpus.

python -m tests.fuzz.explore --seconds 600
"""

import hashlib
import random
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from tests.fuzz.messages import CORPUS, all_methods, damaged
from tests.fuzz.server import target


def main(
    seconds: Annotated[float, typer.Option(min=1, help="How long.")] = 60.0,
    first_seed: Annotated[int, typer.Option(help="Where to begin.")] = 1_000,
) -> None:
    """Send messages until the time is over; print how many, and each that did harm."""
    console = Console()
    end_s = time.monotonic() + seconds
    seed, num_sent = first_seed, 0
    with tempfile.TemporaryDirectory() as folder, target(Path(folder)) as under_fire:
        with Progress(console=Console(stderr=True)) as progress:
            task = progress.add_task("messages", total=seconds)
            while (left_s := end_s - time.monotonic()) > 0:
                for method in all_methods():
                    generator = random.Random(seed)  # noqa: S311 - the same each time
                    message = method.request(generator)
                    for sent in (message, damaged(message, generator)):
                        try:
                            under_fire.send(method, sent)
                        except AssertionError as error:
                            name = f"{method.name}-{hashlib.sha256(sent).hexdigest()[:12]}.bin"
                            (CORPUS / name).write_bytes(sent)
                            console.print(f"{name}: {error}", markup=False)
                        num_sent += 1
                seed += 1
                progress.update(task, completed=seconds - left_s)
        under_fire.check()
    console.print(f"{num_sent} messages, seeds {first_seed} to {seed - 1}")


if __name__ == "__main__":
    typer.run(main)
