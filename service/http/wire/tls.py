"""TLS of the HTTP port, by the settings of gRPC's: files that change are read again."""

import ssl
from pathlib import Path

from service.api.secrets import WatchedFiles
from service.errors import SettingError
from service.settings import Settings


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """TLS of the port; None where no certificate is set: it is plain. Raises `SettingError`.

    Every handshake asks for the newest: a renewed certificate needs no restart.
    """
    if not settings.tls_cert:
        return None
    names = (settings.tls_cert, settings.tls_key, settings.tls_client_ca)
    watched = WatchedFiles([Path(name) for name in names if name], lambda: _read(settings))

    def choose(handshake: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        handshake.context = watched.value

    context = _read(settings)
    context.sni_callback = choose  # called without a name, too
    return context


def _read(settings: Settings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password="")
        if settings.tls_client_ca:
            context.load_verify_locations(settings.tls_client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:
        raise SettingError(
            f"--tls-cert '{settings.tls_cert}', --tls-key and --tls-client-ca cannot be used "
            f"for HTTP: {error}"
        ) from error
    return context
