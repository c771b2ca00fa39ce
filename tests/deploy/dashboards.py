"""Write Grafana's dashboards: `make dashboards`.

What is shown; `tests/deploy/grafana.py` has the form. A test says when this has to be run again.
"""

import json
from pathlib import Path

from tests.deploy.grafana import Dashboard, Panel, page_of

FOLDER = Path(__file__).parents[2] / "deploy/grafana/dashboards"
MINE = 'job=~"$job",model=~"$model"'
SERVERS = 'job=~"$job"'
BY_MODEL = "sum by (model)"


def mine(name: str) -> str:
    return f"{name}{{{MINE}}}"


def server(name: str) -> str:
    return f"{name}{{{SERVERS}}}"


def total(name: str) -> str:
    return f"{BY_MODEL} ({mine(name)})"


def rate(counter: str, by: str = BY_MODEL) -> str:
    return f"{by} (rate({mine(counter)}[$__rate_interval]))"


def ratio(numerator: str, denominator: str) -> str:
    return f"{rate(numerator)} / ({rate(denominator)} > 0)"


def mean(histogram: str) -> str:
    return ratio(f"{histogram}_sum", f"{histogram}_count")


def quantile(share: float, histogram: str) -> str:
    return f"histogram_quantile({share:g}, {rate(f'{histogram}_bucket', 'sum by (model, le)')})"


def quantiles(histogram: str, *shares: float) -> dict[str, str]:
    return {f"{{{{model}}}} p{100 * each:g}": quantile(each, histogram) for each in shares}


def recorded(name: str, *suffixes: str) -> dict[str, str]:
    """Quantiles of the rules."""
    return {f"{{{{model}}}} {s.split('_')[0]}": f"model:{name}:{s}{{{MINE}}}" for s in suffixes}


def by_model(expression: str) -> dict[str, str]:
    return {"{{model}}": expression}


def by_instance(expression: str) -> dict[str, str]:
    return {"{{instance}}": expression}


def per_request(part: str) -> str:
    return ratio(f"nv_inference_{part}_duration_us", "nv_inference_request_success")


ALL = ("p50_5m", "p95_5m", "p99_5m")
HITS = rate("nv_cache_num_hits_per_model")
IN_FLIGHT = {
    "{{model}} waiting": total("attendant_requests_waiting"),
    "{{model}} running": total("attendant_requests_running"),
}

