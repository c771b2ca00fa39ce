"""The clients, their environments, and one run of each against a server.

A client is a script beside this file, run by the interpreter of an environment that has nothing of
this project. It learns the server's address from `ATTENDANT_URL`, a folder with the generator's
tokenizer from `ATTENDANT_TOKENIZER`, log likelihoods that transformers computed from
`ATTENDANT_LIKELIHOODS`, and fails by its exit status.
While it runs, proxies that lead nowhere keep it from any other host.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parents[1] / "build" / "ecosystem"
INSTALL_LIMIT_S = 900.0
LIMIT_S = 240.0  # for one script; some import for half a minute on a busy machine
LAST = 400  # characters of what a failed script wrote
NOWHERE = "http://127.0.0.1:9"
OFFLINE = {
    "HTTP_PROXY": NOWHERE,
    "HTTPS_PROXY": NOWHERE,
    "NO_PROXY": "127.0.0.1,localhost",
    "HF_HUB_OFFLINE": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "TIKTOKEN_CACHE_DIR": "/nonexistent",
}


class NotInstalled(Exception):  # noqa: N818 - a state of the machine, reported as such
    """Why a client has no environment here."""


@dataclass(frozen=True, slots=True)
class Client:
    """A script, and the packages of which the table shows the versions."""

    name: str
    packages: tuple[str, ...]
    checks: str
    is_node: bool = False
    is_java: bool = False  # of the JDK itself: nothing is installed

    @property
    def script(self) -> Path:
        if self.is_java:
            return HERE / "java" / "AskHttp.java"
        return HERE / f"node/ask_{self.name}.mjs" if self.is_node else self._python_script

    @property
    def title(self) -> str:
        language = " for Node" if self.is_node else " of the JDK" if self.is_java else ""
        return f"`{self.packages[0]}`{language}"

    @property
    def _python_script(self) -> Path:
        return HERE / "python" / f"ask_{self.name}.py"

    @property
    def _requirements(self) -> Path:
        if self.is_node:
            return HERE / "node" / "package-lock.json"
        return HERE / "requirements" / f"{self.name}.txt"

    @property
    def _folder(self) -> Path:
        return ENVIRONMENTS / ("node" if self.is_node else self.name)

    @property
    def _stamp(self) -> Path:
        """A copy of the requirements, written after they were installed."""
        return self._folder / "installed"

    @property
    def is_installed(self) -> bool:
        if self.is_java:
            return shutil.which("java") is not None
        return self._stamp.exists() and self._stamp.read_bytes() == self._requirements.read_bytes()

    def install(self) -> None:
        """Make the environment, unless it has these requirements. Raises `NotInstalled`."""
        if self.is_installed:
            return
        if self.is_java:
            raise NotInstalled("there is no java")
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        if self.is_node:
            for name in ("package.json", "package-lock.json"):
                shutil.copy(HERE / "node" / name, self._folder)
            _install(["npm", "ci", "--no-audit", "--no-fund"], self._folder)
        else:
            _install([sys.executable, "-m", "venv", "."], self._folder)
            pip: list[str | Path] = [
                self._folder / "bin" / "python",
                "-m",
                "pip",
                "install",
                "--quiet",
            ]
            _install([*pip, "-r", self._requirements], self._folder)
        self._stamp.write_bytes(self._requirements.read_bytes())

    def versions(self) -> str:
        """The installed versions as the table has them."""
        if self.is_java:
            printed = subprocess.run(["java", "-version"], capture_output=True, check=True)  # noqa: S607
            return str(re.findall(r'version "(.+?)"', printed.stderr.decode())[0])
        if self.is_node:
            lock = json.loads(self._requirements.read_text(encoding="utf-8"))["packages"]
            found = {each: lock[f"node_modules/{each}"]["version"] for each in self.packages}
        else:
            listed = subprocess.run(  # noqa: S603 - its own pip
                [self._folder / "bin" / "python", "-m", "pip", "list", "--format=json"],
                capture_output=True,
                check=True,
            )
            known = {each["name"].lower(): each["version"] for each in json.loads(listed.stdout)}
            found = {each: known[each] for each in self.packages}
        first, *others = found.items()
        return ", ".join([first[1], *(f"{name} {version}" for name, version in others)])

    def run(self, variables: Mapping[str, str]) -> str:
        """Nothing if all that the script checks holds, else the end of what it wrote."""
        if self.is_node:  # a module finds its packages beside itself
            command = ["node", shutil.copy(self.script, self._folder)]
        elif self.is_java:
            command = ["java", str(self.script)]
        else:
            command = [str(self._folder / "bin" / "python"), "-I", str(self.script)]
        try:
            ended = subprocess.run(  # noqa: S603 - our own scripts
                command,
                env={**os.environ, **OFFLINE, **variables},
                cwd=HERE if self.is_java else self._folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"the script did not end in {LIMIT_S:.0f} s"
        if ended.returncode == 0:
            return ""
        return ended.stdout.strip()[-LAST:] or f"exit status {ended.returncode}"


CLIENTS = (
    Client(
        "openai",
        ("openai",),
        "models, completions by text and ids, `logprobs`, streams with `n` and usage, chats whole "
        "and streamed, `parse` of schemas and of functions, raw responses, embeddings in base64 "
        "and numbers, errors by class, 20 asynchronous calls, an abandoned stream; files and "
        "batches from upload to results; `AzureOpenAI`",
    ),
    Client(
        "openai",
        ("openai",),
        "models, completions, chats, streams, embeddings in base64 and numbers, errors by class, "
        "an abandoned stream",
        is_node=True,
    ),
    Client(
        "ai_sdk",
        ("ai", "@ai-sdk/openai-compatible"),
        "completions and chats: `generateText`, `streamText`; `embedMany`",
        is_node=True,
    ),
    Client(
        "anthropic",
        ("anthropic",),
        "messages whole and by the stream's helper, a function that must be called and its result, "
        "counts, errors by class, 10 asynchronous calls",
    ),
    Client(
        "responses",
        (
            *("openai", "openai-agents", "pydantic-ai-slim"),
            *("langchain-openai", "langchain-anthropic"),
        ),
        "the Responses API: answers of `openai` whole, streamed and parsed, and its types; "
        "functions, log probabilities, errors; `Runner` of openai-agents with a form and a tool; "
        "pydantic-ai and LangChain over Responses and Messages, whole and streamed",
    ),
    Client(
        "huggingface",
        ("@huggingface/inference",),
        "at a model's address: `textClassification`, `featureExtraction`, `textGeneration` and its "
        "stream, `chatCompletion` and its stream",
        is_node=True,
    ),
    Client(
        "java",
        ("java.net.http.HttpClient",),
        "in its default version, which asks for HTTP/2: embeddings, tensors, chats whole and "
        "streamed, bodies of a known length and in chunks, an error, 20 asynchronous calls; "
        "answers equal those of HTTP/1.1",
        is_java=True,
    ),
    Client(
        "langchain",
        ("langchain-openai", "openai"),
        "`OpenAI`: invoke, stream, batch, asynchronous, usage; `OpenAIEmbeddings` with "
        "`check_embedding_ctx_length=False`; `ChatOpenAI`: invoke, stream, asynchronous, "
        "`with_structured_output`",
    ),
    Client(
        "llama_index",
        ("llama-index-llms-openai-like", "llama-index-embeddings-openai-like", "openai"),
        "`OpenAILike` with `is_chat_model=False`: complete, stream, asynchronous; "
        "`OpenAILikeEmbedding`",
    ),
    Client(
        "litellm",
        ("litellm", "openai"),
        "`text-completion-openai/` and chats by `openai/`: whole, stream, asynchronous; "
        "embeddings; errors by class",
    ),
    Client(
        "cohere",
        ("cohere", "langchain-cohere"),
        "`ClientV2.rerank` and `Client.rerank`: `top_n`, objects, `max_tokens_per_doc`, errors by "
        "class; `CohereRerank`: texts and documents",
    ),
    Client(
        "tei_rerank",
        ("llama-index-postprocessor-tei-rerank",),
        "`TextEmbeddingInference` at a model's address: nodes by score, long ones cut",
    ),
    Client(
        "instructor",
        ("instructor", "openai"),
        "models of Pydantic in its modes JSON_SCHEMA and TOOLS",
    ),
    Client(
        "tritonclient",
        ("tritonclient",),
        "`http` and `http.aio`: health, metadata, inference in JSON, binary and gzip, an error",
    ),
    Client(
        "kserve",
        ("kserve",),
        "`InferenceRESTClient`: health, inference in JSON and binary, BYTES, an error",
    ),
    Client(
        "lm_eval",
        ("lm_eval",),
        "`local-completions` with `tokenizer_backend=remote`: `generate_until` and "
        "`loglikelihood` of tasks of its own; of a Llama, the log likelihoods of transformers",
    ),
    Client(
        "mteb",
        ("mteb",),
        "`OpenAIAPIEncodeWrapper` with `use_chat_template=False`: similarity, retrieval and "
        "reranking of its own small tasks; `OpenAIAPIRerankWrapper`",
    ),
    Client(
        "guidellm",
        ("guidellm",),
        "`run` over `/v1/completions`: streams with usage and `ignore_eos`; no request fails",
    ),
    Client(
        "aiperf",
        ("aiperf",),
        "`profile` of completions as streams, with the server's counts of tokens, and of "
        "embeddings; no request fails",
    ),
    Client(
        "schemathesis",
        ("schemathesis",),
        "thousands of requests made from `/openapi.json`, valid and not: each is answered as "
        "described, and none by a failure of the server's",
    ),
)


def _install(command: Sequence[str | Path], folder: Path) -> None:
    """Raises `NotInstalled` with the last line that the command wrote."""
    try:
        ended = subprocess.run(  # noqa: S603 - as declared above
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=INSTALL_LIMIT_S,
            check=False,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(str(error)) from error
    if ended.returncode:
        raise NotInstalled((ended.stdout.strip().splitlines() or ["it wrote nothing"])[-1])
