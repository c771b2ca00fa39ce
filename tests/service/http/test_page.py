"""The playground's files over HTTP: caching, compression, safety, and what may be asked by whom."""

import gzip
import re
from importlib.resources import files
from pathlib import Path

import pytest

from tests.fakes.every_task import every_task
from tests.fakes.http import Answer, ask, port_of
from tests.fakes.serving import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")
PLAYGROUND = Path(str(files("playground")))
SCRIPTS = {
    path.relative_to(PLAYGROUND).as_posix(): path.read_bytes() for path in PLAYGROUND.rglob("*.js")
}


async def page_of(served: Served, *headers: tuple[str, str]) -> Answer:
    return await ask(served, "GET", "/", headers=list(headers))


async def test_the_page_is_whole_and_strict(served: Served) -> None:
    page = await page_of(served)
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = page.headers["content-security-policy"]
    for part in ("default-src 'none'", "require-trusted-types-for 'script'", "frame-ancestors"):
        assert part in policy
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert served.app.page_in_words == f"; the page is http://127.0.0.1:{port_of(served)}/"
    text = page.body.decode()
    assert "DIGEST" not in text
    assert not re.search(r"<script>|style=|https?://", text)


async def test_every_file_is_there_and_kept_by_the_browser(served: Served) -> None:
    """Below the digest of all files for good; below another, as of another version, for once."""
    text = (await page_of(served)).body.decode()
    base = re.findall(r"[.]/(playground/\w+/)app.js", text)[0]
    for name, content in SCRIPTS.items():
        answer = await ask(served, "GET", f"/{base}{name}")
        assert answer.status == 200, name
        assert answer.body == content
        assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
        assert answer.headers["cache-control"].endswith("immutable")
    other = await ask(served, "GET", "/playground/before/app.js")
    assert (other.status, other.headers["cache-control"]) == (200, "no-cache")


async def test_a_file_is_sent_compressed_and_only_once(served: Served) -> None:
    plain = await page_of(served)
    zipped = await page_of(served, ("accept-encoding", "gzip, br"))
    assert zipped.headers["content-encoding"] == "gzip"
    assert gzip.decompress(zipped.body) == plain.body
    tag = plain.headers["etag"]
    assert plain.headers["cache-control"] == "no-cache"
    for known in (tag, f'"other", W/{tag}', "*"):
        again = await page_of(served, ("if-none-match", known))
        assert (again.status, again.body) == (304, b"")
        assert again.headers["etag"] == tag
    assert (await page_of(served, ("if-none-match", '"other"'))).status == 200
    head = await ask(served, "HEAD", "/")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(plain.body))


async def test_a_link_of_another_site_opens_the_page_and_nothing_else(served: Served) -> None:
    visit = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")]
    assert (await page_of(served, *visit)).status == 200
    assert (await ask(served, "GET", "/v2", headers=visit)).status == 403
    assert (await ask(served, "POST", "/", headers=visit)).status == 403
    assert (await page_of(served, visit[0], ("sec-fetch-mode", "cors"))).status == 403
    framed = await page_of(served, ("origin", "https://other.example"), *visit)
    assert framed.status == 403


async def test_the_page_can_be_turned_off(tmp_path: Path) -> None:
    async with every_task(tmp_path, http_port=0, playground=False) as served:
        assert (await page_of(served)).status == 404
        assert served.app.page_in_words == ""
        assert (await ask(served, "GET", "/playground/x/app.js")).status == 404
        assert (await ask(served, "GET", "/v2")).status == 200
