"""Sections 3 and 9: the server from end to end, and rounds of loading and unloading.

`attendant serve` over exported models, with tritonclient: classify, embed, stream, leave, drain.
docs/how-to/cuda.md says what was verified on CUDA.
"""

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from loadtests.gpu.client import Streamed, connect, generate, infer_texts, metric, wait_for
from loadtests.gpu.context import Context
from loadtests.gpu.figures import LIMITS, largest
from loadtests.gpu.kinds import FULL, SERVED, TINY, checkpoint_of
from loadtests.gpu.models import Model, as_they_come, wanted
from loadtests.gpu.parity import torch_device
from loadtests.gpu.references import computed
from loadtests.load.server import Server, start_server
from service.runtime.session import choose_device

TEXTS = (
    *("free prize", "lunch tomorrow?", "WINNER!! claim your free prize now", "a"),
    "call now, we are on: " + "claim your prize " * 4,
)
PROMPT = "Once upon a time"
SAMPLED = {"temperature": 0.8, "top_p": 0.9, "seed": 11, "ignore_eos": True}
NUM_LEFT = 20  # streams that their clients leave
LEAVE_LIMIT_S = 5.0  # until their places in the cache are free
USAGE = "attendant_kv_cache_usage_perc"
ROUNDS, LEAST_ROUNDS = 15, 6  # of loading; fewer say nothing
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

    @property
    def context_tokens(self) -> int:
        """Tokens of a text that is as long as the decoder takes."""
        return (TINY if self.context.is_tiny else FULL).context_tokens - 2 * len(PROMPT)


def run(context: Context) -> None:
    """Claims about each of what is asked."""

    def use(served: Served) -> None:
        _placed(served)
        _texts(served)
        _leaving(served, _streams(served))
        _drain(served)

    serve(context, SERVED, use)


def loading(context: Context) -> None:
    """Models loaded and unloaded, and what memory is in use after each round."""
    serve(context, ("classification", "decoder"), _load_in_rounds)


def _load_in_rounds(served: "Served") -> None:
    context, in_use = served.context, list[float]()
    while len(in_use) < ROUNDS and not context.is_over:
        for kind in served.models:
            served.client.unload_model(served.name(kind), client_timeout=60.0)
        in_use.append(used_mib(served))
        for kind in served.models:
            served.client.load_model(served.name(kind), client_timeout=60.0)
    context.findings["used_mib"] = [round(mib, 1) for mib in in_use]
    if len(in_use) < ROUNDS:
        context.leave_out(f"{ROUNDS - len(in_use)} of {ROUNDS} rounds of loading: no time left")
    if len(in_use) >= LEAST_ROUNDS:
        what = "the device" if context.device == "cuda" else "the server's process"
        claim = f"memory of {what} grows over {len(in_use)} rounds of loading"
        context.at_most(claim, growth_of(in_use), GROWTH_LIMIT_MIB[context.device], "MiB a round")


def serve(context: Context, kinds: Sequence[str], use: Callable[["Served"], None]) -> None:
    """Use a server process over exported models, which is gone afterwards.

    An error meanwhile is a claim that does not hold, with the end of the server's log, and what was
    found before it is kept.
    """
    choose_device(context.device)  # raises the reason where the device cannot be used
    models = [each for each in wanted(context.run, 3) if each.kind in kinds]
    repository, ready = models[0].repository, {e.kind: e for e in as_they_come(context, models)}
    if missing := [kind for kind in kinds if kind not in ready]:
        context.leave_out(f"the server, for which models are missing: {', '.join(missing)}")
        return
    log, claim = context.run.out / f"{context.section.split()[-1]}.log", "every call is answered"
    log.unlink(missing_ok=True)
    server = None
    try:
        with context.parts.timed("open"):
            server = start_server(repository, _flags(context, ready), log=log)
        with connect(server.address) as client, context.parts.timed("run"):
            use(Served(context, server, client, ready))
    except Exception as error:
        written = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        said = f"{type(error).__name__}: {error}; the server's log ends with:\n{written[-4_000:]}"
        context.check(claim, False, said)
    else:
        context.check(claim, True)
    finally:
        if server is not None and server.is_running:
            server.process.kill()
            server.process.wait()


