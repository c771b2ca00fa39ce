"""Section 4: the server as a process of its own, on the device, asked by tritonclient.

Classification and embeddings beside PyTorch, a text streamed and in one piece, streams that their
clients leave, a drain under a stream, and models loaded and unloaded again and again while the
memory of the device is watched. docs/cuda.md says what was verified on CUDA.
"""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from loadtests.gpu.claims import Claim, at_most, is_true
from loadtests.gpu.client import Streamed, connect, generate, infer_texts, metric, wait_for
from loadtests.gpu.context import Context, Findings
from loadtests.gpu.device import session_options, torch_device
from loadtests.gpu.exports import Model, checkpoint_of, export_models, sizes_of
from loadtests.gpu.figures import LIMITS, Outputs, compare, described
from loadtests.gpu.references import computed
from loadtests.load.server import Server, start_server
from service.contract.manifest import Precision

COMMAND = (sys.executable, "-m", "commands", "serve")  # a checkout has no `attendant`
KINDS = ("classification", "embedding", "decoder")
TEXTS = (
    "free prize",
    "lunch tomorrow?",
    "WINNER!! claim your free prize now",
    "a",
    "call now, we are on: " + "claim your prize " * 4,
)
PROMPT = "Once upon a time"
SAMPLED = {"temperature": 0.8, "top_p": 0.9, "seed": 11, "ignore_eos": True}
NUM_LEFT = 20  # streams that their clients leave
LEAVE_LIMIT_S = 5.0  # until their places in the cache are free
USAGE = "attendant_kv_cache_usage_perc"
ROUNDS, TINY_ROUNDS = 50, 12
# For each round of loading and unloading. A process's memory on the CPU goes up and down by 33 MiB,
# with pools of the allocator, so that there only what is much larger is seen in so few rounds.
GROWTH_LIMIT_MIB = {"cuda": 0.5, "cpu": 12.0}


@dataclass(frozen=True, slots=True)
class Served:
    """A server with a model of each kind, and a client of it."""

    context: Context
    server: Server
    client: Any
    models: dict[str, Model]

    def name(self, kind: str) -> str:
        return self.models[kind].name


def run(context: Context) -> Findings:
    """Claims about each of what is asked; stops before what has no time left."""
    session_options(context)  # raises the reason where the device cannot be used
    precision: Precision = "fp16" if context.device == "cuda" else "fp32"
    models = {m.kind: m for m in export_models(context, [(kind, precision) for kind in KINDS])}
    missing = [f"{model.name}: {model.reason}" for model in models.values() if model.reason]
    if missing:
        raise RuntimeError(f"models to serve are missing: {'; '.join(missing)}")
    log = log_of(context)
    findings: Findings = {"claims": [], "left_out": [], "tables": []}
    with answered(findings), errors_with(log), served(context, models) as running:
        _placed(running, findings)
        _texts(running, findings)
        text = _streams(running, findings)
        _leaving(running, findings, text)
        _reloads(running, findings)
        _drain(running, findings)
    findings["log_lines"] = len(log.read_text(encoding="utf-8", errors="replace").splitlines())
    findings["summary"] = [
        f"The server's log is in {log.name}, with {findings['log_lines']} lines."
    ]
    return findings


def log_of(context: Context) -> Path:
    """The file of the log of a section's server: server.log, of the section of that name."""
    return context.run.out / f"{context.section.split()[-1]}.log"


@contextmanager
def errors_with(log: Path) -> Iterator[None]:
    """Raise errors of a block with the end of a server's log, which begins anew."""
    log.unlink(missing_ok=True)
    try:
        yield
    except Exception as error:
        written = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        raise RuntimeError(f"{error}; the server's log ends with:\n{written[-4_000:]}") from error


@contextmanager
def answered(findings: Findings) -> Iterator[None]:
    """Keep what was found before a call fails: the error is a claim that does not hold."""
    claim = "every call of the server is answered"
    try:
        yield
    except Exception as error:
        findings["claims"].append(is_true(claim, False, f"{type(error).__name__}: {error}"))
    else:
        findings["claims"].append(is_true(claim, True))


@contextmanager
def served(context: Context, models: dict[str, Model]) -> Iterator[Served]:
    """A server process over exported models; it is gone after the block."""
    repository = next(iter(models.values())).repository
    names = ",".join(model.name for model in models.values())
    flags = ["--model-control-mode", "explicit", "--load-models", names]
    flags += ["--device", context.device, "--max-queue-s", "0", "--measure-cost-s", "0.2"]
    # A prompt that is copied from an earlier one's cache has its end computed by other kernels.
    flags += ["--no-prefix-reuse"]
    flags += ["--kv-cache-bytes", str(2**26 if context.is_tiny else 2**31)]
    server = start_server(repository, flags, command=COMMAND, log=log_of(context))
    try:
        with connect(server.address) as client:
            yield Served(context, server, client, models)
    finally:
        if server.is_running:
            server.process.kill()
            server.process.wait()


def _placed(served: Served, findings: Findings) -> None:
    """Where the server says that models run."""
    wanted = "KIND_GPU" if served.context.device == "cuda" else "KIND_CPU"
    for model in served.models.values():
        config = served.client.get_model_config(model.name, as_json=True)["config"]
        (group,) = config["instance_group"]
        kind = group.get("kind", "KIND_AUTO")
        claim = f"the server runs {model.name} on {served.context.device}"
        findings["claims"].append(is_true(claim, kind == wanted, kind, wanted))


