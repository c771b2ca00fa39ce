"""TLS of the gRPC port: a certificate and its key, and whose clients' certificates are taken.

The files are looked at when a client connects, and read again if they changed: a renewed
certificate needs no restart. What is read is tried by OpenSSL first, so that a mistake is an error
at start, with the file's name, and a later one leaves the certificate that works.
"""

import ssl
from pathlib import Path

import grpc

from service.errors import SettingError
from service.settings import Settings
from service.watched_files import WatchedFiles, read_bytes

MAX_PEM_BYTES = 2**20


def server_credentials(settings: Settings) -> grpc.ServerCredentials | None:
    """None where no certificate is set: the port is plain. Raises `SettingError`."""
    if not settings.tls_cert:
        return None
    names = (settings.tls_cert, settings.tls_key, settings.tls_client_ca)
    paths = [Path(name) for name in names if name]
    configuration = WatchedFiles(paths, lambda: _read(settings))
    return grpc.dynamic_ssl_server_credentials(
        configuration.value,
        lambda: configuration.value,
        require_client_authentication=bool(settings.tls_client_ca),
    )


def _read(settings: Settings) -> grpc.ServerCertificateConfiguration:
    certificate, key = Path(settings.tls_cert), Path(settings.tls_key)
    pair = (
        read_bytes("--tls-key", key, MAX_PEM_BYTES),
        read_bytes("--tls-cert", certificate, MAX_PEM_BYTES),
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password="")  # never ask a terminal for one
    except (OSError, ValueError) as error:
        raise SettingError(
            f"--tls-cert '{certificate}' and --tls-key '{key}' are no certificate with its "
            f"unencrypted key, both PEM: {error}"
        ) from error
    authority = _authority(settings.tls_client_ca) if settings.tls_client_ca else None
    return grpc.ssl_server_certificate_configuration([pair], authority)


def _authority(name: str) -> bytes:
    pem = read_bytes("--tls-client-ca", Path(name), MAX_PEM_BYTES)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=pem.decode())
    except (OSError, ValueError) as error:
        raise SettingError(f"--tls-client-ca '{name}' is no PEM certificate: {error}") from error
    return pem
