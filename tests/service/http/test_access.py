"""Who may call the HTTP port: tokens, keys, and pages of other sites."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from service.api import secrets
from service.http.browser import BrowserRules
from service.http.status import HttpError
from service.settings import Settings
from tests.fakes.every_task import every_task
from tests.fakes.http import Answer, ask, exchange, port_of, request
from tests.fakes.serving import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")
TOKEN = "a-token-of-some-length"
SENT = {"model": "spam", "texts": ["win"]}


@asynccontextmanager
async def _guarded(folder: Path, **settings: Any) -> AsyncIterator[Served]:
    tokens = folder / "tokens"
    tokens.write_text(f"{TOKEN}\n")
    (folder / "models").mkdir()
    async with every_task(folder / "models", http_port=0, **settings) as served:
        yield served


async def test_every_call_but_probes_needs_a_token(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"{TOKEN}\n")
    async with _guarded(tmp_path, token_file=str(tmp_path / "tokens")) as served:
        bearer = [("authorization", f"Bearer {TOKEN}")]
        wrong = [("authorization", "Bearer nobody-knows-this-token")]
        for path in ("/health", "/ping", "/v2/health/live", "/v2/health/ready"):
            assert (await ask(served, "GET", path)).status == 200
        for path in ("/v2", "/v1/models", "/v2/models/spam", "/v2/models/stats", "/openapi.json"):
            refused = await ask(served, "GET", path)
            assert (refused.status, refused.headers["www-authenticate"]) == (401, "bearer")
            assert (await ask(served, "GET", path, None, wrong)).status == 401
            assert (await ask(served, "GET", path, None, bearer)).status == 200
            key = [("x-api-key", TOKEN)]  # as clients of Messages send it
            assert (await ask(served, "GET", path, None, key)).status == 200
            assert (await ask(served, "GET", path, None, [*wrong, *key])).status == 401
        missing = await ask(served, "GET", "/v1/models")
        assert missing.json["error"]["code"] == "invalid_api_key"
        assert (await ask(served, "POST", "/api/Classify", SENT)).status == 401
        assert (await ask(served, "POST", "/api/Classify", SENT, bearer)).status == 200
        assert served.app._admission.refusals["token"] == 17


async def test_a_token_file_that_was_changed_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "LOOK_INTERVAL_S", 0.0)
    (tmp_path / "tokens").write_text(f"{TOKEN}\n")
    async with _guarded(tmp_path, token_file=str(tmp_path / "tokens")) as served:
        old, new = ([("authorization", f"Bearer {each}")] for each in (TOKEN, TOKEN + "-and-more"))
        before = [(await ask(served, "GET", "/v2", None, each)).status for each in (old, new)]
        (tmp_path / "tokens").write_text(f"{TOKEN}-and-more\n")
        after = [(await ask(served, "GET", "/v2", None, each)).status for each in (old, new)]
    assert (before, after) == ([200, 401], [401, 200])


async def test_a_body_is_not_read_before_its_sender_is_known(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"{TOKEN}\n")
    async with _guarded(tmp_path, token_file=str(tmp_path / "tokens")) as served:
        head = request("POST", "/api/Classify", None, [("content-length", "1000000")])
        assert (await exchange(port_of(served), head)).startswith(b"HTTP/1.1 401")


async def test_a_group_that_is_restricted_is_so_by_both_doors(tmp_path: Path) -> None:
    """Over HTTP the header is the key's name, as Triton has it."""
    rules = "inference,statistics:admin-key=secret"
    async with _guarded(tmp_path, restricted_protocols=rules) as served:
        key = [("admin-key", "secret")]
        asks: tuple[Callable[..., Awaitable[Answer]], ...] = (
            lambda headers: ask(served, "POST", "/api/Classify", SENT, headers),
            lambda headers: ask(served, "POST", "/models/spam", {"inputs": "win"}, headers),
            lambda headers: ask(
                served, "POST", "/pipeline/fill-mask/fills", {"inputs": "a [MASK]"}, headers
            ),
            lambda headers: ask(served, "GET", "/v2/models/stats", None, headers),
        )
        for each in asks:
            refused = await each([])
            expected = "This API is restricted, expecting header 'admin-key'"
            assert (refused.status, refused.json) == (403, {"error": expected})
            assert (await each([("admin-key", "guess")])).status == 403
            assert (await each(key)).status == 200
        assert (await ask(served, "GET", "/v2")).status == 200


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8000", "127.0.0.1:8000", "[::1]:8000", "10.0.0.7", "attendant:8000",
     "attendant.models.svc.cluster.local", "attendant.models.svc", "my.name.example"],
)  # fmt: skip
async def test_names_that_no_page_can_make_its_own_are_taken(host: str) -> None:
    rules = BrowserRules.of(Settings(http_allowed_hosts="My.Name.example, other.example"))
    assert rules.check({b"host": host.encode()}) == ()


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "", "127.0.0.1.nip.io"])
async def test_a_page_whose_own_name_leads_here_is_refused(served: Served, host: str) -> None:
    rules = BrowserRules.of(Settings())
    with pytest.raises(HttpError) as caught:
        rules.check({b"host": host.encode()})
    assert caught.value.status == 403
    sent = f"GET /v1/models HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode()
    assert (await exchange(port_of(served), sent)).startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({"sec-fetch-site": "same-origin", "origin": "http://localhost"}, 200),
        ({"origin": "http://localhost"}, 200),  # of a browser that does not tell the site
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site", "origin": "http://localhost"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://localhost:3000"}, 403),
        ({"origin": "null"}, 403),
    ],
)
async def test_pages_of_other_sites_may_ask_nothing(
    served: Served, headers: dict[str, str], status: int
) -> None:
    answer = await ask(served, "POST", "/api/Classify", SENT, headers.items())
    assert answer.status == status
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    ("headers", "pages"),
    [
        ({"sec-fetch-site": "cross-site"}, "another site"),
        ({"origin": "http://evil.example"}, "'http://evil.example'"),
    ],
)
async def test_the_refusal_of_a_page_says_which_site_and_which_setting(
    served: Served, headers: dict[str, str], pages: str
) -> None:
    answer = await ask(served, "POST", "/api/Classify", SENT, headers.items())
    expected = f"pages of {pages} may not call this server: see --http-allowed-origins"
    assert answer.json["error"] == expected