OPERATORS = Dashboard(
    "attendant",
    "Attendant",
    {
        "Now": [
            Panel("Servers up", "none", {"": f"sum({server('up')})"}, kind="stat"),
            Panel(
                "Servers ready",
                "none",
                {"": f"sum({server('attendant_ready')})"},
                "Fewer than are up: they load, lack a model, or drain.",
                kind="stat",
            ),
            Panel(
                "Models unserved",
                "none",
                {"": f"sum({server('attendant_models_unserved')})"},
                "Wanted, and not served; each counts once per server.",
                kind="stat",
            ),
            Panel(
                "Requests",
                "reqps",
                {"": f"sum({mine('model:attendant_requests:rate5m')})"},
                kind="stat",
            ),
            Panel(
                "Failing, of the worst model",
                "percentunit",
                {"": f"max({mine('model:attendant_request_errors:ratio_rate5m')})"},
                kind="stat",
            ),
        ],
        "Golden signals": [
            Panel(
                "Traffic: answered",
                "reqps",
                by_model(mine("model:nv_inference_request_success:rate5m")),
            ),
            Panel(
                "Errors: by reason",
                "reqps",
                {"{{model}} {{reason}}": mine("model_reason:nv_inference_request_failure:rate5m")},
                "REJECTED: refused, or late in the queue. CANCELED: the client left. "
                "BACKEND and OTHER: ours.",
            ),
            Panel(
                "Errors: share of requests",
                "percentunit",
                {
                    "{{model}} failed": mine("model:attendant_request_errors:ratio_rate5m"),
                    "{{model}} refused": mine("model:attendant_request_rejections:ratio_rate5m"),
                },
            ),
            Panel("Latency", "s", recorded("attendant_request_seconds", *ALL)),
            Panel(
                "Saturation: in the queue",
                "s",
                recorded("attendant_queue_seconds", *ALL),
                "Near 0 below capacity, then it explodes: an alarm, no signal to scale on.",
            ),
            Panel(
                "Saturation: in flight",
                "none",
                by_model(mine("model:attendant_requests_in_flight:sum")),
                "Waiting and running: what to scale on.",
            ),
        ],
        "Servers": [
            Panel(
                "Says of itself",
                "none",
                {
                    "{{instance}} ready": server("attendant_ready"),
                    "{{instance}} live": server("attendant_live"),
                },
                "1 is yes. Not live: only a restart helps.",
            ),
            Panel(
                "Calls in flight",
                "none",
                by_instance(server("attendant_calls_in_flight")),
                "Bounded by --max-concurrent-rpcs.",
            ),
            Panel(
                "Bytes in flight",
                "bytes",
                by_instance(server("attendant_bytes_in_flight")),
                "Of requests, and of answers not yet read. Bounded by --max-bytes-in-flight.",
            ),
            Panel(
                "Refused before a model was looked for",
                "reqps",
                {"{{bound}}": f"sum by (bound) ({server('bound:attendant_calls_refused:rate5m')})"},
                "calls and bytes: full. token and key: not allowed.",
            ),
            Panel(
                "Loads since the start",
                "none",
                {
                    "{{model}} {{outcome}}": (
                        f"sum by (model, outcome) ({mine('attendant_model_loads_total')})"
                    )
                },
            ),
            Panel("Resident memory", "bytes", by_instance(server("process_resident_memory_bytes"))),
            Panel(
                "Processors in use",
                "none",
                by_instance(f"rate({server('process_cpu_seconds_total')}[$__rate_interval])"),
            ),
            Panel(
                "Open files, of those allowed",
                "percentunit",
                by_instance(f"{server('process_open_fds')} / {server('process_max_fds')}"),
            ),
            Panel(
                "Versions",
                "none",
                {"": f"count by (version, onnxruntime) ({server('attendant_build_info')})"},
                "And how many servers have them: two rows during an update.",
                kind="table",
            ),
        ],
        "Models": [
            Panel("Rows", "rowsps", by_model(rate("nv_inference_count"))),
            Panel("Batches", "ops", by_model(mine("model:nv_inference_exec_count:rate5m"))),
            Panel("Waiting and running", "none", IN_FLIGHT),
            Panel(
                "Rows of a batch, mean",
                "none",
                by_model(mine("model:attendant_batch_rows:mean5m")),
            ),
            Panel("Tokens of a batch, mean", "none", by_model(mean("attendant_batch_tokens"))),
            Panel(
                "Padding, mean share",
                "percentunit",
                by_model(mine("model:attendant_batch_padding_ratio:mean5m")),
            ),
            Panel("A batch computes", "s", quantiles("attendant_compute_seconds", 0.5, 0.99)),
            Panel(
                "Where a request's time goes, mean",
                "µs",
                {
                    f"{{{{model}}}} {part}": per_request(part)
                    for part in ("queue", "compute_input", "compute_infer", "compute_output")
                },
            ),
            Panel(
                "Loading took",
                "s",
                by_model(f"max by (model) ({mine('nv_model_load_duration_secs')})"),
            ),
            Panel(
                "Response cache: share of hits",
                "percentunit",
                by_model(f"{HITS} / (({HITS} + {rate('nv_cache_num_misses_per_model')}) > 0)"),
            ),
            Panel(
                "Response cache: memory",
                "bytes",
                by_instance(server("attendant_response_cache_bytes")),
            ),
            Panel(
                "Response cache: answers",
                "none",
                by_instance(server("attendant_response_cache_entries")),
            ),
        ],
    },
)

