"""TLS and mutual TLS: unmodified clients pass, others do not, and files are renewed at run time."""

import asyncio
import logging
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tritonclient.grpc import InferenceServerClient, InferenceServerException
from tritonclient.grpc import aio as triton_aio
from typer.testing import CliRunner

from commands.ask.client.access import Access
from commands.ask.client.client import Client
from commands.ask.client.refusal import CallError
from commands.main import app as command_line
from service.app import App
from service.errors import SettingError
from service.rpc.credentials import watched_certificate
from service.settings import Settings
from tests.fakes.certificates import Authority, Signed
from tests.fakes.serving import (
    default_sessions,
    make_app,
    metrics_page,
    within_patience,
    write_models,
)
from tests.fakes.sessions import PATIENCE_S

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="makes the certificates")
TOKEN = "a-token-for-one-client"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder, "authority")


@pytest.fixture(scope="module")
def stranger(folder: Path) -> Authority:
    return Authority(folder, "stranger")


@pytest.fixture(scope="module")
def server_pair(authority: Authority) -> Signed:
    return authority.sign("server")


@asynccontextmanager
async def serving_tls(repository: Path, **settings: Any) -> AsyncIterator[App]:
    write_models(repository)
    app = make_app(repository, default_sessions(), settings)
    await within_patience(app.start())
    try:
        yield app
    finally:
        await within_patience(app.stop())


def tls(pair: Signed, client_ca: Path | None = None) -> dict[str, Any]:
    flags = {"tls_cert": str(pair.cert), "tls_key": str(pair.key)}
    return flags | ({"tls_client_ca": str(client_ca)} if client_ca else {})


def is_ready(app: App, ca: Path, pair: Signed | None = None) -> bool:
    """Asked by Triton's client, as it is."""
    with InferenceServerClient(
        f"127.0.0.1:{app.grpc_port}",
        ssl=True,
        root_certificates=str(ca),
        private_key=str(pair.key) if pair else None,
        certificate_chain=str(pair.cert) if pair else None,
    ) as client:
        ready: bool = client.is_server_ready(client_timeout=5.0)
        return ready


async def test_clients_pass_by_tls_and_not_without(
    repository: Path, server_pair: Signed, authority: Authority, stranger: Authority
) -> None:
    """Synchronous and asynchronous; a plain one and one that trusts others fail."""
    async with serving_tls(repository, **tls(server_pair)) as app:
        assert await asyncio.to_thread(is_ready, app, authority.cert)
        address = f"127.0.0.1:{app.grpc_port}"
        async with triton_aio.InferenceServerClient(
            address, ssl=True, root_certificates=str(authority.cert)
        ) as client:
            assert await client.is_model_ready("spam", client_timeout=PATIENCE_S)
        with pytest.raises(InferenceServerException, match="UNAVAILABLE"):
            await asyncio.to_thread(is_ready, app, stranger.cert)
        async with triton_aio.InferenceServerClient(address) as client:
            with pytest.raises(InferenceServerException, match="UNAVAILABLE"):
                await client.is_server_ready(client_timeout=5.0)


async def test_mutual_tls_takes_clients_with_a_certificate_of_that_authority(
    repository: Path, server_pair: Signed, authority: Authority, stranger: Authority
) -> None:
    async with serving_tls(repository, **tls(server_pair, authority.cert)) as app:
        known, unknown = authority.sign("client"), stranger.sign("unknown")
        assert await asyncio.to_thread(is_ready, app, authority.cert, known)
        for pair in (None, unknown):
            with pytest.raises(InferenceServerException, match="UNAVAILABLE"):
                await asyncio.to_thread(is_ready, app, authority.cert, pair)


async def test_our_client_and_command_line_pass_by_mutual_tls_with_a_token(
    repository: Path, tmp_path: Path, server_pair: Signed, authority: Authority
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"# ours\n{TOKEN}\n")
    pair = authority.sign("ours")
    settings = tls(server_pair, authority.cert) | {"token_file": str(tokens)}
    async with serving_tls(repository, **settings) as app:
        address = f"127.0.0.1:{app.grpc_port}"
        flags = {"--tls-ca": authority.cert, "--tls-cert": pair.cert, "--tls-key": pair.key}
        flags |= {"--token-file": tokens}
        words = [str(word) for flag in flags.items() for word in flag]

        def use() -> str:
            access = Access(
                authority.cert.read_bytes(), pair.cert.read_bytes(), pair.key.read_bytes()
            )
            with (
                pytest.raises(CallError, match="UNAUTHENTICATED"),
                Client(address, PATIENCE_S, access) as client,
            ):
                client.models()
            command = ["models", "--json", "--address", address, *words]
            return CliRunner().invoke(command_line, command).stdout

        assert '"spam"' in await within_patience(asyncio.to_thread(use))


