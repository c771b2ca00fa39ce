"""The models of a server, each tried with its own example."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from rich.text import Text

from commands.ask.client.client import Client
from commands.ask.client.refusal import CallError
from commands.ask.shown.tables import Table, short
from commands.ask.verb_command import named
from commands.ask.verbs import VERBS, Verb
from service.calls.generation import Generate
from service.calls.models import ModelFacts
from service.calls.sampling import Sampling

TRIAL_TOKENS = 24  # of output, when a generative model is tried

ADDRESS = "127.0.0.1:8001"  # of the server that is asked unless another is named
# What a model is asked first, by its task: the command, and what is behind the model's name.
FIRST_QUESTIONS: Mapping[str, tuple[str, str]] = {
    "text-classification": ("classify", "'a text'"),
    "embedding": ("embed", "'a text' 'another text'"),
    "pair-scoring": ("rerank", "'a question' 'a text' 'another text'"),
    "text-generation": ("generate", "'Once upon a time'"),
    "fill-mask": ("fill-mask", "'a text with a {mask}'"),
    "token-classification": ("classify-tokens", "'a text'"),
    "question-answering": ("answer", "'a question' --context 'a text'"),
    "image-classification": ("classify-image", "FILE"),
}


@dataclass(frozen=True, slots=True)
class Trial:
    """One model's answer to its example."""

    model: ModelFacts
    answer: str
    latency_s: float


def try_models(address: str, timeout_s: float) -> Iterator[Trial]:
    """Ask every model that takes text its own example, where a text is all that its task needs."""
    with Client(address, timeout_s) as client:
        for model in client.models().models:
            asked = _trial_of(model)
            if asked is None or not model.example:
                continue
            started_s = time.monotonic()
            try:
                answer = asked(client)
            except CallError as error:
                answer = str(error)
            yield Trial(model, answer, time.monotonic() - started_s)


def _trial_of(model: ModelFacts) -> Callable[[Client], str] | None:
    """A function that asks a model its example; None where its task needs more than a text."""
    if model.task == "text-generation":
        return lambda client: _continued(client, model)
    verb = next((each for each in VERBS.values() if model.task in each.tasks and each.brief), None)
    return None if verb is None else lambda client: _answered(client, model, verb)


def _answered(client: Client, model: ModelFacts, verb: Verb) -> str:
    call = named("service.calls.", verb.call)
    answer = client.ask(call(model=model.name, version=model.version, texts=[model.example]))
    brief: str = named("commands.ask.shown.", verb.brief)(answer.results[0])
    return brief


def _continued(client: Client, model: ModelFacts) -> str:
    params = Sampling(temperature=0.0, max_tokens=TRIAL_TOKENS)
    call = Generate(model.name, model.version, model.example, params)
    return f"…{client.generate(call).results[0].text}"


def trial_table(found: Iterable[Trial]) -> Table:
    """Each model's answer to its example, with its duration."""
    table = Table("model", "version", "precision", "asked", "answered", "latency")
    for trial in found:
        table.add_row(
            Text(trial.model.name),
            trial.model.version,
            Text(trial.model.precision),
            short(trial.model.example),
            Text(trial.answer, "bold"),
            f"{trial.latency_s * 1e3:.1f} ms",
        )
    return table


def first_question(name: str, task: str, mask: str, address: str) -> str:
    """The command that asks a model something; empty for a task that takes more than a line."""
    if task not in FIRST_QUESTIONS:
        return ""
    verb, words = FIRST_QUESTIONS[task]
    at = "" if address == ADDRESS else f" --address {address}"
    return f"attendant {verb} {name} {words.format(mask=mask)}{at}"
