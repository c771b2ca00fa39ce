"""A command of a demo, and functions that make those of training, export and data.

In commands `{folder}` is the demo's own folder, whose `repository` is served, `{encoder}` is a
pretrained encoder, and `{gpt}` the default decoder.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path

# The Makefile knows where they come from.
ENCODER, GPT = Path("build/checkpoints/minilm"), Path("build/checkpoints/gpt")
EXAMPLES = "models/data/examples"


@dataclass(frozen=True, slots=True)
class Places:
    """Paths for the names in braces."""

    folder: Path
    encoder: Path = ENCODER
    gpt: Path = GPT

    def fill(self, text: str) -> str:
        for name in ("folder", "encoder", "gpt"):
            text = text.replace(f"{{{name}}}", str(getattr(self, name)))
        return text


@dataclass(frozen=True, slots=True)
class Step:
    """One command; `makes` is the path that exists once it is done."""

    command: str
    makes: str = ""
    brief: str = ""  # more flags, for a run of seconds

    def arguments(self, places: Places, *, is_brief: bool = False) -> list[str]:
        """The program first."""
        typed = f"{self.command} {self.brief}" if is_brief else self.command
        return [places.fill(part) for part in shlex.split(typed)]

    @property
    def exported(self) -> str:
        """The name of the model that it exports; empty for other steps."""
        path = Path(self.makes)
        return path.name if path.parent.name == "repository" else ""

    def is_done(self, places: Places) -> bool:
        return bool(self.makes) and Path(places.fill(self.makes)).exists()


def data(program: str, makes: str) -> Step:
    """Write texts that are generated or come with Python."""
    return Step(
        f"python -m models.data.generated.{program} {{folder}}/{makes}", f"{{folder}}/{makes}"
    )


def encoder() -> Step:
    return Step("make {encoder}", "{encoder}")


def attention_of(name: str, source: str, examples: str = "") -> Step:
    """Export the attention weights of a checkpoint, to be served as `name`."""
    return exported(name, "--task attention", source, examples)


def trained(command: str, name: str, brief: str) -> Step:
    """Train a checkpoint `name`."""
    makes = f"{{folder}}/{name}"
    return Step(f"attendant {command} --output {makes}", makes, brief)


def exported(name: str, flags: str = "", source: str = "", examples: str = "") -> Step:
    """Export a checkpoint, the demo's own of that name or another, to be served as `name`.

    `examples` names a file of models/data/examples, or one that a step makes by its whole path.
    """
    repository = "{folder}/repository"
    command = f"attendant export {source or f'{{folder}}/{name}'} --name {name}"
    file = examples if "/" in examples else f"{EXAMPLES}/{examples}.txt"
    tried = f"--examples {file}" if examples else ""
    parts = (command, f"--repository {repository}", flags, tried)
    return Step(" ".join(filter(None, parts)), f"{repository}/{name}")