def served_certificate(port: int) -> bytes:
    """What a new connection is shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", port), PATIENCE_S) as plain,
        context.wrap_socket(plain) as wrapped,
    ):
        return wrapped.getpeercert(binary_form=True) or b""


def der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


async def test_a_renewed_certificate_is_shown_without_a_restart(
    repository: Path,
    tmp_path: Path,
    server_pair: Signed,
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """First the certificate alone, which fits no key and changes nothing; then its key."""
    caplog.set_level(logging.INFO)
    pair, renewed = Signed(tmp_path / "cert", tmp_path / "key"), authority.sign("renewed")
    shutil.copy(server_pair.cert, pair.cert)
    shutil.copy(server_pair.key, pair.key)
    async with serving_tls(repository, **tls(pair)) as app:

        async def shown() -> bytes:
            return await asyncio.to_thread(served_certificate, app.grpc_port)

        async def until_logged(text: str) -> None:
            while text not in caplog.text:
                assert await shown() == der(server_pair.cert)

        assert await shown() == der(server_pair.cert)
        shutil.copy(renewed.cert, pair.cert)
        await within_patience(until_logged("the previous contents stay in use: --tls-cert"))
        shutil.copy(renewed.key, pair.key)

        async def until_renewed() -> None:
            while await shown() != der(renewed.cert):
                assert await shown() in (der(server_pair.cert), der(renewed.cert))

        await within_patience(until_renewed())
        assert await asyncio.to_thread(is_ready, app, authority.cert)


def end_of(path: Path) -> float:
    """As OpenSSL reads it, seconds since 1970."""
    command = ["openssl", "x509", "-in", str(path), "-noout", "-enddate"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)  # noqa: S603
    return ssl.cert_time_to_seconds(done.stdout.strip().removeprefix("notAfter="))


async def test_metrics_tell_when_the_certificate_in_use_ends(
    repository: Path, tmp_path: Path, server_pair: Signed, authority: Authority
) -> None:
    """A renewed one's too. From 2050 on certificates write the time in another form."""
    name = "attendant_tls_certificate_expiry_timestamp_seconds"
    pair, renewed = Signed(tmp_path / "cert", tmp_path / "key"), authority.sign("long", 20_000)
    shutil.copy(server_pair.cert, pair.cert)
    shutil.copy(server_pair.key, pair.key)
    async with serving_tls(repository, **tls(pair)) as app:
        assert await metric_of(app, name) == end_of(server_pair.cert)
        shutil.copy(renewed.cert, pair.cert)
        shutil.copy(renewed.key, pair.key)

        async def until_renewed() -> None:
            while await metric_of(app, name) != end_of(renewed.cert):
                pass

        await within_patience(until_renewed())


async def metric_of(app: App, name: str) -> float | None:
    """The one sample of a metric without labels."""
    page = await metrics_page(app)
    values = re.findall(rf"^{name} (\S+)$", page, re.MULTILINE)
    return float(values[0]) if values else None


def test_files_that_are_no_certificates_are_refused_by_name(
    tmp_path: Path, server_pair: Signed, stranger: Authority
) -> None:
    other = stranger.sign("other")
    garbage = tmp_path / "garbage"
    garbage.write_text("no certificate")
    cases = (
        (tls(Signed(garbage, server_pair.key)), f"--tls-cert '{garbage}' and --tls-key"),
        (tls(Signed(server_pair.cert, garbage)), f"--tls-key '{garbage}' are no certificate"),
        (tls(Signed(server_pair.cert, other.key)), "are no certificate with its"),
        (tls(Signed(tmp_path / "no", server_pair.key)), "--tls-cert '"),
        (tls(server_pair, garbage), f"--tls-client-ca '{garbage}' is no PEM certificate"),
        (tls(server_pair, tmp_path / "no"), "cannot be read: No such file or directory"),
    )
    for flags, text in cases:
        with pytest.raises(SettingError) as caught:
            watched_certificate(Settings(**flags))
        assert text in str(caught.value)


def test_an_encrypted_key_is_refused_without_a_prompt(tmp_path: Path, server_pair: Signed) -> None:
    locked = tmp_path / "locked.key"
    command = ["openssl", "ec", "-in", str(server_pair.key), "-aes256", "-passout", "pass:word"]
    subprocess.run([*command, "-out", str(locked)], check=True, capture_output=True, timeout=30)  # noqa: S603
    with pytest.raises(SettingError, match="unencrypted key"):
        watched_certificate(Settings(**tls(Signed(server_pair.cert, locked))))


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"tls_cert": "a"}, "--tls-cert and --tls-key must both be set, or neither"),
        ({"tls_key": "a"}, "--tls-cert and --tls-key must both be set, or neither"),
        ({"tls_client_ca": "a"}, "--tls-client-ca is set, expected --tls-cert and --tls-key"),
    ],
)
def test_half_of_a_setting_is_refused(flags: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingError, match=text):
        Settings(**flags)