def _texts(served: Served, findings: Findings) -> None:
    """Labels and vectors of a few texts, beside PyTorch's of each text alone."""
    device = torch_device(served.context)
    for kind, output in (("classification", "logits"), ("embedding", "embedding")):
        model, checkpoint = served.models[kind], checkpoint_of(kind, sizes_of(served.context))
        network = checkpoint.model.to(device)
        rows = [checkpoint.tokenizer.encode(text) for text in TEXTS]
        expected = np.concatenate(
            [
                computed(network, [np.array([row.ids]), np.ones((1, len(row.ids)), int)], device)
                for row in rows
            ]
        )
        answer = infer_texts(served.client, model.name, TEXTS, output)
        limits = LIMITS[model.precision]
        figures = compare(Outputs(answer, expected, kind == "classification"), limits.tie)
        claim = f"{model.name}, served, answers as PyTorch"
        holds = figures.is_within(limits)
        findings["claims"].append(is_true(claim, holds, str(figures), described(limits)))
    served.context.say("texts are answered")


def _streams(served: Served, findings: Findings) -> str:
    """A text in pieces and in one; the text."""
    params = SAMPLED | {"max_tokens": 100}
    stream = Streamed(served.client, served.name("decoder"), PROMPT, params)
    pieces = list(stream)
    stream.close()
    text = generate(served.client, served.name("decoder"), PROMPT, params)
    is_same = "".join(pieces) == text and bool(text)
    findings["claims"] += [
        is_true("a streamed text is the one that is answered whole", is_same),
        is_true("a text is streamed in pieces", len(pieces) > 1, f"{len(pieces)} pieces"),
    ]
    served.context.say(f"a text was streamed in {len(pieces)} pieces")
    return text


def _leaving(served: Served, findings: Findings, text: str) -> None:
    """Clients that leave their streams early, and the text of one that comes after them."""
    model, url = served.name("decoder"), served.server.metrics_url
    sizes = sizes_of(served.context)
    params = SAMPLED | {"max_tokens": sizes.context_tokens - 2 * len(PROMPT)}
    usage = 0.0
    for _ in range(NUM_LEFT):
        with connect(served.server.address) as client:
            stream = Streamed(client, model, PROMPT, params)
            next(iter(stream))
            usage = max(usage, metric(url, USAGE, model))
            stream.close(cancels=True)
    waited_s = wait_for(url, USAGE, model, 0.0, LEAVE_LIMIT_S)
    again = generate(served.client, model, PROMPT, SAMPLED | {"max_tokens": 100})
    findings["claims"] += [
        is_true("the cache is in use while a text is streamed", usage > 0, f"{usage:.1%}"),
        at_most(f"the cache is free after {NUM_LEFT} clients left", waited_s, LEAVE_LIMIT_S, "s"),
        is_true("the text after them is the one before them", again == text),
    ]
    served.context.say(f"{NUM_LEFT} clients left")


def _reloads(served: Served, findings: Findings) -> None:
    """Models loaded and unloaded, and what memory is in use after each round."""
    context, names = served.context, [served.name("classification"), served.name("decoder")]
    rounds = TINY_ROUNDS if context.is_tiny else ROUNDS
    in_use: list[float] = []
    for number in range(rounds):
        if context.left_s < 10.0 and number >= TINY_ROUNDS:
            findings["left_out"].append(
                f"Models were loaded and unloaded {number} times, not {rounds}: no time was left."
            )
            break
        for name in names:
            served.client.unload_model(name, client_timeout=60.0)
        in_use.append(used_mib(served))
        for name in names:
            served.client.load_model(name, client_timeout=60.0)
    growth = growth_of(in_use)
    what = "the device" if context.device == "cuda" else "the server's process"
    claim: Claim = at_most(
        f"memory of {what} grows over {len(in_use)} rounds of loading and unloading",
        growth,
        GROWTH_LIMIT_MIB[context.device],
        "MiB a round",
    )
    findings["claims"].append(claim)
    findings["used_mib"] = [round(mib, 1) for mib in in_use]
    context.say(f"{len(in_use)} rounds of loading, {growth:.2f} MiB a round")


def used_mib(served: Served) -> float:
    """Memory in use while the models are unloaded: of the whole device, or of the process."""
    if served.context.device != "cuda":
        return served.server.resident_mib()
    free, total = torch.cuda.mem_get_info()
    return (total - free) / 2**20


def growth_of(in_use: list[float]) -> float:
    """The slope by least squares, after the first fifth: pools reach their size in it."""
    settled = in_use[len(in_use) // 5 :]
    slope, _ = np.polyfit(np.arange(len(settled)), settled, 1)
    return float(slope)


def _drain(served: Served, findings: Findings) -> None:
    """SIGTERM under a stream: it is answered to its end, and the process ends with 0."""
    model, sizes = served.name("decoder"), sizes_of(served.context)
    params = SAMPLED | {"max_tokens": sizes.context_tokens - 2 * len(PROMPT)}
    expected = generate(served.client, model, PROMPT, params)
    stream = Streamed(served.client, model, PROMPT, params)
    pieces = iter(stream)
    text = next(pieces)
    started_s = time.monotonic()
    served.server.send(signal.SIGTERM)
    text += "".join(pieces)
    stream.close()
    code = served.server.process.wait(60.0)
    took_s = time.monotonic() - started_s
    findings["claims"] += [
        is_true("a stream that was open at SIGTERM is whole", text == expected),
        is_true("the server ends with 0 after SIGTERM", code == 0, f"{code} after {took_s:.1f} s"),
    ]
    served.context.say(f"the server ended with {code} after {took_s:.1f} s")
