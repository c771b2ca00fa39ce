"""Pictures of load tests: latency over time, its whole distribution, and over the rate."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import LogFormatter

from loadtests.load.histogram import Histogram
from loadtests.load.report import Report
from loadtests.load.scenario import Slo
from loadtests.load.tally import Answers

PERCENTS = {50: "tab:blue", 95: "tab:orange", 99: "tab:red"}
SPECTRUM = (0, 50, 75, 90, 95, 97.5, 99, 99.5, 99.9, 99.95, 99.99)
SIZE_INCHES = (5.0, 3.6)  # of one panel
DPI = 80


def draw_report(report: Report, path: Path) -> None:
    """One panel for each: over time, the distribution, and the curve where rates were tried."""
    has_curve = any(run.name == "curve" for run in report.runs)
    num_panels = 3 if has_curve else 2
    width, height = SIZE_INCHES
    figure, panels = plt.subplots(1, num_panels, figsize=(width * num_panels, height), dpi=DPI)
    _over_time(report, panels[0])
    _spectrum(report, panels[1])
    if has_curve:
        _over_rate(report, panels[2])
    figure.suptitle(f"{report.scenario.name}, {report.main.answers_per_s:.0f} answers/s")
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def _over_time(report: Report, panel: Any) -> None:
    tally = report.main.tally
    seconds = sorted(tally.by_second)
    name, _, bound_ms = judged(tally.total, tally.slo)
    for percent, colour in PERCENTS.items():
        values = [
            judged(tally.by_second[second], tally.slo)[1].percentile_s(percent) * 1e3
            for second in seconds
        ]
        panel.plot(seconds, values, color=colour, label=f"p{percent}")
    for restart in report.restarts:
        panel.axvspan(
            restart.at_s, restart.at_s + restart.ending_s + restart.starting_s, color="0.9"
        )
    _finish(panel, "due, s", name, bound_ms)


def _spectrum(report: Report, panel: Any) -> None:
    tally = report.main.tally
    for title, answers in sorted(tally.by_traffic.items()):
        name, histogram, bound_ms = judged(answers, tally.slo)
        count = histogram.count
        percents = [percent for percent in SPECTRUM if count * (100 - percent) >= 100]
        panel.plot(
            [100 / (100 - percent) for percent in percents],
            [histogram.percentile_s(percent) * 1e3 for percent in percents],
            label=title,
            marker=".",
        )
    panel.set_xscale("log")
    ticks = (1, 2, 10, 100, 1_000)
    panel.set_xticks(ticks, [f"{100 - 100 / tick:g}" for tick in ticks])
    _finish(panel, "percentile", name, bound_ms)


def _over_rate(report: Report, panel: Any) -> None:
    """Rates of the curve as a line for each percentile."""
    runs = sorted((run for run in report.runs if run.name == "curve"), key=lambda run: run.rate)
    histograms = [judged(run.tally.total, run.tally.slo)[1] for run in runs]
    for percent, colour in PERCENTS.items():
        panel.plot(
            [run.answers_per_s for run in runs],
            [histogram.percentile_s(percent) * 1e3 for histogram in histograms],
            color=colour,
            marker=".",
            label=f"p{percent}",
        )
    main = report.main.tally
    name, _, bound_ms = judged(main.total, main.slo)
    _finish(panel, "answers per second", name, bound_ms)


def judged(answers: Answers, slo: Slo) -> tuple[str, Histogram, float]:
    """The duration that the SLO is about first of all: its name, it, and its bound in ms."""
    if slo.first_token_ms and not slo.latency_ms and answers.first_token.count:
        return "time to first token", answers.first_token, slo.first_token_ms
    return "latency", answers.latency, slo.latency_ms


def _finish(panel: Any, across: str, name: str, bound_ms: float) -> None:
    if bound_ms:
        panel.axhline(bound_ms, color="0.5", linestyle="--", linewidth=1, label="SLO")
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter(LogFormatter())
    panel.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.5)))
    panel.set_xlabel(across)
    panel.set_ylabel(f"{name}, ms")
    panel.grid(alpha=0.3)
    panel.legend(fontsize="small")
