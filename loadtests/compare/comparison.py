"""Turns of all programs, A B C C B A, after the outputs of each were checked."""

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from loadtests.compare.agreement import (
    Agreement,
    logits_agree,
    scores_agree,
    tokens_agree,
    vectors_agree,
)
from loadtests.compare.connection import Worker, WorkerError
from loadtests.compare.environments import BUILD, environ
from loadtests.compare.models import Reference
from loadtests.compare.peers import Program
from loadtests.compare.traffic import CLASSIFY, EMBED, RERANK
from loadtests.compare.worker import Answer, Setup, Work
from loadtests.load.turns import take_turns

CHECK_CONCURRENCY = 4
WARM_UP_TOKENS = 4  # of each output: engines meet the shapes of all batches


@dataclass(frozen=True, slots=True)
class Side:
    """One program of a comparison, opened and in agreement with the reference."""

    name: str
    run: Callable[[Work], Answer]
    agreement: str = ""


@dataclass(slots=True)
class Result:
    """One peer under one kind of traffic. Seconds are per counted round; `fault` says why none."""

    traffic: str
    what: str
    task: str
    peer: str
    precision: str
    versions: dict[str, str] = field(default_factory=dict)
    agreement: str = ""
    fault: str = ""
    amount: int = 0  # rows, or generated tokens
    theirs_s: list[float] = field(default_factory=list)
    ours_s: dict[str, list[float]] = field(default_factory=dict)
    our_agreement: dict[str, str] = field(default_factory=dict)  # by side
    latencies_s: dict[str, list[float]] = field(default_factory=dict)  # from servers, by side
    first_s: dict[str, list[float]] = field(default_factory=dict)  # to first tokens, by side
    machine: dict[str, Any] = field(default_factory=dict)
    command: str = field(default_factory=lambda: shlex.join(sys.argv[1:]))
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def add(self, answers: dict[str, list[Answer]]) -> None:
        """Add the answers of every side by its name, including the peer's."""
        self.ours_s = {name: [answer.seconds for answer in each] for name, each in answers.items()}
        self.theirs_s = self.ours_s.pop(self.peer)
        for name, each in answers.items():
            self.latencies_s[name] = [value for answer in each for value in answer.latencies_s]
            self.first_s[name] = [value for answer in each for value in answer.first_s]


@contextmanager
def opened(peer: Program, threads: int) -> Iterator[Worker]:
    """The peer's worker, its model loaded."""
    scratch = BUILD / "scratch" / peer.environment.name
    scratch.mkdir(parents=True, exist_ok=True)
    runner = sys.executable if peer.runs_in_ours else str(peer.environment.python)
    command = [runner, "-m", f"loadtests.compare.{peer.worker}"]
    log = BUILD / "logs" / f"{peer.name.replace(' ', '-')}-{peer.task}.log"
    options = {"task": peer.task, **peer.options}
    setup = Setup(peer.folder, threads, str(peer.environment.python), str(scratch), options)
    with Worker(peer.name, command, log, environ(threads)) as worker:
        worker.open(setup)
        yield worker


def check(run: Callable[[Work], Answer], peer: Program, reference: Reference) -> Agreement:
    """Ask for the reference's rows, texts or prompts, several at once."""
    if peer.task == CLASSIFY:
        found = run(Work(reference.rows, CHECK_CONCURRENCY)).outputs
        return logits_agree(reference.logits, found, peer.precision)
    if peer.task in (EMBED, RERANK):
        texts = Work([], CHECK_CONCURRENCY, texts=reference.texts, query=reference.query)
        agree = vectors_agree if peer.task == EMBED else scores_agree
        return agree(reference.logits, run(texts).outputs, peer.precision)
    counts = [len(tokens) for tokens in reference.tokens]
    answers = list(run(Work(reference.prompts, CHECK_CONCURRENCY, counts)).outputs)
    return tokens_agree(reference.tokens, answers, peer.precision, reference.likely)


def verified(
    stack: ExitStack, peers: Sequence[Program], reference: Reference, threads: int
) -> tuple[list[Side], dict[str, str]]:
    """The sides that agree, open until the stack ends; and the faults of the others."""
    sides, faults = [], {}
    for peer in peers:
        try:
            worker = stack.enter_context(opened(peer, threads))
            agreement = check(worker.run, peer, reference)
        except WorkerError as error:
            faults[peer.name] = str(error)
            continue
        if agreement.fault:
            faults[peer.name] = agreement.fault
        else:
            sides.append(Side(peer.name, worker.run, agreement.text))
    return sides, faults


def compare_all(
    sides: Sequence[Side], peers: Mapping[str, Result], work: Work, rounds: int
) -> list[Result]:
    """Turns of all sides at once, so that ours run once a round and not once for each peer.

    `peers` are the results to fill, by the names of their sides. A worker that fails ends it with
    a `WorkerError`. Texts need no turn that warms up: the check before had the same ones.
    """
    short = replace(work, num_tokens=[min(each, WARM_UP_TOKENS) for each in work.num_tokens])
    for side in () if work.texts else sides:
        side.run(short)
    answers = take_turns(
        {side.name: partial(side.run, work) for side in sides},
        rounds,
        warm_up=0,
        shows_progress=False,
    )
    ours = {name: each for name, each in answers.items() if name not in peers}
    agreements = {side.name: side.agreement for side in sides}
    for name, result in peers.items():
        result.amount, result.agreement = work.amount, agreements[name]
        result.our_agreement = {side: text for side, text in agreements.items() if side in ours}
        result.add({**ours, name: answers[name]})
    return list(peers.values())
