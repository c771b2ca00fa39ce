"""Write Grafana's dashboards: `make dashboards`.

Their panels and queries; `grafana.py` has the form. A test fails if the files are stale.
"""

import json
from functools import partial
from pathlib import Path

from deploy.generate.grafana import Dashboard, Panel, page_of

FOLDER = Path(__file__).parents[2] / "deploy/grafana/dashboards"
RELEASE = 'namespace=~"$namespace",job=~"$job"'
MINE = f'{RELEASE},model=~"$model"'
SERVERS = f'{RELEASE},instance=~"$instance"'
BY_MODEL = "sum by (namespace, job, model)"  # releases are kept apart
OF_RELEASE = "{{namespace}} {{job}}"  # and legends name them


def mine(name: str) -> str:
    return f"{name}{{{MINE}}}"


def server(name: str) -> str:
    return f"{name}{{{SERVERS}}}"


def total(name: str) -> str:
    return f"{BY_MODEL} ({mine(name)})"


def rate(counter: str, label: str = "") -> str:
    """By model, and by a further label where one is given."""
    by = f"{BY_MODEL[:-1]}, {label})" if label else BY_MODEL
    return f"{by} (rate({mine(counter)}[$__rate_interval]))"


def ratio(numerator: str, denominator: str) -> str:
    return f"{rate(numerator)} / ({rate(denominator)} > 0)"


def mean(histogram: str) -> str:
    return ratio(f"{histogram}_sum", f"{histogram}_count")


def quantile(share: float, histogram: str) -> str:
    return f"histogram_quantile({share:g}, {rate(f'{histogram}_bucket', 'le')})"


def quantiles(histogram: str, *shares: float) -> dict[str, str]:
    return {
        f"{{{{model}}}} p{100 * each:g} {OF_RELEASE}": quantile(each, histogram) for each in shares
    }


def recorded(name: str, *suffixes: str) -> dict[str, str]:
    """Quantiles of the rules."""
    return {
        f"{{{{model}}}} {s.split('_')[0]} {OF_RELEASE}": f"model:{name}:{s}{{{MINE}}}"
        for s in suffixes
    }


def by(labels: str, expression: str) -> dict[str, str]:
    """One query, whose legend has these labels."""
    return {
        " ".join(f"{{{{{label}}}}}" for label in [*labels.split(), "namespace", "job"]): expression
    }


by_model, by_instance, by_bound = (partial(by, label) for label in ("model", "instance", "bound"))


def parts_of_model(**expressions: str) -> dict[str, str]:
    """Several of each model, by what they are."""
    return {
        f"{{{{model}}}} {part.replace('_', ' ')} {OF_RELEASE}": expression
        for part, expression in expressions.items()
    }


def per_request(part: str) -> str:
    return ratio(f"nv_inference_{part}_duration_us", "nv_inference_request_success")


ALL = ("p50_5m", "p95_5m", "p99_5m")
HITS = rate("nv_cache_num_hits_per_model")
IN_FLIGHT = parts_of_model(
    waiting=total("attendant_requests_waiting"), running=total("attendant_requests_running")
)
ABOUT_IN_FLIGHT = (
    "Requests in the queue, and in a batch; of generative models sequences. A queue that stays "
    "means that replicas are too few."
)

