"""The tables of docs/benchmarks.md for servers, from results that were kept."""

from collections.abc import Sequence

from loadtests.compare.comparison import Result
from loadtests.compare.encoders import ENCODERS
from loadtests.compare.report import our_speeds, ratios
from loadtests.compare.server_traffic import SERVER_TRAFFIC


def server_tables(results: Sequence[Result]) -> str:
    """As Markdown, one for each model: a row for a server and each of ours that it met."""
    return "\n".join(_table(model, results) for model in SERVER_TRAFFIC)


def _table(model: str, results: Sequence[Result]) -> str:
    by_kind = {
        kind.name: [result for result in results if result.traffic == kind.name]
        for kind in SERVER_TRAFFIC[model]
    }
    measured = {name: each for name, each in by_kind.items() if each}
    if not measured:
        return ""
    titles = [name.removeprefix(f"{model}-serve-") for name in measured]
    speeds = {name: our_speeds(each) for name, each in measured.items()}
    ours = list(dict.fromkeys(name for each in speeds.values() for name in each))
    lines = [f"| {ENCODERS[model].title}: ours over it | {' | '.join(titles)} |"]
    lines.append("|---" * (len(titles) + 1) + "|")
    for name in ours:
        cells = (f"{each[name]:.0f}/s" if name in each else "-" for each in speeds.values())
        lines.append(f"| **{name}** | {' | '.join(cells)} |")
    for peer in dict.fromkeys(result.peer for each in measured.values() for result in each):
        for name in ours:
            cells = (_cell(peer, name, each) for each in measured.values())
            lines.append(f"| {peer}; {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(peer: str, ours: str, results: Sequence[Result]) -> str:
    found = next((result for result in results if result.peer == peer), None)
    if found is None or ours not in found.ours_s:
        return f"- ({found.fault[:80]})" if found and found.fault else "-"
    return str(ratios(found)[ours])
