"""Every setting of the server, with its default, bound and reason.

One frozen record, checked when it is made. The command line fills it from flags
and environment variables; tests make it by hand. docs/reference/settings.md lists them all,
which a test checks. docs/how-to/cuda.md says what was verified on CUDA.
"""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from service.contract.precision import (
    AUTO,
    CACHE_LAYOUTS,
    CHOICES,
    ENCODER_LAYOUTS,
    MAX_DRAFT_TOKENS,
)
from service.errors import SettingError
from service.families.chosen import NAMES as FORM_NAMES
from service.families.chosen import forms_of, unknown

HOST_NAME = re.compile(r"[^\s/:]+")
ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^\s/]+")  # as browsers write it
MAX_READ_BYTES = 2**31 - 4096  # what Linux reads from a file at once


def _settings(panel: str) -> Callable[..., Any]:
    """Maker of the fields of one panel of `attendant serve --help`."""

    def setting(
        default: object,
        text: str,
        low: float | None = None,
        high: float | None = None,
        choices: tuple[str, ...] = (),
    ) -> Any:  # noqa: ANN401
        described = {"help": text, "low": low, "high": high, "choices": choices, "panel": panel}
        return field(default=default, metadata=described)

    return setting


_models = _settings("Models")
_network = _settings("Network")
_access = _settings("TLS and access")
_computing = _settings("Computing")
_batching = _settings("Batching")
_generation = _settings("Generation")
_batches = _settings("Batches")
_limits = _settings("Limits")
_connections = _settings("Connections")
_logs = _settings("Logs and traces")
_stopping = _settings("Stopping")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one server process."""

    model_repository: Path = _models(
        Path("model_repository"), "Folder of models in Triton's layout."
    )
    link_targets: str = _models(
        "",
        "Folders outside of the model repository that links in it may lead to, separated by "
        "colons. If empty, no link out of the repository is followed.",
    )
    model_control_mode: str = _models(
        "none",
        "When models are loaded: none, once at start; poll, whenever the repository changes; "
        "explicit, when clients request it.",
        choices=("none", "poll", "explicit"),
    )
    load_models: str = _models(
        "",
        "Names of the models to serve, separated by commas; * means all. If empty, all models are "
        "served, or under explicit control no model is loaded at start.",
    )
    model_alias: str = _models(
        "",
        "Further names of models, NAME=MODEL, separated by commas; they are listed, and taken "
        "wherever a request names a model. A model of that name goes first.",
    )
    any_model_name: bool = _models(
        False, "Where one model is served, take any name in a request for it."
    )
    repository_poll_s: float = _models(
        15.0, "Seconds between two checks of the repository in poll mode.", 0.1
    )
    load_threads: int = _models(
        1, "Number of models loaded in parallel while the server runs.", 1, 64
    )
    strict_readiness: bool = _models(
        True, "Report not ready while any model has failed to load, as Triton does."
    )
    min_models: int = _models(
        0,
        "Report not ready while fewer models than this are served; 1 keeps a server with an empty "
        "repository from being ready.",
        0,
    )
    response_cache_bytes: int = _models(
        0,
        "Memory for cached responses of models whose configuration has a response_cache; 0 turns "
        "the cache off.",
        0,
    )
    host: str = _network(
        "127.0.0.1",
        "Address of the gRPC port. By default only this machine can connect.",
    )
    grpc_port: int = _network(
        8001, "gRPC port; 0 picks a free one. 8001 is Triton's default.", 0, 65535
    )
    http_host: str = _network("", "Address of the HTTP port; if empty, that of the gRPC port.")
    http_port: int = _network(
        8000, "HTTP port; -1 means none, 0 picks a free one. 8000 is Triton's default.", -1, 65535
    )
    http_allowed_hosts: str = _access(
        "",
        "Names by which browsers may call the HTTP port, separated by commas, beside addresses, "
        "names without a dot and names inside a cluster; * means any.",
    )
    http_allowed_origins: str = _access(
        "",
        "Sites whose pages may call the HTTP port from a browser, scheme://host:port, separated by "
        "commas; * means any. If empty, no other site's may.",
    )
    playground: bool = _network(
        True, "Answer / on the HTTP port with a page to try the models in a browser."
    )
    lora_endpoints: bool = _network(
        False,
        "Answer vLLM's /v1/load_lora_adapter and /v1/unload_lora_adapter, which load and unload "
        "adapters of the model repository by name, under --model-control-mode explicit.",
    )
    metrics_host: str = _network(
        "127.0.0.1", "Address of the /metrics port, which has neither TLS nor tokens."
    )
    metrics_port: int = _network(
        8002, "Port of /metrics; 0 picks a free one. 8002 is Triton's default.", 0, 65535
    )
    open_ports: str = _network(
        "loaded",
        "When the gRPC, HTTP and administration ports open: loaded, once the models of the start "
        "are loaded or have failed, so that plain clients go elsewhere; start, at once. The "
        "metrics port opens at once and answers probes.",
        choices=("loaded", "start"),
    )
    admin_host: str = _network("127.0.0.1", "Address of the administration port.")
    admin_port: int = _network(
        -1,
        "Separate port for model control, trace settings and log settings, which the gRPC port "
        "then refuses; -1 means none, 0 picks a free one.",
        -1,
        65535,
    )
    trusted_network: bool = _network(
        False,
        "Do not warn when ports are open beyond loopback, because a NetworkPolicy or a firewall "
        "restricts access to them.",
    )
    server_name: str = _network(
        "attendant", "Name in ServerMetadata. Some clients require 'triton'."
    )
    tls_cert: str = _access(
        "",
        "PEM file with the certificate of the gRPC, HTTP and administration ports, and its chain, "
        "which turns TLS on; it is read again when it changes.",
    )
    tls_key: str = _access("", "PEM file with the certificate's private key, unencrypted.")
    tls_client_ca: str = _access(
        "",
        "PEM file with the authorities that sign client certificates; if set, clients must "
        "present one.",
    )
    token_file: str = _access(
        "", "File of bearer tokens, one per line; if set, every call but probes must carry one."
    )
    restricted_protocols: str = _access(
        "",
        "Groups of calls that require a key in their metadata, such as "
        "model-repository,trace:admin-key=@admin.key. Semicolons separate several.",
    )
    allow_client_shm: bool = _access(
        False,
        "Let clients register shared memory; they can then read and write every object in "
        "/dev/shm that the server can open.",
    )
    device: str = _computing(
        "auto",
        "Device of models whose instance_group does not name one.",
        choices=("auto", "cpu", "cuda"),
    )
    precision: str = _computing(
        AUTO,
        "Which of an exported model's graphs to serve; auto takes the one that this machine "
        "computes fastest.",
        choices=CHOICES,
    )
    encoder_layout: str = _computing(
        AUTO,
        "Which graph of an encoder to serve on a GPU where an export wrote both, packed or padded; "
        "auto measures at load which is faster.",
        choices=ENCODER_LAYOUTS,
    )
    cache_layout: str = _computing(
        AUTO,
        "KV cache of generative models on a GPU: slots, each with room for a whole sequence, or "
        "paged, in blocks that sequences share; auto takes paged where the export wrote a graph "
        "for it.",
        choices=CACHE_LAYOUTS,
    )
    cuda_graphs: bool = _computing(
        False,
        "Repeat decoding steps over a paged cache as CUDA graphs, padded to 8, 16, 32 and so on "
        "sequences.",
    )
    instances: int = _computing(
        2,
        "Concurrent runs per model: while one computes, the next is prepared and the last is "
        "answered.",
        1,
        64,
    )
    num_threads: int = _computing(
        0,
        "Compute threads per model; 0 takes as many as CPU affinity and the cgroup quota allow.",
        0,
        1024,
    )
    processes: int = _computing(
        1,
        "Processes that serve together on the same ports, each with its share of the processors, "
        "its own copy of the models, and the bounds of one server; 1 suits most machines.",
        1,
        256,
    )
    can_spin: bool = _computing(
        False,
        "Let idle compute threads poll for work; they then take processor time from gRPC.",
    )
    spin_us: int = _computing(
        0,
        "Microseconds for which compute threads poll for the next operator of a run on a CPU "
        "before they sleep; between runs they sleep. 0: they never poll; decoders at least 50.",
        0,
        10_000,
    )
    lone_session_mib: int = _computing(
        0,
        "Models of at most this many MiB on a CPU, decoders aside, are opened a second time, with "
        "threads that poll, for runs that have the processors to themselves: a client alone is "
        "answered sooner, and the weights take twice the memory. 0: none.",
        0,
        65_536,
    )
    tokenizer_threads: int = _computing(
        1,
        "Threads that tokenize long requests and decode images outside the event loop.",
        1,
        64,
    )
    default_max_batch_size: int = _batching(
        64, "Rows per batch of models whose configuration does not set max_batch_size.", 1, 65536
    )
    max_batch_tokens: int = _batching(
        16_384, "Tokens per batch, including padding; this bounds the memory of a run.", 1
    )
    max_background_tokens: int = _batching(
        512,
        "Tokens per batch of background requests, including padding; a longer text is a batch by "
        "itself. Such a batch is stopped when another request comes, and computed again.",
        1,
    )
    batch_overhead_tokens: int = _batching(
        16, "Cost of an additional run, in tokens, for models whose cost is not measured.", 0
    )
    measure_cost_s: float = _batching(
        1.0,
        "Longest time, in seconds, to measure at load what the runs of a text model cost; 0 turns "
        "the measurement off.",
        0,
        60,
    )
    max_queue_s: float = _batching(
        30.0,
        "Longest expected waiting time in seconds; a request expected to wait longer is refused "
        "at once. 0 means no limit. A request with a deadline is refused by that, too.",
        0,
    )
    max_queue_requests: int = _batching(
        512, "Requests waiting per model and priority level; the next one is refused at once.", 1
    )
    max_queue_rows: int = _batching(
        32_768, "Rows waiting per model: by default 512 requests of the default batch size.", 1
    )
    max_queue_tokens: int = _batching(
        262_144, "Tokens waiting per model: by default 16 batches of the default size.", 1
    )
    kv_cache_bytes: int = _generation(
        2**31,
        "Memory of the KV cache per generative model, on the device that the model runs on; its "
        "number of slots, or of blocks, follows from it.",
        1,
    )
    max_running_sequences: int = _generation(
        64, "Sequences generated at once per model, if the KV cache has that many slots.", 1, 1024
    )
    max_context_tokens: int = _generation(
        0,
        "Tokens of a sequence's prompt and output together; 0 means the model's own limit. A "
        "smaller value makes more slots.",
        0,
    )
    max_prefill_tokens: int = _generation(
        256,
        "Prompt tokens computed between two decoding steps; this bounds how long a prompt delays "
        "other sequences.",
        1,
    )
    default_max_tokens: int = _generation(
        0,
        "Output tokens of a request that does not set max_tokens, as far as they fit the context; "
        "a model with a default of its own has that. 0: what fits for OpenAI's chats, and for "
        "completions of models that chat; 128 for other requests.",
        0,
    )
    tool_call_form: str = _generation(
        "",
        "Form in which models write calls of functions, for all models or MODEL=FORM separated by "
        "commas; none: they write none. Goes before that of a manifest, and that before the one "
        "that the chat template shows.",
    )
    reasoning_form: str = _generation(
        "",
        "Form in which models write thoughts, as above; none: their thoughts are text.",
    )
    sampling_defaults: str = _generation(
        "model",
        "Where a request names no temperature, top_k, top_p, min_p, repetition_penalty or "
        "max_tokens: model takes what the model's publisher recommends, from the "
        "generation_config.json that it was imported with; none takes the server's defaults.",
        choices=("model", "none"),
    )
    max_draft_tokens: int = _generation(
        0,
        "Speculative decoding: tokens drafted from the text itself and checked in one run, while "
        "that saves time. 0 turns it off.",
        0,
        MAX_DRAFT_TOKENS,
    )
    max_adapters: int = _generation(
        64,
        "Adapters served on one base model, in memory each; those in use at once are bounded by "
        "the places of its graph, see docs/how-to/adapters.md.",
        1,
        1024,
    )
    max_cached_grammars: int = _generation(
        64,
        "Compiled grammars, such as JSON schemas, kept per model for requests with the same.",
        1,
        65536,
    )
    max_grammar_bytes: int = _generation(
        2**28,
        "Memory per model for compiled grammars that are kept or in use: a published schema takes "
        "about 100 KB, and none more than 64 MiB.",
        1,
    )
    grammar_timeout_s: float = _generation(
        10.0,
        "Longest time, in seconds, in which a grammar is compiled before its request is refused; "
        "four of a model are compiled at once, in processes that are ended when they are late.",
        0.001,
    )
    prefix_reuse: bool = _generation(
        True,
        "Prefix caching: copy the keys and values of a prompt's beginning from an earlier "
        "sequence with the same beginning.",
    )
    prefix_cache_bytes: int = _generation(
        2**29,
        "Prefix caching: memory per generative model for keys and values whose slots were taken by "
        "other sequences, in the host's memory, allocated as it fills; 0 gives them up with their "
        "slots. Models on a GPU and encoder-decoders keep none.",
        0,
    )
    priority_step_s: float = _generation(
        5.0, "Seconds by which each step down in priority delays a sequence's turn.", 0
    )
    batch_folder: str = _batches(
        "",
        "Folder of the files and batches of OpenAI's API, used for nothing else and by no other "
        "server; if empty, /v1/files and /v1/batches are answered with 501.",
    )
    max_batch_files: int = _batches(
        1_000, "Files that are kept, those of results among them, and batches.", 1
    )
    max_batch_bytes: int = _batches(
        2**32, "Bytes of these files together; one upload has at most --max-message-bytes.", 1_024
    )
    max_batch_lines: int = _batches(50_000, "Requests of one batch; 50,000 is OpenAI's bound.", 1)
    max_waiting_batches: int = _batches(
        64, "Batches that have not ended, running ones among them; the next one is refused.", 1
    )
    max_running_batches: int = _batches(2, "Batches that are answered at once.", 1, 64)
    batch_lines_in_flight: int = _batches(
        16, "Requests of one batch that are answered at once, in the background.", 1, 1_024
    )
    batch_keep_hours: float = _batches(
        720.0, "Hours for which files, and batches that have ended, are kept.", 0.01, 87_600
    )
    max_texts: int = _limits(2_048, "Texts, or images, in one request.", 1)
    max_text_characters: int = _limits(
        1_000_000, "Characters of one text; this bounds the time spent on tokenizing.", 1
    )
    chat_template_timeout_s: float = _limits(
        2.0,
        "Longest time, in seconds, in which a model's chat template makes a prompt of a "
        "conversation; it takes about a millisecond.",
        0.01,
        600,
    )
    max_image_bytes: int = _limits(
        16 * 2**20, "Bytes of one image; a camera's JPEG has less than 16 MiB.", 1
    )
    max_image_pixels: int = _limits(
        2**24,
        "Pixels of one image, read from its header before it is decoded. The default is 4096 x "
        "4096, which decodes in less than a second.",
        1,
    )
    max_message_bytes: int = _limits(
        256 * 2**20, "Size of one gRPC message, received or sent.", 1024, 2**31 - 1
    )
    max_message_parts: int = _limits(
        131_072,
        "Fields of one message, including nested ones; objects, lists and texts of a JSON body, of "
        "which four numbers count as one; strings of one tensor.",
        1_024,
    )
    max_bytes_in_flight: int = _limits(
        2**30,
        "Bytes of unanswered requests and unread answers together; the next request is refused.",
        1024,
    )
    max_stream_requests: int = _limits(
        256,
        "Requests in flight on one ModelStreamInfer call; the server reads no more until one is "
        "answered.",
        1,
    )
    max_shm_regions: int = _limits(
        128, "Shared memory regions registered at once. Each takes a file descriptor.", 1
    )
    max_shm_bytes: int = _limits(
        2**30, "Bytes of all shared memory regions together.", 1, MAX_READ_BYTES
    )
    max_concurrent_rpcs: int = _limits(
        4_096, "Calls in flight over all models; the next one gets RESOURCE_EXHAUSTED.", 1
    )
    max_streams_per_connection: int = _connections(
        1_024, "Calls in flight on one connection; clients hold back further ones.", 1, 2**31 - 1
    )
    max_connections: int = _connections(
        1_024,
        "Open connections; the next one is closed at once. Each takes a file descriptor.",
        1,
    )
    max_connection_age_s: float = _connections(
        300.0,
        "Age in seconds at which a connection is closed, so that clients connect to new replicas.",
        1,
    )
    connection_grace_s: float = _connections(
        300.0,
        "Seconds that calls on a connection of that age may continue; it should be at least the "
        "longest deadline.",
        0,
    )
    min_ping_interval_s: float = _connections(
        5.0,
        "Shortest interval, in seconds, at which clients may send keepalive pings without being "
        "disconnected.",
        0.001,
    )
    keepalive_time_s: float = _connections(
        60.0, "Seconds without traffic after which the server pings a connection.", 1
    )
    keepalive_timeout_s: float = _connections(
        20.0, "Seconds to wait for the answer to a ping before the connection is closed.", 0.1
    )
    send_timeout_s: float = _connections(
        60.0, "Seconds a client may leave an answer unread before its call is cancelled.", 0.01
    )
    http_max_header_bytes: int = _connections(
        32_768, "Bytes of an HTTP request's line and headers together.", 1_024, 2**20
    )
    http_header_timeout_s: float = _connections(
        20.0,
        "Seconds within which the line and headers of an HTTP request must arrive, from the "
        "connection's beginning or their own first byte.",
        0.01,
    )
    http_min_body_bytes_per_s: int = _connections(
        1_024,
        "Bytes per second at which the body of an HTTP request must at least arrive, once "
        "receive_timeout_s has passed.",
        1,
    )
    http_keepalive_s: float = _connections(
        75.0, "Seconds that an HTTP connection may be idle between two requests.", 0.01
    )
    http_heartbeat_s: float = _connections(
        15.0, "Seconds without an event after which an HTTP stream says that it lives.", 0.01
    )
    http_max_json_bytes: int = _limits(
        2**25,
        "Bytes of a JSON body, but of files of models that are sent, and of tensors, which have "
        "128 for each of max_message_parts.",
        1024,
        2**31 - 1,
    )
    http_max_json_depth: int = _limits(
        64,
        "Depth to which arrays and objects of a JSON body may be nested; not below /v2.",
        2,
        500,
    )
    receive_timeout_s: float = _connections(
        60.0,
        "Seconds within which the message of a unary call must arrive; streams may be idle.",
        0.01,
    )
    trace_folder: str = _logs(
        "",
        "Folder for trace files, used for nothing else; if empty, clients cannot request traces.",
    )
    otlp_endpoint: str = _logs(
        "",
        "Collector of OpenTelemetry traces by OTLP over gRPC, http(s)://HOST:PORT; if empty, no "
        "traces are sent.",
    )
    trace_sample_ratio: float = _logs(
        0.01, "Share of requests to trace if the caller's trace context does not decide.", 0, 1
    )
    log_format: str = _logs(
        "console",
        "Format of log lines: console for reading, json for one object per line.",
        choices=("console", "json"),
    )
    log_requests: bool = _logs(False, "Log a line for every finished request.")
    max_log_repeats: int = _logs(
        10, "Warnings and errors of one kind logged per second; further ones are counted.", 1
    )
    max_run_s: float = _stopping(
        120.0,
        "Seconds after which a run that has not ended turns liveness off; 0 means no limit.",
        0,
    )
    max_loop_gap_s: float = _stopping(
        60.0,
        "Seconds after which an event loop that stands still turns off the liveness that the "
        "metrics port tells; 0 means no limit.",
        0,
    )
    drain_delay_s: float = _stopping(
        0.0,
        "Seconds to keep serving after SIGTERM while reporting not ready, so that load balancers "
        "notice.",
        0,
    )
    drain_timeout_s: float = _stopping(
        30.0,
        "Seconds to finish accepted requests after SIGTERM; those that remain are cancelled.",
        0,
    )

    def __post_init__(self) -> None:
        if self.otlp_endpoint and not self.otlp_endpoint.startswith(("http://", "https://")):
            raise SettingError(
                f"--otlp-endpoint is '{self.otlp_endpoint}', expected http://... or https://..."
            )
        for host in listed(self.http_allowed_hosts):
            if not HOST_NAME.fullmatch(host):
                raise SettingError(
                    f"--http-allowed-hosts has '{host}', expected names without scheme, port or "
                    "path"
                )
        for origin in listed(self.http_allowed_origins):
            if not ORIGIN.fullmatch(origin):
                raise SettingError(
                    f"--http-allowed-origins has '{origin}', expected scheme://host or "
                    "scheme://host:port, without a path"
                )
        aliases_of(self)
        for kind in FORM_NAMES:
            for form in forms_of(getattr(self, kind)).values():
                if fault := unknown(kind, form):
                    raise SettingError(f"{_flag(kind)}: {fault}")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise SettingError("--tls-cert and --tls-key must both be set, or neither")
        if self.tls_client_ca and not self.tls_cert:
            raise SettingError("--tls-client-ca is set, expected --tls-cert and --tls-key with it")
        for setting in fields(self):
            value = getattr(self, setting.name)
            low, high, choices = (setting.metadata[key] for key in ("low", "high", "choices"))
            if choices and value not in choices:
                raise SettingError(
                    f"{_flag(setting.name)} is '{value}', expected {_any_of(choices)}"
                )
            if low is not None and value < low:
                raise SettingError(f"{_flag(setting.name)} is {value}, expected at least {low}")
            if high is not None and value > high:
                raise SettingError(f"{_flag(setting.name)} is {value}, expected at most {high}")


def listed(text: str) -> list[str]:
    """The parts between commas, in lower case."""
    return [part for part in (each.strip().lower() for each in text.split(",")) if part]


def aliases_of(settings: Settings) -> dict[str, str]:
    """The models by their further names. Raises `SettingError`."""
    aliases: dict[str, str] = {}
    for part in filter(None, map(str.strip, settings.model_alias.split(","))):
        name, equals, model = (each.strip() for each in part.partition("="))
        if not (name and equals and model):
            raise SettingError(f"--model-alias has '{part}', expected NAME=MODEL")
        if name in aliases:
            raise SettingError(f"--model-alias has the name '{name}' twice, expected it once")
        aliases[name] = model
    if chained := [name for name, model in aliases.items() if model in aliases]:
        raise SettingError(
            f"--model-alias has '{chained[0]}={aliases[chained[0]]}', expected a model and no "
            "further name of one"
        )
    return aliases


def _any_of(choices: tuple[str, ...]) -> str:
    """The choices as a message lists them."""
    if len(choices) > 3:
        return f"one of {', '.join(choices)}"
    return f"{', '.join(choices[:-1])} or {choices[-1]}"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def join_address(host: str, port: int) -> str:
    """`HOST:PORT` as gRPC and URLs write it: an IPv6 address in brackets, given with or without."""
    bare = host.removeprefix("[").removesuffix("]")
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"


def link_targets_of(settings: Settings) -> tuple[Path, ...]:
    """The folders that links of the repository may lead to."""
    return tuple(Path(each) for each in settings.link_targets.split(":") if each)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it; a name that is not localhost may be anything."""
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return host == "localhost"
