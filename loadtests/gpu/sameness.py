"""Section 5: outputs that must be the same whatever else is computed, on the device.

A text in a batch and alone; a sequence continued from the cache and computed anew, in a slot that
others used before, and from a prompt in pieces; a seeded text alone and among others. On the CPU
they are equal but for the order of sums. On a GPU the kernel depends on the size of a batch, so
that numbers differ by the precision's rounding, and now and then a choice between two tokens about
as good; both are measured. docs/how-to/cuda.md says what was verified on CUDA.
"""
# ruff: noqa: N806 - suffixes are array layouts: B rows, V vocabulary

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from export.checks.decoding import Greedy, by_prefill, random_rows
from export.checks.parity import Arrays, ragged_batch, rows_alone
from loadtests.compare.devices.shapes import Graph
from loadtests.gpu.client import connect, generate
from loadtests.gpu.context import Context
from loadtests.gpu.figures import LIMITS, Pairs, largest
from loadtests.gpu.kinds import KINDS, checkpoint_of
from loadtests.gpu.models import Model, graphs_as_they_come, wanted
from loadtests.gpu.parity import session_options
from loadtests.gpu.references import Opening
from loadtests.gpu.server import SAMPLED, Served, serve
from service.errors import LoadError, ModelFailed
from service.generation.choosing.step_logits import StepLogits

PROMPT_TOKENS = (3, 20, 90)
NUM_STEPS = 24
CHUNK_TOKENS = 16
COMPANY = 16  # texts that are generated at once
# Of seeded texts, those that are the same in company. On a GPU other kernels compute a batch, and a
# tie may be decided otherwise; alone, a text is to be the same again.
SAME_LIMIT = {"cpu": 1.0, "cuda": 0.75}
PROMPTS = [f"{number}. Once upon a time" + " there was" * (number % 4) for number in range(COMPANY)]
LOG_SUM_ERROR = 1e-3  # of a float32 sum in another order


def run(context: Context) -> None:
    """Claims about each precision that is served on the device."""
    for model, graph, name in graphs_as_they_come(context, wanted(context.run, 5)):
        try:
            _check(context, name, model, graph)
        except (LoadError, ModelFailed) as error:
            context.check(f"{name} is computed", False, str(error))
        context.say(f"{name} was compared with itself")
    if context.is_over:
        context.leave_out("seeded texts in company: no time was left")
    else:
        serve(context, ("decoder",), _seeded)


def _check(context: Context, name: str, model: Model, graph: Graph) -> None:
    kind = KINDS[model.kind]
    checkpoint = checkpoint_of(model.kind, is_tiny=context.is_tiny)
    opening = Opening(checkpoint, graph, session_options(context.device), context.parts)
    for what, pairs in (_cached if kind.has_cache else _batched)(opening).items():
        limits = LIMITS[graph.precision]
        figures = largest(pairs, limits, is_choice=model.kind != "embedding")
        context.check(f"{name} {what}", *figures.against(limits))
    if kind.has_cache:
        decoder = opening.rows(checkpoint.config.max_positions, 1)
        problem = problem_of(StepLogits.of(decoder.run(0, [np.arange(9)], [0])))
        if problem is not None:
            context.check(f"{name} gives its largest logits as candidates", not problem, problem)


def _batched(opening: Opening) -> dict[str, Pairs]:
    """Rows of a ragged batch beside each of them alone."""
    network: Any = opening.checkpoint.model
    session, batch = opening.session(), ragged_batch(network, opening.checkpoint.max_tokens)
    names = [spec.name for spec in session.signature.inputs]

    def run(rows: Arrays) -> np.ndarray:
        return session.run({each: rows[each] for each in names}, [network.output_name])[0]

    alone = np.concatenate(list(map(run, rows_alone(batch))))
    return {"computes a text in a batch as alone": [(run(batch), alone)]}


def _cached(opening: Opening) -> dict[str, Pairs]:
    """Continued sequences beside the same computed anew, in several ways, with the same tokens."""
    config = opening.checkpoint.config
    decoder = opening.rows(config.max_positions, len(PROMPT_TOKENS) + 1)
    prompts = random_rows(config.vocab_size, PROMPT_TOKENS, config.max_positions // 2)
    together = Greedy(decoder, prompts, 0, num_steps=NUM_STEPS)
    rows, recompute = list(zip(prompts, together.rows, strict=True)), by_prefill(decoder)
    used = Greedy(decoder, prompts, 1, forced=together.rows).logits
    alone = [Greedy(decoder, [prompt], 0, forced=[row]).logits[0] for prompt, row in rows]
    pieces = Greedy(decoder, prompts[-1:], 0, chunk=CHUNK_TOKENS, forced=together.rows[-1:]).logits
    anew = [recompute(len(prompt), row) for prompt, row in rows]
    compared = {
        "continues from the cache as it computes anew": (together.logits, anew),
        "computes the same in slots that were used": (used, together.logits),
        "decodes a sequence among others as alone": (together.logits, alone),
        "computes a prompt in pieces as in one": (pieces, together.logits[-1:]),
    }
    return {what: zip(*both, strict=True) for what, both in compared.items()}


def problem_of(logits: StepLogits) -> str | None:
    """What is wrong with the candidates of a step, or empty; None where the graph gives none."""
    candidates, rows_BV = logits.candidates, logits.whole()
    if candidates is None:
        return None
    if candidates.ids.min() < 0 or candidates.ids.max() >= rows_BV.shape[1]:
        return "a candidate is no token of the vocabulary"
    at_ids = np.take_along_axis(rows_BV, candidates.ids, axis=1)
    if not np.array_equal(at_ids, candidates.logits):
        return f"logits of candidates are off by up to {np.abs(at_ids - candidates.logits).max():g}"
    num_candidates = candidates.ids.shape[1]
    largest = np.sort(rows_BV, axis=1)[:, -num_candidates:]
    if not np.array_equal(np.sort(candidates.logits, axis=1), largest):
        return f"the {num_candidates} candidates are not the largest logits"
    sums_B = np.logaddexp.reduce(rows_BV.astype(np.float64), axis=1)
    error = float(np.abs(sums_B - candidates.log_sums).max())
    return "" if error <= LOG_SUM_ERROR else f"the logarithm of the sum is off by {error:g}"


def _seeded(served: Served) -> None:
    """Seeded texts alone, again, and all at once."""
    context, name = served.context, served.name("decoder")
    num_tokens = 40 if context.is_tiny else 100

    def ask(number: int) -> str:
        params = SAMPLED | {"seed": number, "max_tokens": num_tokens}
        with connect(served.server.address) as client:
            return generate(client, name, PROMPTS[number], params)

    alone, again = ([ask(number) for number in range(COMPANY)] for _ in range(2))
    with ThreadPoolExecutor(COMPANY) as pool:
        together = list(pool.map(ask, range(COMPANY)))
    assert len(set(alone)) > COMPANY // 2, "seeds and prompts should give different texts"
    what, limit = f"{name}: share of seeded texts that are the same", SAME_LIMIT[context.device]
    context.at_least(f"{what} again", _share_of_same(alone, again), 1.0)
    context.at_least(f"{what} among {COMPANY}", _share_of_same(alone, together), limit)


def _share_of_same(ones: Sequence[str], others: Sequence[str]) -> float:
    return sum(a == b for a, b in zip(ones, others, strict=True)) / len(ones)
