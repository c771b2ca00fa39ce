"""TLS of the gRPC port: a certificate and its key, and the authorities of clients' certificates.

The files are checked when a client connects, and read again if they changed: a renewed
certificate needs no restart. OpenSSL tries new files first, so that a mistake is an error
at start, with the file's name, and a later mistake leaves the working certificate in use.
"""

import base64
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import grpc

from service.api.secrets import WatchedFiles, read_bytes
from service.errors import SettingError
from service.settings import Settings

MAX_PEM_BYTES = 2**20
CERTIFICATE = re.compile(rb"-BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----(.+?)-----END ", re.DOTALL)
VERSION_TAG, UTC_TIME_TAG = 0xA0, 0x17  # of DER


@dataclass(frozen=True, slots=True)
class Certificate:
    """gRPC's certificate configuration, and the certificate's end in seconds since 1970."""

    configuration: grpc.ServerCertificateConfiguration
    ends_s: float


def watched_certificate(settings: Settings) -> WatchedFiles[Certificate] | None:
    """The port's certificate; None where none is set: it is plain. Raises `SettingError`."""
    if not settings.tls_cert:
        return None
    names = (settings.tls_cert, settings.tls_key, settings.tls_client_ca)
    return WatchedFiles([Path(name) for name in names if name], lambda: _read(settings))


def server_credentials(
    certificate: WatchedFiles[Certificate], *, wants_clients_certificate: bool
) -> grpc.ServerCredentials:
    return grpc.dynamic_ssl_server_credentials(
        certificate.value.configuration,
        lambda: certificate.value.configuration,
        require_client_authentication=wants_clients_certificate,
    )


def _read(settings: Settings) -> Certificate:
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
    configuration = grpc.ssl_server_certificate_configuration([pair], authority)
    return Certificate(configuration, _ends_s(pair[1]))


def _ends_s(pem: bytes) -> float:
    """The `notAfter` of the first certificate of a file that OpenSSL has read.

    Of certificates the standard library tells this for a peer's and an authority's only.
    """
    match = CERTIFICATE.search(pem)
    assert match is not None, "OpenSSL has read a certificate"
    (_, certificate), *_ = _elements(base64.b64decode(match[1]))
    (_, signed), *_ = _elements(certificate)
    fields = [content for tag, content in _elements(signed) if tag != VERSION_TAG]
    _number, _algorithm, _issuer, validity, *_ = fields
    _, (tag, end) = _elements(validity)
    form = "%y%m%d%H%M%SZ" if tag == UTC_TIME_TAG else "%Y%m%d%H%M%SZ"
    return datetime.strptime(end.decode(), form).replace(tzinfo=UTC).timestamp()


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each element of DER's, one after the other."""
    position = 0
    while position < len(der):
        tag, length = der[position], der[position + 1]
        position += 2
        if length >= 0x80:  # then it says how many bytes have the length
            start, position = position, position + length - 0x80
            length = int.from_bytes(der[start:position])
        yield tag, der[position : position + length]
        position += length


def _authority(name: str) -> bytes:
    pem = read_bytes("--tls-client-ca", Path(name), MAX_PEM_BYTES)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=pem.decode())
    except (OSError, ValueError) as error:
        raise SettingError(f"--tls-client-ca '{name}' is no PEM certificate: {error}") from error
    return pem
