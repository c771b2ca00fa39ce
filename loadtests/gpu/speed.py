"""Section 6: how fast encoders and decoders are, beside what people would use instead.

Every figure stands beside the machine's own limit, measured in the same run: the share of it says
how much is left. Weights are random and the same on both sides. The loads are in
`speed_encoders.py` and `speed_decoders.py`, what work costs at least in `counts.py`.
docs/cuda.md says what was verified on CUDA.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch

from loadtests.gpu import speed_decoders, speed_encoders
from loadtests.gpu.build import encoder_kinds
from loadtests.gpu.builds import MAX_REASON, Builds, builds_of
from loadtests.gpu.claims import Claim, at_least, at_most, is_true
from loadtests.gpu.compiled_ahead import CompiledAhead, tasks_of
from loadtests.gpu.context import Context, Findings
from loadtests.gpu.limits import Limits, free_memory, measured_limits
from loadtests.gpu.shapes import MISSING, TITLES, encoders, names_of
from loadtests.gpu.speed_encoders import MAX_ERROR, PEER_PRECISION, Task
from loadtests.gpu.timing import Quartiles, short
from loadtests.gpu.transformers_peer import STATIC, STATIC_EAGER

# What the project holds itself to.
LEAST_OVER_COMPILED = 1.2  # encoders
LEAST_MATRIX_SHARE = 0.5
LEAST_BANDWIDTH_SHARE = 0.7  # decoding one row
LEAST_OVER_STATIC, STATIC_ROWS = 1.5, 32
MOST_HOST_SHARE = 0.05  # at that many rows
COMPILING_SHARE = 0.35  # of the section's time, at most, before anything is timed
ERROR = "difference of logits from PyTorch's in bf16, over their norm"


def run(context: Context) -> Findings:
    """Figures of all shapes that there is time for."""
    builds = builds_of(context)
    names = names_of(is_tiny=context.is_tiny)
    builds.start(names)
    ahead = CompiledAhead()
    if context.device == "cuda":
        context.say("compiling PyTorch's networks side by side")
        ahead.start(context, tasks_of(context))
        ahead.wait(COMPILING_SHARE * context.left_s)
    if context.device == "cpu":  # builds would be in the times; threads wait for each other
        torch.set_num_threads(1)
        for name in names:
            builds.problem(name, context.left_s)
    context.say("measuring the machine's limits")
    precisions = {precision for precision, _ in encoder_kinds(context.device)} | {PEER_PRECISION}
    limits = measured_limits(context.device, sorted(precisions), is_tiny=context.is_tiny)
    findings: dict[str, Any] = {"limits": limits.to_dict(), "left_out": []}
    findings |= {"encoders": [], "decoders": [], "first_token": [], "errors": {}, "noise": []}
    findings["failures"] = []
    for index, name in enumerate(names):
        part = context.until(1 / (len(names) - index))
        problem = builds.problem(name, part.left_s)
        if problem and builds.is_being_built(name):
            findings["left_out"].append(f"{TITLES[name]}: {problem}.")
        elif problem:
            findings["failures"].append(is_true(f"{TITLES[name]} is built", False, problem))
        else:
            _measure(findings, part, name, Prepared(builds, limits, ahead.done))
    findings["left_out"] += [f"{shape}: {why}." for shape, why in MISSING.items()]
    findings["tables"] = [_limits_table(limits), *_tables(findings)]
    findings["claims"] = claims_of(findings, is_tiny=context.is_tiny)
    findings["summary"] = [
        "Weights are random. Figures are medians with quartiles, of ways that took turns.",
        "Ratios are medians of ratios within a round, so they need not be those of the medians.",
        *noise_sentence(findings["noise"]),
    ]
    return findings


def noise_sentence(noise: list[str]) -> list[str]:
    if not noise:
        return []
    return [f"Times that vary, with the width of their middle half over it: {'; '.join(noise)}."]


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that shapes are measured with."""

    builds: Builds
    limits: Limits
    compiled: Collection[Task] = ()  # ahead