GENERATION = Dashboard(
    "attendant-generation",
    "Attendant: generation",
    {
        "What readers see": [
            Panel(
                "First token after", "s", recorded("attendant_time_to_first_token_seconds", *ALL)
            ),
            Panel(
                "Between two tokens", "s", recorded("attendant_inter_token_latency_seconds", *ALL)
            ),
            Panel(
                "First tokens after more than 2.5 s",
                "percentunit",
                by_model(mine("model:attendant_late_first_tokens:ratio_rate5m")),
                "The objective is at most 1 %.",
            ),
            Panel(
                "Tokens",
                "none",
                {
                    "{{model}} prompt/s": mine("model:attendant_prompt_tokens:rate5m"),
                    "{{model}} output/s": mine("model:attendant_generation_tokens:rate5m"),
                },
            ),
            Panel(
                "Whole sequence",
                "s",
                quantiles("attendant_e2e_request_latency_seconds", 0.5, 0.95, 0.99),
            ),
            Panel(
                "Sequences that ended",
                "ops",
                {
                    "{{model}} {{finished_reason}}": rate(
                        "attendant_request_success_total", "sum by (model, finished_reason)"
                    )
                },
            ),
        ],
        "Slots": [
            Panel(
                "Slots in use",
                "percentunit",
                by_model(mine("model:attendant_kv_cache_slots_used:ratio")),
            ),
            Panel(
                "Slots",
                "none",
                {
                    "{{model}} there are": total("attendant_kv_cache_slots"),
                    "{{model}} used": total("attendant_kv_cache_slots_used"),
                },
            ),
            Panel(
                "Slots in use, of the fullest replica",
                "percentunit",
                by_model(f"max by (model) ({mine('attendant_kv_cache_usage_perc')})"),
            ),
            Panel("Waiting and running", "none", IN_FLIGHT),
            Panel(
                "Tokens in the cache",
                "none",
                {
                    "{{model}} used": total("attendant_kv_cache_tokens_used"),
                    "{{model}} kept": total("attendant_kv_cache_tokens_kept"),
                },
                "Kept: of sequences that ended, for prompts that begin alike.",
            ),
            Panel(
                "Prefix hits",
                "percentunit",
                by_model(mine("model:attendant_prefix_cache_hits:ratio_rate5m")),
                "Share of prompt tokens that were copied, not computed.",
            ),
            Panel("Slots moved", "ops", by_model(rate("attendant_kv_cache_moved_rows_total"))),
            Panel(
                "Drafted tokens",
                "ops",
                {
                    "{{model}} drafted": rate("attendant_spec_decode_num_draft_tokens_total"),
                    "{{model}} said": rate("attendant_spec_decode_num_accepted_tokens_total"),
                },
                "Said: what the model chose as drafted. None where drafts are off.",
            ),
        ],
        "Where the time goes": [
            Panel(
                "Waiting for a step", "s", quantiles("attendant_request_queue_time_seconds", 0.95)
            ),
            Panel("Prefill", "s", quantiles("attendant_request_prefill_time_seconds", 0.95)),
            Panel("Decoding", "s", quantiles("attendant_request_decode_time_seconds", 0.95)),
            Panel("Sequences of a step, mean", "none", by_model(mean("attendant_iteration_rows"))),
            Panel("Tokens of a step, mean", "none", by_model(mean("attendant_iteration_tokens"))),
            Panel(
                "A step, mean",
                "s",
                {
                    "{{model}} session": mean("attendant_iteration_run_seconds"),
                    "{{model}} outside": mean("attendant_iteration_other_seconds"),
                },
                "Outside: planning, sampling, text.",
            ),
            Panel("Prompts", "none", quantiles("attendant_request_prompt_tokens", 0.5, 0.95)),
            Panel("Outputs", "none", quantiles("attendant_request_generation_tokens", 0.5, 0.95)),
        ],
    },
)


def made_files() -> dict[Path, str]:
    """Contents by path."""
    return {
        FOLDER / f"{page.uid}.json": json.dumps(page_of(page), indent=2, ensure_ascii=False) + "\n"
        for page in (OPERATORS, GENERATION)
    }


if __name__ == "__main__":
    for path, text in made_files().items():
        path.write_text(text, encoding="utf-8")
