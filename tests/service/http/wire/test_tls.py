"""TLS of the HTTP port, by the settings of gRPC: clients' certificates, and renewed files."""

import asyncio
import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest

from service.api.secrets import LOOK_INTERVAL_S
from service.errors import SettingError
from service.http.wire.tls import tls_context
from service.settings import Settings
from tests.fakes.certificates import Authority, Signed
from tests.fakes.every_task import every_task
from tests.fakes.http import answers, port_of, request
from tests.fakes.serving import Served

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="makes the certificates")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder, "authority")


async def _ask(served: Served, context: ssl.SSLContext) -> tuple[int, int]:
    """The status, and the serial number of the server's certificate."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port_of(served), ssl=context, server_hostname="localhost"
    )
    writer.write(request("GET", "/ping"))
    raw = await asyncio.wait_for(reader.read(), 10)
    serial = int(writer.get_extra_info("peercert")["serialNumber"], 16)
    writer.close()
    return answers(raw)[0].status, serial


def _trusting(authority: Authority, pair: Signed | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.cert))
    if pair is not None:
        context.load_cert_chain(pair.cert, pair.key)
    return context


def _flags(pair: Signed) -> dict[str, Any]:
    return {"tls_cert": str(pair.cert), "tls_key": str(pair.key), "http_port": 0}


async def test_the_port_speaks_tls_and_takes_a_renewed_certificate(
    tmp_path: Path, authority: Authority
) -> None:
    pair = authority.sign("server")
    async with every_task(tmp_path, **_flags(pair)) as served:
        status, serial = await _ask(served, _trusting(authority))
        assert status == 200
        renewed = authority.sign("renewed")
        shutil.copy(renewed.key, pair.key)
        shutil.copy(renewed.cert, pair.cert)
        await asyncio.sleep(LOOK_INTERVAL_S + 0.1)
        status, newer = await _ask(served, _trusting(authority))
        assert status == 200
        assert newer != serial
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(served))
        writer.write(request("GET", "/ping"))
        assert not (await asyncio.wait_for(reader.read(), 10)).startswith(b"HTTP")
        writer.close()


async def test_clients_present_a_certificate_where_they_must(
    tmp_path: Path, folder: Path, authority: Authority
) -> None:
    flags = _flags(authority.sign("server2")) | {"tls_client_ca": str(authority.cert)}
    stranger = Authority(folder, "stranger")
    async with every_task(tmp_path, **flags) as served:
        status, _ = await _ask(served, _trusting(authority, authority.sign("client")))
        assert status == 200
        for pair in (None, stranger.sign("other")):
            with pytest.raises((ssl.SSLError, ConnectionError, IndexError)):
                await _ask(served, _trusting(authority, pair))


def test_files_that_are_no_certificates_are_an_error_at_start(tmp_path: Path) -> None:
    (tmp_path / "cert").write_text("no certificate")
    (tmp_path / "key").write_text("no key")
    settings = Settings(tls_cert=str(tmp_path / "cert"), tls_key=str(tmp_path / "key"))
    with pytest.raises(SettingError, match="cannot be used for HTTP"):
        tls_context(settings)
