"""llama.cpp through its own server, the only one of its programs that batches continuously.

A request is one HTTP call on this machine, its answer whole: a millisecond or so per request, not
per token.
"""

import http.client
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from loadtests.compare.worker import Answer, Run, Setup, Work, serve

HOST, PORT = "127.0.0.1", 38_560
SLOTS, SLOT_TOKENS = 32, 256  # sequences at once, and prompt and output of each
READY_LIMIT_S, REQUEST_LIMIT_S = 120.0, 600.0


def open_engine(setup: Setup) -> Run:
    program = Path(setup.python).parents[1] / "build" / "bin" / "llama-server"
    cache, threads = setup.options["cache"], str(setup.threads)
    command = [str(program), "--model", f"{setup.model}/model.gguf", "--offline", "--no-webui"]
    command += ["--host", HOST, "--port", str(PORT), "--threads", threads]
    command += ["--threads-batch", threads, "--parallel", str(SLOTS), "--cont-batching"]
    command += ["--ctx-size", str(SLOTS * SLOT_TOKENS), "--no-cache-prompt", "--cache-ram", "0"]
    command += ["--cache-type-k", cache, "--cache-type-v", cache]
    try:
        _start(command)
    except RuntimeError as error:
        # Its code for AMX crashes on some processors; this leaves out AMX and rearranged weights.
        sys.stderr.write(f"{error}; once more with --no-repack\n")
        _start([*command, "--no-repack"])
    return _run


def _start(command: list[str]) -> None:
    """Return when the server is ready. Raises `RuntimeError`."""
    _wait(subprocess.Popen(command, stdin=subprocess.DEVNULL))  # noqa: S603


def _wait(process: "subprocess.Popen[bytes]") -> None:
    ends_s = time.monotonic() + READY_LIMIT_S
    while time.monotonic() < ends_s:
        if process.poll() is not None:
            raise RuntimeError(f"llama-server ended with {process.returncode}")
        try:
            if _call("GET", "/health")[0] == http.HTTPStatus.OK:
                return
        except OSError:
            pass
        time.sleep(0.2)
    raise RuntimeError(f"llama-server was not ready within {READY_LIMIT_S:g} s")


def _call(method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(HOST, PORT, timeout=REQUEST_LIMIT_S)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _generate(prompt: list[int], num_tokens: int) -> tuple[list[int], float]:
    """New tokens, and the seconds to the first of them, as the server counts them."""
    body = {
        "prompt": prompt,
        "n_predict": num_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "samplers": ["temperature"],
        "return_tokens": True,
        "cache_prompt": False,
    }
    status, answer = _call("POST", "/completion", json.dumps(body))
    if status != http.HTTPStatus.OK:
        raise RuntimeError(f"{status}: {answer[:200]!r}")
    found = json.loads(answer)
    return found["tokens"], found["timings"]["prompt_ms"] / 1e3


def _run(work: Work) -> Answer:
    with ThreadPoolExecutor(work.concurrency) as clients:
        started_s = time.perf_counter()
        outputs = list(clients.map(_generate, work.rows, work.num_tokens))
        seconds = time.perf_counter() - started_s
    tokens, first_s = zip(*outputs, strict=True)
    return Answer(seconds, tokens, first_s=first_s)


if __name__ == "__main__":
    serve(open_engine)
