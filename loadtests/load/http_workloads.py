"""The same kinds of traffic over HTTP, as clients of each API send them.

Classification by the typed API, embeddings and completions by OpenAI's, tensors by the Open
Inference Protocol. Bodies are made beforehand. A request is sent once, on a connection that is kept
open; those of one client are as many as its requests in flight.
"""

import asyncio
import itertools
import json
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Any, Self

import aiohttp
import numpy as np

from loadtests.load.workloads import OK, WRONG, Reply, Workload
from service.contract.tensors import DATATYPES, to_raw

TENSORS_LENGTH = "Inference-Header-Content-Length"
READ_LIMIT_BYTES = 2**20  # the longest event


class HttpClient:
    """Connections to one server or several, which get requests in turn."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = itertools.cycle(addresses)
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(connector=connector, read_bufsize=READ_LIMIT_BYTES)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._session.close()

    def send(self, method: str, path: str, deadline_s: float, **options: Any) -> Any:
        """A context that enters with the head of the answer."""
        limit = aiohttp.ClientTimeout(total=deadline_s)
        url = f"http://{next(self._addresses)}{path}"
        return self._session.request(method, url, timeout=limit, **options)


class HttpWorkload(Workload):
    """Requests over HTTP: a path, headers and a body each."""

    headers: dict[str, str] = {"Content-Type": "application/json"}  # noqa: RUF012 - of a class

    @property
    @abstractmethod
    def path(self) -> str: ...

    def _call(self, stubs: Any, request: Any) -> "asyncio.Task[Reply]":
        return asyncio.ensure_future(self._exchange(stubs, request))

    async def _reply(self, call: Any, request: Any) -> Reply:  # noqa: ARG002
        reply: Reply = await call
        return reply

    async def _exchange(self, client: HttpClient, request: Any) -> Reply:
        sending = client.send(
            "POST", self.path, self.traffic.deadline_s, data=request, headers=self.headers
        )
        try:
            async with sending as response:
                if response.status != 200:
                    return Reply(f"HTTP {response.status}")
                return await self._read(response, request)
        except TimeoutError:
            return Reply("DEADLINE_EXCEEDED")
        except aiohttp.ClientConnectionError:
            return Reply("UNAVAILABLE")

    async def _read(self, response: aiohttp.ClientResponse, request: bytes) -> Reply:
        head_bytes = int(response.headers.get(TENSORS_LENGTH, "-1"))
        body = await response.read()
        answer = json.loads(body if head_bytes < 0 else body[:head_bytes])
        return Reply(OK if self._is_whole(answer, request) else WRONG)

    def _is_whole(self, answer: dict[str, Any], request: bytes) -> bool:
        raise NotImplementedError


class ClassifyOverHttp(HttpWorkload):
    """Texts to labels, by the typed API."""

    path = "/api/Classify"

    def _request(self, number: int) -> bytes:  # noqa: ARG002
        texts = [self._text() for _ in range(self.traffic.rows)]
        return _json(model=self.traffic.model, texts=texts, truncate=True)

    def _is_whole(self, answer: dict[str, Any], request: bytes) -> bool:  # noqa: ARG002
        return len(answer["results"]) == self.traffic.rows


class EmbedOverHttp(HttpWorkload):
    """Texts to vectors in base64, by OpenAI's API."""

    path = "/v1/embeddings"

    def _request(self, number: int) -> bytes:  # noqa: ARG002
        texts = [self._text() for _ in range(self.traffic.rows)]
        return _json(
            model=self.traffic.model,
            input=texts,
            encoding_format="base64",
            truncate_prompt_tokens=-1,
        )

    def _is_whole(self, answer: dict[str, Any], request: bytes) -> bool:  # noqa: ARG002
        return len(answer["data"]) == self.traffic.rows


class GenerateOverHttp(HttpWorkload):
    """A prompt to a stream of events, by OpenAI's completions."""

    path = "/v1/completions"

    def _request(self, number: int) -> bytes:
        return _json(
            model=self.traffic.model,
            prompt=self._text(),
            max_tokens=self._generator.randint(*self.traffic.max_tokens),
            ignore_eos=True,
            seed=number,
            stream=True,
            stream_options={"include_usage": True},
            return_token_ids=True,
        )

    async def _read(self, response: aiohttp.ClientResponse, request: bytes) -> Reply:  # noqa: ARG002
        """Whole where the reason of the end is the length, and every token came."""
        now_s = asyncio.get_running_loop().time
        chunks: list[tuple[float, int]] = []
        reason, num_reported = "", -1
        async for event in _events(response):
            if event == b"[DONE]":
                num_tokens = sum(count for _, count in chunks)
                is_whole = reason == "length" and num_tokens == num_reported
                return Reply(OK if is_whole else WRONG, chunks)
            values = json.loads(event)
            if "error" in values:
                return Reply(str(values["error"].get("code") or "ERROR"), chunks)
            for choice in values["choices"]:
                reason = choice["finish_reason"] or reason
                if choice["token_ids"]:
                    chunks.append((now_s(), len(choice["token_ids"])))
            num_reported = (values.get("usage") or {}).get("completion_tokens", num_reported)
            if self.traffic.read_pause_ms:
                await asyncio.sleep(self.traffic.read_pause_ms / 1e3)
        return Reply("CUT OFF", chunks)


class InferOverHttp(HttpWorkload):
    """Zeros for every input of a tensor model, binary or in JSON, and the request's id back."""

    @property
    def path(self) -> str:
        return f"/v2/models/{self.traffic.model}/infer"

    async def prepare(self, stubs: Any) -> None:
        path = f"/v2/models/{self.traffic.model}"
        async with stubs.send("GET", path, 10.0) as response:
            response.raise_for_status()
            self._inputs = (await response.json())["inputs"]
        await super().prepare(stubs)

    def _request(self, number: int) -> Any:
        is_binary = self.traffic.tensors == "binary"
        inputs, raws = [], []
        for tensor in self._inputs:
            first, *others = tensor["shape"]
            sizes = [size if size > 0 else self.traffic.size for size in others]
            shape = [self.traffic.rows if first < 0 else first, *sizes]
            datatype = tensor["datatype"]
            zeros = np.full(shape, b"" if datatype == "BYTES" else 0)
            raw = to_raw(zeros.astype(DATATYPES[datatype].dtype))
            sent = {"name": tensor["name"], "datatype": datatype, "shape": shape}
            if is_binary:
                raws.append(raw)
                sent["parameters"] = {"binary_data_size": len(raw)}
            else:
                sent["data"] = (
                    np.full(shape, "").tolist() if datatype == "BYTES" else zeros.tolist()
                )
            inputs.append(sent)
        number_text = f"{number:03}"  # of one length, as the head has to be
        head = _json(id=number_text, parameters={"binary_data_output": is_binary}, inputs=inputs)
        if is_binary:
            self.headers = {TENSORS_LENGTH: str(len(head))}
        return b"".join([head, *raws])

    def _is_whole(self, answer: dict[str, Any], request: bytes) -> bool:
        return request.startswith(_json(id=answer["id"])[:-1])


HTTP_KINDS: dict[str, type[Workload]] = {
    "classify": ClassifyOverHttp,
    "embed": EmbedOverHttp,
    "generate": GenerateOverHttp,
    "infer": InferOverHttp,
}


def _json(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The data of each event; comments, which say that the stream lives, are left out."""
    async for line in response.content:
        if line.startswith(b"data: "):
            yield line.removeprefix(b"data: ").rstrip()
