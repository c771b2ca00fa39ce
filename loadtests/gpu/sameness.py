"""Section 5: outputs that must be the same whatever else is computed, on the device.

A text in a batch and alone; a sequence continued from the cache and computed anew, in a slot that
others used before, and from a prompt in pieces; a seeded text alone and among others. On the CPU
they are equal but for the order of sums. On a GPU the kernel depends on the size of a batch, so
that numbers differ by the precision's rounding, and now and then a choice between two tokens about
as good; both are measured. docs/how-to/cuda.md says what was verified on CUDA.
"""
# ruff: noqa: N806 - suffixes are array layouts: B rows, V vocabulary

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from export.checks.decoding import random_rows
from loadtests.gpu.client import connect, generate
from loadtests.gpu.context import Context
from loadtests.gpu.figures import Outputs, compare, described, worst
from loadtests.gpu.kinds import KINDS, SERVED
from loadtests.gpu.models import Graph, Model, as_they_come, models_of
from loadtests.gpu.parity import session_options
from loadtests.gpu.references import Opening, Rows, continued, ragged_rows
from loadtests.gpu.server import Served, serve
from models.networks.heads import TextNetwork
from service.errors import LoadError, ModelFailed
from service.generation.choosing.step_logits import StepLogits

PROMPT_TOKENS = (3, 20, 90)
NUM_STEPS = 24
CHUNK_TOKENS = 16
COMPANY = 16  # texts that are generated at once
SAMPLED = {"temperature": 0.8, "top_p": 0.9, "ignore_eos": True}
# Of seeded texts, those that are the same in company. On a GPU other kernels compute a batch, and a
# tie may be decided otherwise; alone, a text is to be the same again.
SAME_LIMIT = {"cpu": 1.0, "cuda": 0.75}
PROMPTS = [f"{number}. Once upon a time" + " there was" * (number % 4) for number in range(COMPANY)]
LOG_SUM_ERROR = 1e-3  # of a float32 sum in another order
Pairs = Iterable[tuple[np.ndarray, np.ndarray]]


def run(context: Context) -> None:
    """Claims about each precision that is served on the device."""
    wanted = [(kind, context.run.precision) for kind in SERVED]
    halves = [(kind, "bf16") for kind in SERVED] if context.device == "cuda" else []
    for model in as_they_come(context, models_of(context.run, *wanted, *halves)):  # type: ignore[arg-type]
        for graph in model.graphs():
            name = f"{model.name} {graph.layout}".strip()
            if context.is_over:
                context.leave_out(f"{name}: no time was left")
                continue
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
    checkpoint = KINDS[model.kind].checkpoint(is_tiny=context.is_tiny)
    opening = Opening(checkpoint, graph.path, session_options(context.device), context.parts)
    pairs = _cached(opening) if KINDS[model.kind].has_cache else _batched(opening)
    limits = KINDS[model.kind].limits(graph.precision)
    for what, each in pairs.items():
        is_choice = model.kind != "embedding"
        figures = worst([compare(Outputs(*pair, is_choice), limits.tie) for pair in each])
        holds = figures.is_within(limits)
        context.check(f"{name} {what}", holds, str(figures), described(limits))
    if KINDS[model.kind].has_cache:
        decoder = opening.rows(checkpoint.config.max_positions, 1)
        problem = problem_of(StepLogits.of(decoder.run(0, [np.arange(9)], [0])))
        if problem is not None:
            context.check(f"{name} gives its largest logits as candidates", not problem, problem)


def _batched(opening: Opening) -> dict[str, Pairs]:
    """Rows of a ragged batch beside each of them alone."""
    network, session = opening.checkpoint.model, opening.session()
    assert isinstance(network, TextNetwork), "a network that takes texts"
    batch = ragged_rows(network, opening.checkpoint.max_tokens, seed=1)
    names, outputs = [spec.name for spec in session.signature.inputs], [network.output_name]
    (together,) = session.run({each: batch[each] for each in names}, outputs)
    alone = [
        session.run({each: batch[each][[row], :length] for each in names}, outputs)[0]
        for row, length in enumerate(batch["attention_mask"].sum(axis=1))
    ]
    return {"computes a text in a batch as alone": [(together, np.concatenate(alone))]}


def _cached(opening: Opening) -> dict[str, Pairs]:
    """Continued sequences beside the same computed anew, in several ways."""
    config = opening.checkpoint.config
    decoder = opening.rows(config.max_positions, len(PROMPT_TOKENS) + 1)
    prompts = random_rows(config.vocab_size, PROMPT_TOKENS, config.max_positions // 2)
    rows, together = continued(decoder, prompts, NUM_STEPS)
    ends = zip(rows, prompts, strict=True)
    anew = [_computed_anew(decoder, row, range(len(prompt), len(row))) for row, prompt in ends]
    _, again = continued(decoder, prompts, NUM_STEPS, first_slot=1)
    alone = [continued(decoder, [prompt], NUM_STEPS)[1][0] for prompt in prompts]
    longest = prompts[-1]
    whole = _computed_anew(decoder, longest, [len(longest) - 1])
    return {
        "continues from the cache as it computes anew": _comparable(together, anew),
        "computes the same in slots that were used": _comparable(again, together),
        "decodes a sequence among others as alone": _comparable(together, alone),
        "computes a prompt in pieces as in one": [(_in_pieces(decoder, longest[:-1]), whole)],
    }


def _comparable(ones: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> Pairs:
    """Logits up to where two sequences chose otherwise: behind that they are of other texts."""
    for one, other in zip(ones, others, strict=True):
        is_same = one.argmax(axis=1) == other.argmax(axis=1)
        reached = np.cumprod([True, *is_same[:-1]]).astype(bool)
        yield one[reached], other[reached]


def _computed_anew(decoder: Rows, row: Sequence[int], ends: Iterable[int]) -> np.ndarray:
    """Logits [ends, V] after each beginning of a row, without a past."""
    slot = decoder.num_slots - 1
    runs = (decoder.run(slot, [np.array(row[:end])], [0]) for end in ends)
    return np.concatenate([StepLogits.of(logits).whole().copy() for logits in runs])


def _in_pieces(decoder: Rows, prompt: Sequence[int]) -> np.ndarray:
    """Logits [1, V] after a prompt, computed chunk by chunk."""
    for start in range(0, len(prompt), CHUNK_TOKENS):
        logits = decoder.run(0, [np.array(prompt[start : start + CHUNK_TOKENS])], [start])
    return StepLogits.of(logits).whole().copy()


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
    highest_B1 = rows_BV.max(axis=1, keepdims=True)
    exps = np.exp((rows_BV - highest_B1).astype(np.float64))
    sums_B = np.log(exps.sum(axis=1)) + highest_B1[:, 0]
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
    what = f"{name}: share of seeded texts that are the same"
    context.at_least(f"{what} again", _share_of_same(alone, again), 1.0)
    limit = SAME_LIMIT[context.device]
    context.at_least(f"{what} among {COMPANY}", _share_of_same(alone, together), limit)


def _share_of_same(ones: Sequence[str], others: Sequence[str]) -> float:
    return sum(a == b for a, b in zip(ones, others, strict=True)) / len(ones)