def _flags(context: Context, models: dict[str, Model]) -> list[str]:
    names = ",".join(model.name for model in models.values())
    return [
        *("--model-control-mode", "explicit", "--load-models", names),
        *("--device", context.device, "--max-queue-s", "0", "--measure-cost-s", "0.2"),
        # A prompt that is copied from an earlier one's cache has its end computed by other kernels.
        "--no-prefix-reuse",
        *("--kv-cache-bytes", str(2**26 if context.is_tiny else 2**31)),
    ]


def _placed(served: Served) -> None:
    """Where the server says that models run."""
    wanted = "KIND_GPU" if served.context.device == "cuda" else "KIND_CPU"
    for model in served.models.values():
        config = served.client.get_model_config(model.name, as_json=True)["config"]
        kind = config["instance_group"][0].get("kind", "KIND_AUTO")
        claim = f"the server runs {model.name} on {served.context.device}"
        served.context.check(claim, kind == wanted, kind, wanted)


def _texts(served: Served) -> None:
    """Labels and vectors of a few texts, beside PyTorch's of each text alone."""
    context, device = served.context, torch_device(served.context.device)
    for kind, output in (("classification", "logits"), ("embedding", "embedding")):
        checkpoint = checkpoint_of(kind, is_tiny=context.is_tiny)
        network = checkpoint.model.to(device)
        rows = [np.array([checkpoint.tokenizer.encode(text).ids]) for text in TEXTS]
        expected = np.concatenate([computed(network, [row, np.ones_like(row)]) for row in rows])
        answer = infer_texts(served.client, served.name(kind), TEXTS, output)
        limits, is_choice = LIMITS[context.run.precision], kind == "classification"
        figures = largest([(answer, expected)], limits, is_choice=is_choice)
        claim = f"{served.name(kind)}, served, answers as PyTorch"
        context.check(claim, *figures.against(limits))
    context.say("texts are answered")


def _streams(served: Served) -> str:
    """A text in pieces and in one; the text."""
    params = SAMPLED | {"max_tokens": 100}
    stream = Streamed(served.client, served.name("decoder"), PROMPT, params)
    pieces = list(stream)
    stream.close()
    text = generate(served.client, served.name("decoder"), PROMPT, params)
    is_same = "".join(pieces) == text and bool(text)
    served.context.check("a streamed text is the one that is answered whole", is_same)
    several = len(pieces) > 1
    served.context.check("a text is streamed in pieces", several, f"{len(pieces)} pieces")
    served.context.say("a text was streamed")
    return text


def _leaving(served: Served, text: str) -> None:
    """Clients that leave their streams early, and the text of one that comes after them."""
    model, url = served.name("decoder"), served.server.metrics_url
    params, usage = SAMPLED | {"max_tokens": served.context_tokens}, 0.0
    for _ in range(NUM_LEFT):
        with connect(served.server.address) as client:
            stream = Streamed(client, model, PROMPT, params)
            next(iter(stream))
            usage = max(usage, metric(url, USAGE, model))
            stream.close(cancels=True)
    waited_s = wait_for(url, USAGE, model, 0.0, LEAVE_LIMIT_S)
    again = generate(served.client, model, PROMPT, SAMPLED | {"max_tokens": 100})
    context = served.context
    context.check("the cache is in use while a text is streamed", usage > 0, f"{usage:.1%}")
    claim = f"the cache is free after {NUM_LEFT} clients left"
    context.at_most(claim, waited_s, LEAVE_LIMIT_S, "s")
    context.check("the text after them is the one before them", again == text)
    context.say("clients left")


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


def _drain(served: Served) -> None:
    """SIGTERM under a stream: it is answered to its end, and the process ends with 0."""
    model, params = served.name("decoder"), SAMPLED | {"max_tokens": served.context_tokens}
    expected = generate(served.client, model, PROMPT, params)
    stream = Streamed(served.client, model, PROMPT, params)
    pieces = iter(stream)
    text = next(pieces)
    started_s = time.monotonic()
    served.server.send(signal.SIGTERM)
    text += "".join(pieces)
    stream.close()
    code = served.server.process.wait(60.0)
    found = f"{code} after {time.monotonic() - started_s:.1f} s"
    served.context.check("a stream that was open at SIGTERM is whole", text == expected)
    served.context.check("the server ends with 0 after SIGTERM", code == 0, found)
