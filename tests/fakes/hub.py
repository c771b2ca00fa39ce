"""A hub on loopback that gives the files of one folder, as huggingface_hub asks for them."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """Answers for `name`; remembers which files were fetched whole."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.fetched: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.answer(self, has_body=True)

            def do_HEAD(self) -> None:
                hub.answer(self, has_body=False)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
                """Nothing is written."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def files(self) -> list[str]:
        paths = (path for path in self.folder.rglob("*") if path.is_file())
        return sorted(str(path.relative_to(self.folder)) for path in paths)

    def answer(self, request: BaseHTTPRequestHandler, *, has_body: bool) -> None:
        path = unquote(request.path).partition("?")[0]
        start = f"/{self.name}/resolve/{COMMIT}/"
        if path.startswith(f"/api/models/{self.name}/tree/"):
            entries = [
                {"type": "file", "path": name, "size": len(content), "oid": _digest(content)}
                for name in self.files()
                for content in [(self.folder / name).read_bytes()]
            ]
            self._send(request, json.dumps(entries).encode(), has_body=has_body)
        elif path.startswith(f"/api/models/{self.name}"):
            files = [
                {"rfilename": name, "size": (self.folder / name).stat().st_size}
                for name in self.files()
            ]
            document = {"id": self.name, "sha": COMMIT, "siblings": files, "private": False}
            self._send(request, json.dumps(document).encode(), has_body=has_body)
        elif path.startswith(start) and path.removeprefix(start) in self.files():
            name = path.removeprefix(start)
            content = (self.folder / name).read_bytes()
            if wanted := request.headers.get("Range"):
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                content = content[int(first) : int(last) + 1 if last else None]
            elif has_body:
                self.fetched.append(name)
            self._send(request, content, has_body=has_body, status=206 if wanted else 200)
        else:
            request.send_response(404)
            request.send_header("X-Error-Code", "EntryNotFound")
            request.end_headers()

    def _send(
        self, request: BaseHTTPRequestHandler, body: bytes, *, has_body: bool, status: int = 200
    ) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        request.send_header("ETag", f'"{_digest(body)}"')
        request.send_header("X-Repo-Commit", COMMIT)
        request.send_header("Content-Type", "application/json")
        request.end_headers()
        if has_body:
            request.wfile.write(body)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def fake_hub(name: str, folder: Path) -> Iterator[FakeHub]:
    hub = FakeHub(name, folder)
    thread = threading.Thread(target=hub.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.server.shutdown()
        hub.server.server_close()
        thread.join()