OPERATORS = Dashboard(
    "attendant",
    "Attendant",
    {
        "Now": [
            Panel(
                "Servers up",
                "none",
                {"": f"sum({server('up')})"},
                "Servers whose last scrape was answered. Fewer than replicas: AttendantDown.",
                kind="stat",
            ),
            Panel(
                "Servers ready",
                "none",
                {"": f"sum({server('attendant_ready')})"},
                "Fewer than servers up: the others load, lack a model, or drain.",
                kind="stat",
            ),
            Panel(
                "Models unserved",
                "none",
                {"": f"sum({server('attendant_models_unserved')})"},
                "Models that should be served and are not; each counts once per server.",
                kind="stat",
            ),
            Panel(
                "Requests",
                "reqps",
                {"": f"sum({mine('model:attendant_requests:rate5m')})"},
                "Requests that ended in any way, per second, over five minutes.",
                kind="stat",
            ),
            Panel(
                "Failing, of the worst model",
                "percentunit",
                {"": f"max({mine('model:attendant_request_errors:ratio_rate5m')})"},
                "Share of its requests that failed by the server's fault. Above 5 %: "
                "AttendantErrors.",
                kind="stat",
            ),
        ],
        "Golden signals": [
            Panel(
                "Traffic: answered",
                "reqps",
                by_model(mine("model:nv_inference_request_success:rate5m")),
                "Requests answered, per second.",
            ),
            Panel(
                "Errors: by reason",
                "reqps",
                by("model reason", mine("model_reason:nv_inference_request_failure:rate5m")),
                "REJECTED: refused, or late in the queue. CANCELED: the client left. "
                "BACKEND and OTHER: the server's fault.",
            ),
            Panel(
                "Refused: by reason",
                "reqps",
                by("model reason", rate("attendant_requests_refused_total", "reason")),
                "queue: full. wait: longer than --max-queue-s. deadline: the answer would come "
                "after it. late: admitted, but runs became too slow for the deadline.",
            ),
            Panel(
                "Errors: share of requests",
                "percentunit",
                parts_of_model(
                    failed=mine("model:attendant_request_errors:ratio_rate5m"),
                    refused=mine("model:attendant_request_rejections:ratio_rate5m"),
                ),
                "Failed: the server's fault, an alert above 5 %. Refused: the server was full, an "
                "alert above 1 %.",
            ),
            Panel(
                "Latency",
                "s",
                recorded("attendant_request_seconds", *ALL),
                "From a request's arrival to its answer: p50, p95 and p99. For generative models "
                "this is the whole output.",
            ),
            Panel(
                "Answers after more than 1 s",
                "percentunit",
                by_model(mine("model:attendant_late_answers:ratio_rate5m")),
                "Share of answers. Above 5 %: AttendantAnswersLate, except for generative models.",
            ),
            Panel(
                "Saturation: in the queue",
                "s",
                recorded("attendant_queue_seconds", *ALL),
                "Near 0 below capacity, and growing fast above it: for alerts, not for scaling.",
            ),
            Panel(
                "Saturation: in flight",
                "none",
                by_model(mine("model:attendant_requests_in_flight:sum")),
                "Waiting and running requests: the signal for scaling.",
            ),
        ],
        "Servers": [
            Panel(
                "Says of itself",
                "none",
                {
                    f"{{{{instance}}}} ready {OF_RELEASE}": server("attendant_ready"),
                    f"{{{{instance}}}} live {OF_RELEASE}": server("attendant_live"),
                },
                "1 is yes. Not live: only a restart helps.",
            ),
            Panel(
                "Running for",
                "s",
                by_instance(f"time() - {server('process_start_time_seconds')}"),
                "Since the start of the process. A sawtooth shows restarts: AttendantRestarts.",
            ),
            Panel(
                "Event loop stands still",
                "s",
                by_instance(server("attendant_event_loop_gap_seconds")),
                "Longest time of the last minutes for which no call was answered: "
                "AttendantLoopStandsStill.",
            ),
            Panel(
                "Calls in flight",
                "none",
                by("instance protocol", server("attendant_calls_in_flight")),
                "Bounded by --max-concurrent-rpcs, for each protocol.",
            ),
            Panel(
                "Calls by protocol",
                "reqps",
                by(
                    "instance protocol",
                    f"rate({server('attendant_calls_total')}[$__rate_interval])",
                ),
                "Calls begun, over gRPC and over HTTP; probes and scrapes are left out.",
            ),
            Panel(
                "HTTP answers by status",
                "reqps",
                by(
                    "status",
                    "sum by (namespace, job, status) "
                    f"(rate({mine('attendant_http_responses_total')}[$__rate_interval]))",
                ),
                "A stream counts once, with the status that it began with.",
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
                by_bound(
                    "sum by (namespace, job, bound) "
                    f"(bound:attendant_calls_refused:rate5m{{{RELEASE}}})"
                ),
                "calls and bytes: full. token and key: not allowed. draining: the server stops.",
            ),
            Panel(
                "Refused, share of calls",
                "percentunit",
                by_bound(f"bound:attendant_calls_refused:ratio_rate5m{{{RELEASE}}}"),
                "Because too many calls, or bytes, were in flight. Above 1 %: AttendantRefusing.",
            ),
            Panel(
                "Batches that have not ended",
                "none",
                by_instance(server("attendant_batches_unfinished")),
                "Of /v1/batches, those that wait among them. Bounded by --max-waiting-batches.",
            ),
            Panel(
                "Requests of batches",
                "reqps",
                by(
                    "result",
                    "sum by (namespace, job, result) "
                    f"(rate({mine('attendant_batch_lines_total')}[$__rate_interval]))",
                ),
                "Answered lines of batches' files: completed, or failed with a refusal.",
            ),
            Panel(
                "Loads since the start",
                "none",
                by(
                    "model outcome",
                    "sum by (namespace, job, model, outcome) "
                    f"({mine('attendant_model_loads_total')})",
                ),
                "Successful and failed loads of each model, over all servers.",
            ),
            Panel(
                "Resident memory",
                "bytes",
                by_instance(server("process_resident_memory_bytes")),
                "Resident memory by the kernel's count. It rises with models and caches, and "
                "should then stay.",
            ),
            Panel(
                "Processors in use",
                "none",
                by_instance(f"rate({server('process_cpu_seconds_total')}[$__rate_interval])"),
                "Processor seconds per second. At the number of threads the server is fully used.",
            ),
            Panel(
                "Open files, of those allowed",
                "percentunit",
                by_instance(f"{server('process_open_fds')} / {server('process_max_fds')}"),
                "Nearly all are connections. Above 80 %: AttendantFilesRunOut.",
            ),
            Panel(
                "Certificate ends in",
                "s",
                by_instance(
                    f"{server('attendant_tls_certificate_expiry_timestamp_seconds')} - time()"
                ),
                "Of the gRPC port, if it speaks TLS. Below 7 days: AttendantCertificateEnds.",
            ),
            Panel(
                "Versions",
                "none",
                {
                    "": (
                        "count by (namespace, job, version, onnxruntime) "
                        f"({server('attendant_build_info')})"
                    )
                },
                "Number of servers with each version: two rows during an update.",
                kind="table",
            ),
        ],
        "Models": [
            Panel(
                "Rows",
                "rowsps",
                by_model(rate("nv_inference_count")),
                "Rows of answered requests, per second: a request of n texts counts n.",
            ),
            Panel(
                "Batches",
                "ops",
                by_model(mine("model:nv_inference_exec_count:rate5m")),
                "Runs of the session per second.",
            ),
            Panel("Waiting and running", "none", IN_FLIGHT, ABOUT_IN_FLIGHT),
            Panel(
                "Rows of a batch, mean",
                "none",
                by_model(mine("model:attendant_batch_rows:mean5m")),
                "1 if requests come one by one; more under load.",
            ),
            Panel(
                "Tokens of a batch, mean",
                "none",
                by_model(mean("attendant_batch_tokens")),
                "Rows times the longest of them. Bounded by --max-batch-tokens.",
            ),
            Panel(
                "Padding, mean share",
                "percentunit",
                by_model(mine("model:attendant_batch_padding_ratio:mean5m")),
                "Share of a batch's tokens that fill up shorter rows. High if lengths differ "
                "and few requests are waiting.",
            ),
            Panel(
                "A batch computes",
                "s",
                quantiles("attendant_compute_seconds", 0.5, 0.99),
                "From collating to splitting. A deadline below this is never met.",
            ),
            Panel(
                "Where a request's time goes, mean",
                "µs",
                parts_of_model(
                    queue=per_request("queue"),
                    compute_input=per_request("compute_input"),
                    compute_infer=per_request("compute_infer"),
                    compute_output=per_request("compute_output"),
                ),
                "Waiting, collating, the session's run, splitting; of answered requests.",
            ),
            Panel(
                "Loading took",
                "s",
                by_model(f"max by (namespace, job, model) ({mine('nv_model_load_duration_secs')})"),
                "From reading the folder to ready, on the slowest server.",
            ),
            Panel(
                "Response cache: share of hits",
                "percentunit",
                by_model(f"{HITS} / (({HITS} + {rate('nv_cache_num_misses_per_model')}) > 0)"),
                "Of models whose configuration has a response cache.",
            ),
            Panel(
                "Response cache: memory",
                "bytes",
                by_instance(server("attendant_response_cache_bytes")),
                "Of kept answers. Bounded by --response-cache-bytes.",
            ),
            Panel(
                "Response cache: answers",
                "none",
                by_instance(server("attendant_response_cache_entries")),
                "Number of kept answers.",
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
                "First token after",
                "s",
                recorded("attendant_time_to_first_token_seconds", *ALL),
                "From a request's arrival: waiting and reading the prompt.",
            ),
            Panel(
                "Between two tokens",
                "s",
                recorded("attendant_inter_token_latency_seconds", *ALL),
                "The pace of the text for a reader. Rises with the number of running sequences.",
            ),
            Panel(
                "First tokens after more than 2.5 s",
                "percentunit",
                by_model(mine("model:attendant_late_first_tokens:ratio_rate5m")),
                "The objective is at most 1 %. Far above it: AttendantFirstTokensLateFast.",
            ),
            Panel(
                "Tokens",
                "none",
                {
                    f"{{{{model}}}} prompt/s {OF_RELEASE}": mine(
                        "model:attendant_prompt_tokens:rate5m"
                    ),
                    f"{{{{model}}}} output/s {OF_RELEASE}": mine(
                        "model:attendant_generation_tokens:rate5m"
                    ),
                },
                "Read from prompts, and generated.",
            ),
            Panel(
                "Whole sequence",
                "s",
                quantiles("attendant_e2e_request_latency_seconds", 0.5, 0.95, 0.99),
                "From arrival to the last token: it grows with the output's length.",
            ),
            Panel(
                "Sequences that ended",
                "ops",
                by(
                    "model finished_reason",
                    rate("attendant_request_success_total", "finished_reason"),
                ),
                "stop and length: as requested. abort: the client left, or its deadline passed. "
                "error: the server's fault.",
            ),
        ],
        "Slots": [
            Panel(
                "Slots in use",
                "percentunit",
                by_model(mine("model:attendant_kv_cache_slots_used:ratio")),
                "Over all replicas. At 95 % with sequences waiting: AttendantKVCacheFull.",
            ),
            Panel(
                "Slots",
                "none",
                parts_of_model(
                    there_are=total("attendant_kv_cache_slots"),
                    used=total("attendant_kv_cache_slots_used"),
                ),
                "One for each running sequence. Their number follows from --kv-cache-bytes.",
            ),
            Panel(
                "Slots in use, of the fullest replica",
                "percentunit",
                by_model(
                    f"max by (namespace, job, model) ({mine('attendant_kv_cache_usage_perc')})"
                ),
                "Far above the share over all: clients are not balanced.",
            ),
            Panel("Waiting and running", "none", IN_FLIGHT, ABOUT_IN_FLIGHT),
            Panel(
                "Tokens in the cache",
                "none",
                parts_of_model(
                    used=total("attendant_kv_cache_tokens_used"),
                    kept=total("attendant_kv_cache_tokens_kept"),
                ),
                "Kept: of sequences that ended, for prompts that begin alike.",
            ),
            Panel(
                "Prefix hits",
                "percentunit",
                by_model(mine("model:attendant_prefix_cache_hits:ratio_rate5m")),
                "Share of prompt tokens that were copied, not computed.",
            ),
            Panel(
                "Prefix store",
                "bytes",
                by_model(total("attendant_prefix_store_bytes")),
                "Beginnings of prompts that lost their slot; --prefix-cache-bytes bounds it.",
            ),
            Panel(
                "Prefix store, tokens and pieces",
                "ops",
                parts_of_model(
                    hits=rate("attendant_prefix_store_hits_total"),
                    given_up=rate("attendant_prefix_store_evictions_total"),
                ),
                "Hits: prompt tokens that came from the store. Given up: pieces of 32 tokens. Many "
                "of these and few hits: raise --prefix-cache-bytes, or set it to 0.",
            ),
            Panel(
                "Slots moved",
                "ops",
                by_model(rate("attendant_kv_cache_moved_rows_total")),
                "Copied to another slot, so that those that run lie side by side.",
            ),
            Panel(
                "Drafted tokens",
                "ops",
                parts_of_model(
                    drafts=rate("attendant_spec_decode_num_drafts_total"),
                    drafted=rate("attendant_spec_decode_num_draft_tokens_total"),
                    said=rate("attendant_spec_decode_num_accepted_tokens_total"),
                ),
                "Said: what the model chose as drafted. None where drafts are off.",
            ),
            Panel(
                "Drafted tokens that were said, by position",
                "ops",
                by(
                    "model position",
                    rate("attendant_spec_decode_num_accepted_tokens_per_pos_total", "position"),
                ),
                "From a draft's first token, 0. Little is said late: shorter drafts do.",
            ),
        ],
        "Where the time goes": [
            Panel(
                "Waiting for a step",
                "s",
                quantiles("attendant_request_queue_time_seconds", 0.95),
                "From arrival to the first step. High: slots or replicas are too few.",
            ),
            Panel(
                "Prefill",
                "s",
                quantiles("attendant_request_prefill_time_seconds", 0.95),
                "From the first step to the first token: it grows with the prompt.",
            ),
            Panel(
                "Decoding",
                "s",
                quantiles("attendant_request_decode_time_seconds", 0.95),
                "From the first token to the last.",
            ),
            Panel(
                "Sequences of a step, mean",
                "none",
                by_model(mean("attendant_iteration_rows")),
                "How many are computed at once. Bounded by --max-running-sequences.",
            ),
            Panel(
                "Tokens of a step, mean",
                "none",
                by_model(mean("attendant_iteration_tokens")),
                "One for each sequence that decodes, and those of prompts that are read.",
            ),
            Panel(
                "A step, mean",
                "s",
                parts_of_model(
                    session=mean("attendant_iteration_run_seconds"),
                    outside=mean("attendant_iteration_other_seconds"),
                ),
                "Outside: planning, sampling, text.",
            ),
            Panel(
                "Prompts",
                "none",
                quantiles("attendant_request_prompt_tokens", 0.5, 0.95),
                "Tokens of a prompt: half, and 95 %, have no more.",
            ),
            Panel(
                "Outputs",
                "none",
                quantiles("attendant_request_generation_tokens", 0.5, 0.95),
                "Tokens of an output: half, and 95 %, have no more.",
            ),
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