def _measure(findings: dict[str, Any], context: Context, name: str, prepared: Prepared) -> None:
    """Add the figures of one shape; where that fails, a claim that says so."""
    try:
        figures = _figures_of(context, name, prepared)
    except Exception as error:  # of any library: other shapes are measured all the same
        said = f"{type(error).__name__}: {str(error)[:MAX_REASON]}"
        findings["failures"].append(is_true(f"{TITLES[name]} was timed", False, said))
        context.say(f"{TITLES[name]}: {said}")
        return
    finally:
        free_memory(context.device)
    for key, values in figures.items():
        if key == "errors":
            findings["errors"][name] = values
        else:
            findings[key] += values


def _figures_of(context: Context, name: str, prepared: Prepared) -> dict[str, Any]:
    builds, others = prepared.builds, (prepared.limits, prepared.compiled)
    if name in encoders(is_tiny=context.is_tiny):
        figures = speed_encoders.compare(context, name, builds.folder(name), *others)
        figures["encoders"] = figures.pop("rows")
    else:
        figures = speed_decoders.compare(context, name, builds.repository, *others)
        figures["decoders"] = figures.pop("rows")
    return figures


def claims_of(findings: dict[str, Any], *, is_tiny: bool) -> list[Claim]:
    """What is held to a limit or a goal, of what was measured."""
    errors = [
        at_most(f"{TITLES[name]}, {way}: {ERROR}", error, MAX_ERROR)
        for name, by_way in findings["errors"].items()
        for way, error in by_way.items()
        if way.split(", ", 1)[1].startswith("ours")
    ]
    matrix_load = speed_encoders.matrix_load(is_tiny=is_tiny).name
    return [
        *findings["failures"],
        *errors,
        *_encoder_goals(findings["encoders"], matrix_load),
        *_decoder_goals(findings["decoders"], is_tiny=is_tiny),
    ]


def _encoder_goals(rows: list[dict[str, Any]], matrix_load: str) -> list[Claim]:
    claims = []
    for shape, load in dict.fromkeys((row["shape"], row["load"]) for row in rows):
        some = [row for row in rows if (row["shape"], row["load"]) == (shape, load)]
        best = fastest(some)
        title = f"{TITLES[shape]} at {load}: {best['way']}"
        compiled = {
            peer: over["median"]
            for peer, over in best["speed_over"].items()
            if peer.startswith("torch.compile")
        }
        if compiled:
            peer = min(compiled, key=lambda name: compiled[name])
            over = compiled[peer]
            claims.append(at_least(f"{title}, over {peer}", over, LEAST_OVER_COMPILED, kind="goal"))
        if load == matrix_load:
            share = best["share_of_matrix_rate"]
            what = f"{title}, share of the matrix rate"
            claims.append(at_least(what, share, LEAST_MATRIX_SHARE, kind="goal"))
    return claims


def _decoder_goals(rows: list[dict[str, Any]], *, is_tiny: bool) -> list[Claim]:
    static = STATIC_EAGER if is_tiny else STATIC
    many = max(speed_decoders.Sizing.of(is_tiny=True).num_rows) if is_tiny else STATIC_ROWS
    claims = []
    for shape, in_flight in dict.fromkeys((row["shape"], row["in_flight"]) for row in rows):
        best = fastest(
            [row for row in rows if (row["shape"], row["in_flight"]) == (shape, in_flight)]
        )
        title = f"{TITLES[shape]}, {in_flight} in flight, {best['way']}"
        if in_flight == 1 and "share_of_bandwidth" in best:
            share, what = best["share_of_bandwidth"], f"{title}: share of the memory bandwidth"
            claims.append(at_least(what, share, LEAST_BANDWIDTH_SHARE, kind="goal"))
        if in_flight == many and "host_share" in best:
            what = f"{title}: share of a step outside of the decoder's run"
            claims.append(at_most(what, best["host_share"], MOST_HOST_SHARE, kind="goal"))
        if in_flight == many and static in best["speed_over"]:
            over, what = best["speed_over"][static]["median"], f"{title}: over {static}"
            claims.append(at_least(what, over, LEAST_OVER_STATIC, kind="goal"))
    return claims