async def test_a_site_that_is_allowed_is_told_so(tmp_path: Path) -> None:
    origin = [("origin", "https://ui.example"), ("sec-fetch-site", "cross-site")]
    asking = [
        *origin,
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "content-type"),
    ]
    other = [("origin", "https://evil.example"), *asking[1:]]
    async with _guarded(tmp_path, http_allowed_origins="https://UI.example") as served:
        may = await ask(served, "OPTIONS", "/api/Classify", None, asking)
        assert may.status == 204
        assert may.headers["access-control-allow-origin"] == "https://ui.example"
        assert may.headers["access-control-allow-headers"] == "content-type"
        assert (await ask(served, "OPTIONS", "/api/Classify", None, other)).status == 403
        answer = await ask(served, "POST", "/api/Classify", SENT, origin)
        assert answer.headers["access-control-allow-origin"] == "https://ui.example"
        exposed = answer.headers["access-control-expose-headers"].split(", ")
        assert {"x-request-id", "retry-after"} <= {*exposed}
        assert answer.headers["vary"] == "origin"


async def test_every_answer_has_headers_against_guessing_browsers(served: Served) -> None:
    for path in ("/ping", "/nix", "/v1/nix"):
        headers = (await ask(served, "GET", path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["date"].endswith("gmt")


async def test_the_id_of_a_request_is_told_again(served: Served) -> None:
    given = await ask(served, "GET", "/ping", None, [("x-request-id", "mine-7")])
    assert given.headers["x-request-id"] == "mine-7"
    for odd in ("x" * 129, "\x80"):
        made = await ask(served, "GET", "/ping", None, [("x-request-id", odd)])
        assert len(made.headers["x-request-id"]) == 32
