"""Every setting of the server, with its default, bound and reason.

One frozen record, checked when it is made. The command line fills it from flags
and environment variables; tests make it by hand. docs/settings.md lists them all,
which a test checks.
"""

import ipaddress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from service.contract.precision import AUTO, CHOICES, MAX_DRAFT_TOKENS
from service.errors import SettingError

ONE_OF = {  # what a shell completes these settings to
    "device": ("auto", "cpu", "cuda"),
    "precision": CHOICES,
    "model_control_mode": ("none", "poll", "explicit"),
    "log_format": ("console", "json"),
}
MAX_READ_BYTES = 2**31 - 4096  # what Linux reads from a file at once


def _setting(default: Any, text: str, low: float | None = None, high: float | None = None) -> Any:  # noqa: ANN401
    return field(default=default, metadata={"help": text, "low": low, "high": high})


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one server process."""

    model_repository: Path = _setting(
        Path("model_repository"), "Folder of models in Triton's layout."
    )
    host: str = _setting(
        "127.0.0.1", "Address to listen on. Loopback by default: nothing is open unasked."
    )
    grpc_port: int = _setting(
        8001, "gRPC port; 0 picks a free one. 8001 is where Triton's users look.", 0, 65535
    )
    metrics_host: str = _setting(
        "127.0.0.1", "Address of /metrics, which has neither TLS nor tokens: apart from gRPC's."
    )
    metrics_port: int = _setting(
        8002, "Port of /metrics; 0 picks a free one. 8002 is Triton's.", 0, 65535
    )
    trusted_network: bool = _setting(
        False,
        "Something else, as a NetworkPolicy, says who reaches the ports: not to be on loopback is "
        "then no warning.",
    )
    model_control_mode: str = _setting(
        "none", "none: load once; poll: look for changes; explicit: clients load and unload."
    )
    load_models: str = _setting(
        "",
        "The models of the repository to serve, with commas between; * is all. Empty: all, under "
        "explicit control none at start.",
    )
    repository_poll_s: float = _setting(
        15.0, "Seconds between two looks at the repository under poll.", 0.1
    )
    load_threads: int = _setting(1, "Models loaded at once while the server runs.", 1, 64)
    tls_cert: str = _setting(
        "", "PEM file of the gRPC port's certificate and its chain; read again when it changes."
    )
    tls_key: str = _setting("", "PEM file of the certificate's key, unencrypted.")
    tls_client_ca: str = _setting(
        "", "PEM file of who signs clients' certificates; set, clients must have one."
    )
    token_file: str = _setting(
        "", "File of bearer tokens, one a line, any of which a call must carry."
    )
    restricted_protocols: str = _setting(
        "", "Groups of calls that need a key: <protocol>,...:<key>=<value or @file>;..."
    )
    admin_host: str = _setting("127.0.0.1", "Address of the port for administration.")
    admin_port: int = _setting(
        -1,
        "Port of its own for model control, trace and log settings, which the gRPC port then "
        "refuses; -1 has none, 0 picks a free one.",
        -1,
        65535,
    )
    server_name: str = _setting(
        "attendant", "Name in ServerMetadata. Some clients insist on 'triton'."
    )
    strict_readiness: bool = _setting(
        True, "Not ready while any model has failed to load, as in Triton."
    )
    min_models: int = _setting(
        0, "Not ready while fewer models are served: 1 keeps an empty folder from being ready.", 0
    )
    device: str = _setting(
        "auto", "auto, cpu or cuda, for models whose instance_group leaves it open."
    )
    precision: str = _setting(
        AUTO,
        "Which of an exported model's graphs to serve: auto takes what the machine computes fast.",
    )
    instances: int = _setting(
        2, "Runs at once per model: one computes while another is prepared and answered.", 1, 64
    )
    num_threads: int = _setting(
        0, "Threads per model; 0 takes what affinity and the cgroup quota allow.", 0, 1024
    )
    can_spin: bool = _setting(
        False, "Let idle compute threads poll. Off: they would take the processor from gRPC."
    )
    default_max_batch_size: int = _setting(
        64, "Rows per batch where a model's configuration is silent.", 1, 65536
    )
    max_batch_tokens: int = _setting(
        16_384, "Tokens per batch, padding included: bounds the memory of a run.", 1
    )
    batch_overhead_tokens: int = _setting(
        16, "What one more run costs, in tokens, where that is not measured.", 0
    )
    measure_cost_s: float = _setting(
        1.0, "Seconds per text model, at most, to measure what runs cost. 0: not measured.", 0, 60
    )
    max_queue_s: float = _setting(
        1.0,
        "Seconds a request may be expected to wait; one that would wait longer is refused at "
        "once. 0: no bound.",
        0,
    )
    max_queue_requests: int = _setting(
        512, "Requests waiting per model and priority level; one more is refused at once.", 1
    )
    max_queue_rows: int = _setting(
        32_768, "Rows waiting per model: 512 requests of the default batch size.", 1
    )
    max_queue_tokens: int = _setting(
        262_144, "Tokens waiting per model: 16 batches of the default size.", 1
    )
    kv_cache_bytes: int = _setting(
        2**31, "Memory for keys and values per generative model; slots follow from it.", 1
    )
    max_running_sequences: int = _setting(
        64, "Sequences that generate at once per model, if there are as many slots.", 1, 1024
    )
    max_context_tokens: int = _setting(
        0, "Prompt and output of a sequence; 0 is what the model takes. Less makes more slots.", 0
    )
    max_prefill_tokens: int = _setting(
        256, "Prompt tokens between two decoding steps: bounds how long a prompt delays others.", 1
    )
    default_max_tokens: int = _setting(
        128, "Output tokens where a request is silent, if they fit.", 1
    )
    max_draft_tokens: int = _setting(
        0,
        "Tokens drafted from a text itself and checked in one run, where that pays. 0: none.",
        0,
        MAX_DRAFT_TOKENS,
    )
    prefix_reuse: bool = _setting(
        True, "Copy the beginning of a prompt from a sequence that began alike."
    )
    priority_step_s: float = _setting(
        5.0, "How much later each step of priority counts as having come.", 0
    )
    response_cache_bytes: int = _setting(
        0, "Memory for answers of models whose configuration has a response_cache; 0 keeps none.", 0
    )
    max_texts: int = _setting(1_024, "Texts, or images, in one request of the typed API.", 1)
    max_text_characters: int = _setting(
        1_000_000, "Characters of one text; bounds the time spent tokenizing.", 1
    )
    max_image_bytes: int = _setting(
        16 * 2**20, "Bytes of one image; a camera's JPEG has less than 16 MiB.", 1
    )
    max_image_pixels: int = _setting(
        2**24,
        "Pixels of one image, read from its header before it is decoded: a small file may hold "
        "many. 2^24 are 4096 x 4096, decoded in less than a second.",
        1,
    )
    tokenizer_threads: int = _setting(
        1, "Threads for tokenizing long requests and decoding images, off the event loop.", 1, 64
    )
    max_message_bytes: int = _setting(
        256 * 2**20, "Size of one gRPC message, both ways.", 1024, 2**31 - 1
    )
    max_bytes_in_flight: int = _setting(
        2**30, "Requests not yet answered and answers not yet read, together; then refuse.", 1024
    )
    max_stream_requests: int = _setting(
        256, "Requests in flight on one ModelStreamInfer; then no more are read.", 1
    )
    allow_client_shm: bool = _setting(
        False, "Clients may register shared memory: whatever the server may open in /dev/shm."
    )
    max_shm_regions: int = _setting(
        128, "Shared memory regions registered at once. Each takes a file descriptor.", 1
    )
    max_shm_bytes: int = _setting(
        2**30, "Bytes of all shared memory regions together.", 1, MAX_READ_BYTES
    )
    max_message_parts: int = _setting(
        131_072, "Fields of one message and of those inside it; strings of one tensor.", 1_024
    )
    max_concurrent_rpcs: int = _setting(
        4_096, "Calls in flight over all models; one more gets RESOURCE_EXHAUSTED.", 1
    )
    max_streams_per_connection: int = _setting(
        1_024, "Calls in flight on one connection; clients hold further ones back.", 1, 2**31 - 1
    )
    max_connections: int = _setting(
        1_024, "Open connections; one more is closed at once. Each takes a file descriptor.", 1
    )
    max_connection_age_s: float = _setting(
        300.0, "Then a connection is renewed, so that clients find new replicas.", 1
    )
    connection_grace_s: float = _setting(
        300.0, "How long calls on an aged connection may go on; at least the longest deadline.", 0
    )
    min_ping_interval_s: float = _setting(
        5.0, "Clients may ping so often without being cut off, as they do behind proxies.", 0.001
    )
    keepalive_time_s: float = _setting(
        60.0, "The server pings a silent connection so often, to find those that are gone.", 1
    )
    keepalive_timeout_s: float = _setting(
        20.0, "And closes it where no answer comes in this time.", 0.1
    )
    send_timeout_s: float = _setting(
        60.0, "Seconds a client may leave one answer unread; then its call is cancelled.", 0.01
    )
    receive_timeout_s: float = _setting(
        60.0,
        "Seconds until the message of a call that has one must be there; streams may idle.",
        0.01,
    )
    trace_folder: str = _setting(
        "", "Folder of its own for traces; empty, clients cannot have requests traced."
    )
    otlp_endpoint: str = _setting(
        "", "Where OpenTelemetry traces go, http(s)://HOST:PORT, by OTLP over gRPC; empty: nowhere."
    )
    trace_sample_ratio: float = _setting(
        0.01, "Share of requests that are traced where their caller has not decided.", 0, 1
    )
    log_format: str = _setting("console", "console: lines for people; json: an object a line.")
    log_requests: bool = _setting(False, "Log a line for every request that ended.")
    max_log_repeats: int = _setting(
        10, "Warnings and errors of one kind logged in a second; the others are counted.", 1
    )
    max_run_s: float = _setting(
        120.0, "A run that takes longer turns liveness off: it may never end. 0: no bound.", 0
    )
    drain_delay_s: float = _setting(
        0.0, "Seconds to serve on, unready, after SIGTERM: until balancers have noticed.", 0
    )
    drain_timeout_s: float = _setting(
        30.0, "Seconds to answer what was admitted after SIGTERM; then it is cancelled.", 0
    )

    def __post_init__(self) -> None:
        if self.device not in ONE_OF["device"]:
            raise SettingError(f"--device is '{self.device}', expected auto, cpu or cuda")
        if self.precision not in ONE_OF["precision"]:
            raise SettingError(
                f"--precision is '{self.precision}', expected one of {', '.join(CHOICES)}"
            )
        if self.model_control_mode not in ONE_OF["model_control_mode"]:
            raise SettingError(
                f"--model-control-mode is '{self.model_control_mode}', "
                "expected none, poll or explicit"
            )
        if self.log_format not in ONE_OF["log_format"]:
            raise SettingError(f"--log-format is '{self.log_format}', expected console or json")
        if self.otlp_endpoint and not self.otlp_endpoint.startswith(("http://", "https://")):
            raise SettingError(
                f"--otlp-endpoint is '{self.otlp_endpoint}', expected http://... or https://..."
            )
        if bool(self.tls_cert) != bool(self.tls_key):
            raise SettingError("--tls-cert and --tls-key must both be set, or neither")
        if self.tls_client_ca and not self.tls_cert:
            raise SettingError("--tls-client-ca is set, expected --tls-cert and --tls-key with it")
        for setting in fields(self):
            value, low, high = (
                getattr(self, setting.name),
                setting.metadata["low"],
                setting.metadata["high"],
            )
            if low is not None and value < low:
                raise SettingError(f"{_flag(setting.name)} is {value}, expected at least {low}")
            if high is not None and value > high:
                raise SettingError(f"{_flag(setting.name)} is {value}, expected at most {high}")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def join_address(host: str, port: int) -> str:
    """`HOST:PORT` as gRPC and URLs write it: an IPv6 address in brackets, given with or without."""
    bare = host.removeprefix("[").removesuffix("]")
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it; a name that is not localhost may be anything."""
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return host == "localhost"
