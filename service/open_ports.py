"""The log lines about ports at a start: how they are protected, and warnings where they are not."""

import logging
from dataclasses import dataclass

from service.settings import Settings, is_loopback, join_address

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one process; None for those that are not open."""

    grpc: int
    metrics: int
    http: int | None = None
    admin: int | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """A server that is ready: its ports, and each model's name, task and mask token."""

    ports: Ports
    models: tuple[tuple[str, str, str], ...]


def log_open_ports(settings: Settings, ports: Ports) -> None:
    """Log each port's protection; warn if other machines reach one without TLS or tokens."""
    is_guarded = settings.token_file or settings.tls_client_ca
    protection = _protection(settings)
    logger.info(
        "gRPC is open on %s: %s, model control %s",
        join_address(settings.host, ports.grpc),
        protection,
        settings.model_control_mode,
    )
    if ports.http is not None:
        host = settings.http_host or settings.host
        logger.info(
            "HTTP is open on %s: %s; pages %s",
            join_address(host, ports.http),
            protection,
            f"of {settings.http_allowed_origins} may call it"
            if settings.http_allowed_origins
            else "of other sites may not call it",
        )
    if ports.admin is not None:
        address = join_address(settings.admin_host, ports.admin)
        logger.info("administration is open on %s: %s", address, protection)
    if settings.otlp_endpoint:
        logger.info(
            "traces go to %s: %g %% of the requests whose caller does not decide",
            settings.otlp_endpoint,
            100 * settings.trace_sample_ratio,
        )
    hosts = {"--host": settings.host}
    if ports.http is not None and settings.http_host:
        hosts["--http-host"] = settings.http_host
    for flag, host in hosts.items():
        if not is_loopback(host):
            _warn_of_callers(settings, flag, host, is_guarded=bool(is_guarded))
    if not is_loopback(settings.metrics_host) and not settings.trusted_network:
        logger.warning(
            "--metrics-host %s is reached by other machines, and every machine there may read it",
            settings.metrics_host,
        )


def _protection(settings: Settings) -> str:
    """The encryption and the tokens of every port but that of the metrics."""
    encryption = "TLS" if settings.tls_cert else "plain"
    if settings.tls_client_ca:
        encryption = "TLS with clients' certificates"
    return f"{encryption}, {'bearer tokens' if settings.token_file else 'no tokens'}"


def _warn_of_callers(settings: Settings, flag: str, host: str, *, is_guarded: bool) -> None:
    """The risk of an open port: calls without a token, or tokens that can be read on the way."""
    if not is_guarded and not settings.trusted_network:
        risk = "every machine there may call it"
    elif is_guarded and not settings.tls_cert:
        risk = "tokens and texts pass in the clear, as neither --tls-cert nor --tls-key is set"
    else:
        return
    logger.warning(
        "%s %s is reached by other machines, and %s: see docs/explanation/security.md",
        flag,
        host,
        risk,
    )