def fastest(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The row of ours with the shortest time."""
    ours = [row for row in rows if row["way"].startswith("ours")]
    return min(ours, key=lambda row: float(row["seconds"]["median"]))


def _limits_table(limits: Limits) -> dict[str, Any]:
    rows = [
        [
            "memory, copied on the device (read and written)",
            f"{limits.copy_bytes_per_s / 1e9:,.0f} GB/s",
        ]
    ]
    for name, rate in limits.flops_per_s.items():
        rows.append([f"matrix product, {name}", f"{rate / 1e12:,.3g} TFLOP/s"])
    for way, rates in (
        ("host to device", limits.to_device_bytes_per_s),
        ("device to host", limits.to_host_bytes_per_s),
    ):
        rows += [
            [f"{way}, {name} memory", f"{rate / 1e9:,.1f} GB/s"] for name, rate in rates.items()
        ]
    rows.append(["launch of an operator by PyTorch", f"{limits.launch_s * 1e6:.2f} us"])
    return {"title": "The machine's limits", "columns": ["", "measured"], "rows": rows}


def _tables(findings: dict[str, Any]) -> list[dict[str, Any]]:
    tables = [
        {
            "title": "Encoders",
            "columns": [
                "model",
                "load",
                "way",
                "rows/s",
                "share of the matrix rate",
                "ours over it",
            ],
            "rows": [_encoder_cells(row, findings["encoders"]) for row in findings["encoders"]],
        },
        {
            "title": "Decoders, prompts included",
            "columns": [
                *("model", "in flight", "way", "tokens/s", "step, ms"),
                *("share of the bandwidth", "outside the run", "ours over it"),
            ],
            "rows": [_decoder_cells(row, findings["decoders"]) for row in findings["decoders"]],
        },
        {
            "title": "Time to the first token of one prompt",
            "columns": ["model", "prompt", "way", "ms"],
            "rows": [
                [TITLES[row["shape"]], row["prompt_tokens"], row["way"], _ms(row["seconds"])]
                for row in findings["first_token"]
            ],
        },
    ]
    return [table for table in tables if table["rows"]]


def _encoder_cells(row: dict[str, Any], rows: list[dict[str, Any]]) -> list[object]:
    same = [each for each in rows if (each["shape"], each["load"]) == (row["shape"], row["load"])]
    return [
        *(TITLES[row["shape"]], row["load"], row["way"], _text(row["rows_per_s"])),
        f"{row['share_of_matrix_rate']:.1%}",
        _over(fastest(same), row["way"]),
    ]


def _decoder_cells(row: dict[str, Any], rows: list[dict[str, Any]]) -> list[object]:
    same = [
        each
        for each in rows
        if (each["shape"], each["in_flight"]) == (row["shape"], row["in_flight"])
    ]
    has_steps = "step_s" in row
    return [
        *(TITLES[row["shape"]], row["in_flight"], row["way"], _text(row["tokens_per_s"])),
        _ms(row["step_s"]) if has_steps else "",
        f"{row['share_of_bandwidth']:.1%}" if has_steps else "",
        f"{row['host_share']:.1%}" if has_steps else "",
        _over(fastest(same), row["way"]),
    ]


def _over(ours: dict[str, Any], way: str) -> str:
    """Speed of our fastest over a peer's."""
    over = ours["speed_over"].get(way)
    return _text(over) if over else ""


def _text(figures: dict[str, Any]) -> str:
    return Quartiles(**figures).text()


def _ms(seconds: dict[str, Any]) -> str:
    own = Quartiles(**seconds)
    return f"{short(own.median * 1e3)} ({short(own.low * 1e3)} to {short(own.high * 1e3)})"
