"""Section 5: outputs that must be the same whatever else is computed, on the device.

A text in a batch and alone; a sequence continued from the cache and computed anew, in a slot that
others used before, and from a prompt in pieces; a seeded text alone and among others. On the CPU
they are equal but for the order of sums. On a GPU the kernel depends on the size of a batch, so
that numbers differ by the precision's rounding, and now and then a choice between two tokens about
as good; both are measured.

What was verified on CUDA is in docs/cuda.md.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from export.checks.decoding import random_rows
from loadtests.gpu.candidates import problem_of
from loadtests.gpu.claims import Claim, at_least, is_true
from loadtests.gpu.client import connect, generate
from loadtests.gpu.context import Context, Findings
from loadtests.gpu.device import session_options
from loadtests.gpu.exports import PRECISIONS, Graph, checkpoint_of, export_models, sizes_of
from loadtests.gpu.figures import LIMITS, Limits, Outputs, compare, described, worst
from loadtests.gpu.references import Rows, continued, open_rows, ragged_rows
from loadtests.gpu.server import Served, answered, errors_with, log_of, served
from models.networks.gpt import GPT
from models.networks.heads import TextNetwork
from service.contract.manifest import Precision
from service.errors import LoadError, ModelFailed
from service.generation.choosing.step_logits import StepLogits
from service.runtime.session import OnnxSession

TEXT_KINDS = ("classification", "embedding")
PROMPT_TOKENS = (3, 20, 90)
NUM_STEPS = 24
CHUNK_TOKENS = 16
COMPANY = 16  # texts that are generated at once
SAMPLED = {"temperature": 0.8, "top_p": 0.9, "ignore_eos": True}
# Of seeded texts, those that are the same in company. On a GPU other kernels compute a batch, and a
# tie may be decided otherwise; alone, a text is to be the same again.
SAME_LIMIT = {"cpu": 1.0, "cuda": 0.75}
PROMPTS = [f"{number}. Once upon a time" + " there was" * (number % 4) for number in range(COMPANY)]


def run(context: Context) -> Findings:
    """Claims about each precision that can be opened on the device."""
    session_options(context)  # raises the reason where the device cannot be used
    findings: Findings = {"claims": [], "left_out": []}
    precisions: Sequence[Precision] = PRECISIONS if context.device == "cuda" else ("fp32",)
    kinds = (*TEXT_KINDS, "decoder")
    wanted = [(kind, each) for each in precisions for kind in kinds]
    models = []
    for model in export_models(context, wanted):
        models.append(model)
        if model.reason:
            findings["left_out"].append(f"{model.name} is not exported: {model.reason}")
            continue
        for graph in model.graphs():
            obstacle = graph.obstacle(context.device)
            if obstacle or context.is_over:
                findings["left_out"].append(f"{graph.name}: {obstacle or 'no time was left'}")
                continue
            try:
                findings["claims"] += _claims_of(graph, context)
            except (LoadError, ModelFailed) as error:
                findings["claims"].append(is_true(f"{graph.name} is computed", False, str(error)))
        context.say(f"{model.name} was compared with itself")
    decoders = [m for m in models if m.kind == "decoder" and m.is_there and m.precision != "fp32"]
    decoder = decoders[0] if context.device == "cuda" and decoders else models[-1]
    if decoder.is_there and not context.is_over:
        log = errors_with(log_of(context))
        with answered(findings), log, served(context, {"decoder": decoder}) as server:
            _seeded(server, findings)
    findings["summary"] = ["Each output was compared with the same one computed in another way."]
    return findings


def _claims_of(graph: Graph, context: Context) -> list[Claim]:
    model = graph.model
    is_rounded = model.precision == "fp32" and context.device == "cuda"
    limits = LIMITS["tf32" if is_rounded else model.precision]
    if model.kind in TEXT_KINDS:
        return [_batched(graph, context, limits)]
    num_tokens, num_rows = sizes_of(context).context_tokens, len(PROMPT_TOKENS) + 1
    decoder = open_rows(graph.path, session_options(context), num_tokens, num_rows)
    return _cached(graph.name, decoder, context, limits)


def _batched(graph: Graph, context: Context, limits: Limits) -> Claim:
    """Rows of a ragged batch beside each of them alone."""
    model = graph.model
    session = OnnxSession(graph.path, session_options(context))
    checkpoint = checkpoint_of(model.kind, sizes_of(context))
    network = checkpoint.model
    assert isinstance(network, TextNetwork), "only text networks are batched"
    batch = ragged_rows(network, checkpoint.max_tokens, seed=1)
    names = [spec.name for spec in session.signature.inputs]
    outputs = [network.output_name]
    (together,) = session.run({each: batch[each] for each in names}, outputs)
    lengths = batch["attention_mask"].sum(axis=1)
    alone = [
        session.run({each: batch[each][[row], :length] for each in names}, outputs)[0]
        for row, length in enumerate(lengths)
    ]
    is_choice = model.kind == "classification"
    return _claim(
        f"{graph.name} computes a text in a batch as alone",
        [Outputs(together, np.concatenate(alone), is_choice)],
        limits,
    )


def _cached(name: str, decoder: Rows, context: Context, limits: Limits) -> list[Claim]:
    """Continued sequences beside the same computed anew, in several ways."""
    network = checkpoint_of("decoder", sizes_of(context)).model
    assert isinstance(network, GPT), "a decoder"
    config = network.config
    prompts = random_rows(config.vocab_size, PROMPT_TOKENS, config.max_positions // 2)
    rows, together = continued(decoder, prompts, NUM_STEPS)
    anew = [
        _computed_anew(decoder, row, len(prompt)) for row, prompt in zip(rows, prompts, strict=True)
    ]
    _, again = continued(decoder, prompts, NUM_STEPS, first_slot=1)
    alone = [continued(decoder, [prompt], NUM_STEPS)[1][0] for prompt in prompts]
    pieces = _in_pieces(decoder, prompts[-1])
    whole = _computed_anew(decoder, prompts[-1], len(prompts[-1]) - 1)[-1:]
    pairs = {
        "continues from the cache as it computes anew": zip(together, anew, strict=True),
        "computes the same in slots that were used": zip(again, together, strict=True),
        "decodes a sequence among others as alone": zip(together, alone, strict=True),
        "computes a prompt in pieces as in one": [(pieces, whole)],
    }
    claims = [
        _claim(f"{name} {what}", [Outputs(*pair, True) for pair in _comparable(each)], limits)
        for what, each in pairs.items()
    ]
    step = decoder.run(0, [np.array(prompt) for prompt in prompts], [0] * len(prompts))
    problem = problem_of(StepLogits.of(step))
    if problem is not None:
        claim = f"{name} gives the largest of its logits as candidates"
        claims.append(is_true(claim, not problem, problem))
    return claims


def _comparable(pairs: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """Logits up to where two sequences chose otherwise: behind that they are of other texts."""
    kept = []
    for one, other in pairs:
        is_same = one.argmax(axis=1) == other.argmax(axis=1)
        reached = np.cumprod([True, *is_same[:-1]]).astype(bool)
        kept.append((one[reached], other[reached]))
    return kept


def _computed_anew(decoder: Rows, row: Sequence[int], num_prompt: int) -> np.ndarray:
    """Logits [steps, V] after the prompt and each token behind it but the last, without a past."""
    slot = decoder.num_slots - 1
    ends = range(num_prompt, len(row)) if num_prompt < len(row) else [len(row)]
    runs = (decoder.run(slot, [np.array(row[:end])], [0]) for end in ends)
    return np.concatenate([StepLogits.of(logits).whole().copy() for logits in runs])


def _in_pieces(decoder: Rows, prompt: Sequence[int]) -> np.ndarray:
    """Logits [1, V] after all but the last token of a prompt, computed chunk by chunk."""
    logits = None
    for start in range(0, len(prompt) - 1, CHUNK_TOKENS):
        piece = prompt[start : min(start + CHUNK_TOKENS, len(prompt) - 1)]
        logits = decoder.run(0, [np.array(piece)], [start])
    assert logits is not None, "a prompt has tokens"
    return StepLogits.of(logits).whole().copy()


def _claim(claim: str, pairs: list[Outputs], limits: Limits) -> Claim:
    figures = worst([compare(pair, limits.tie) for pair in pairs])
    return is_true(claim, figures.is_within(limits), str(figures), described(limits))


def _seeded(served: Served, findings: Findings) -> None:
    """Seeded texts alone, again, and all at once."""
    device, name = served.context.device, served.name("decoder")
    num_tokens = 40 if served.context.is_tiny else 100

    def ask(number: int) -> str:
        params = SAMPLED | {"seed": number, "max_tokens": num_tokens}
        with connect(served.server.address) as client:
            return generate(client, name, PROMPTS[number], params)

    numbers = range(COMPANY)
    alone = [ask(number) for number in numbers]
    again = [ask(number) for number in numbers]
    with ThreadPoolExecutor(COMPANY) as pool:
        together = list(pool.map(ask, numbers))
    assert len(set(alone)) > COMPANY // 2, "seeds and prompts should give different texts"
    same_again = _share_of_same(alone, again)
    same_together = _share_of_same(alone, together)
    what = f"{name}: share of seeded texts that are the same"
    findings["claims"] += [
        at_least(f"{what} again", same_again, 1.0),
        at_least(f"{what} among {COMPANY}", same_together, SAME_LIMIT[device]),
    ]
    findings["same_characters"] = [
        next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
        for one, other in zip(alone, together, strict=True)
    ]
    served.context.say(f"{same_together:.0%} of seeded texts are the same in company")


def _share_of_same(ones: Sequence[str], others: Sequence[str]) -> float:
    return sum(a == b for a, b in zip(ones, others, strict=True)) / len(ones)
