"""The tables of docs/benchmarks.md for embedders and rerankers, from results that were kept."""

from collections.abc import Sequence

from loadtests.compare.comparison import Result
from loadtests.compare.encoders import ENCODER_TRAFFIC, ENCODERS
from loadtests.compare.report import our_agreements, our_speeds, ratios, speed
from loadtests.compare.traffic import EMBED, RERANK

OURS = ("attendant fp32", "attendant int8")
HEADS = {
    EMBED: "embedding: texts/s; ours over it in float32; in int8",
    RERANK: "reranking: documents/s; ours over it in float32; in int8",
}


def encoder_tables(results: Sequence[Result]) -> str:
    """A table of each task as Markdown: a row for an engine, for each model its figures."""
    return "\n".join(_table(task, results) for task in (EMBED, RERANK))


def _table(task: str, results: Sequence[Result]) -> str:
    models = [name for name, encoder in ENCODERS.items() if encoder.task == task]
    by_model = {name: _of(name, results) for name in models}
    titles = " | ".join(ENCODERS[name].title for name in models)
    lines = [f"| {HEADS[task]} | {titles} |", "|---" * (len(models) + 1) + "|"]
    names = [name for each in by_model.values() for name in our_speeds(each)]
    for name in dict.fromkeys(names):
        cells = (_our_cell(name, by_model[model]) for model in models)
        lines.append(f"| **{name}** | {' | '.join(cells)} |")
    peers = dict.fromkeys(result.peer for each in by_model.values() for result in each)
    for peer in peers:
        cells = (_peer_cell(peer, by_model[model]) for model in models)
        lines.append(f"| {peer} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _of(model: str, results: Sequence[Result]) -> list[Result]:
    names = {traffic.name for traffic in ENCODER_TRAFFIC[model]}
    return [result for result in results if result.traffic in names]


def _our_cell(name: str, results: Sequence[Result]) -> str:
    speeds = our_speeds(results)
    if name not in speeds:
        return "-"
    return f"{speeds[name]:.0f}; {our_agreements(results).get(name, '')}"


def _peer_cell(peer: str, results: Sequence[Result]) -> str:
    result = next((each for each in results if each.peer == peer), None)
    if result is None or not result.theirs_s:
        return f"- ({result.fault[:80]})" if result else "-"
    faster = ratios(result)
    shown = [str(faster[name]) if name in faster else "-" for name in OURS]
    return f"{speed(result):.0f}; {'; '.join(shown)}; {result.agreement}"
