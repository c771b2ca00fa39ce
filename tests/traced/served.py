"""Folders of traced families, served by `attendant serve FOLDER ...` and asked over HTTP.

Each folder is as a hub has it: random weights, a tokenizer, and a chat template where the family is
for chats. One server has all of them, and answers them at once. Every greedy token of a completion
and of a chat must be transformers' likeliest behind the same tokens; vectors, scores and classes
must be transformers' own.
"""

import json
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from tests.commands.folders.serving import started
from tests.decoders.comparison import NUM_TOKENS, TEXTS, first_other
from tests.decoders.rows import TRACED, Row, write_folders
from tests.fakes.sessions import PATIENCE_S
from tests.models.checkpoints.test_traced_readers import as_embedder, hub_folder

CLOSE = 1e-5
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHATS = frozenset(
    (
        *("glm4", "cohere2", "qwen3_moe", "gpt_oss", "mixtral", "ernie4_5", "hunyuan_v1_dense"),
        *("granitemoehybrid", "qwen3_vl", "qwen3_5_text", "lfm2"),
    )
)
MESSAGES = [{"role": "user", "content": TEXTS[0]}]
GREEDY = {"max_tokens": NUM_TOKENS, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
CLASSES = "AutoModelForSequenceClassification"
PLAIN = {"tokenizer_class": "PreTrainedTokenizerFast", "mask_token": "[MASK]"}
Post = Callable[[str, dict[str, Any]], Any]
Compare = Callable[[Post, str, Path], str]  # the outcome; "equal" where all is


def of_classes(post: Post, name: str, folder: Path) -> str:
    network, encode = _reference(folder, CLASSES)
    expected = [network(**encode(each)).logits[0].softmax(dim=-1).tolist() for each in TEXTS]
    answers = post(f"/models/{name}", {"inputs": list(TEXTS), "parameters": {"top_k": 9}})
    labels = list(network.config.id2label.values())
    found = [
        [{each["label"]: each["score"] for each in row}[label] for label in labels]
        for row in answers
    ]
    return _difference(found, expected)


def of_pairs(post: Post, name: str, folder: Path) -> str:
    network, encode = _reference(folder, CLASSES)
    query, *documents = MESSAGES[0]["content"], *TEXTS
    expected = [float(network(**encode(query, each)).logits.sigmoid()) for each in documents]
    answer = post("/rerank", {"model": name, "query": query, "documents": documents})
    found = {each["index"]: each["relevance_score"] for each in answer["results"]}
    return _difference([found[place] for place in range(len(documents))], expected)


def of_vectors(post: Post, name: str, folder: Path) -> str:
    network, encode = _reference(folder, "AutoModel")
    expected = [network(**encode(each)).last_hidden_state[0].mean(dim=0).tolist() for each in TEXTS]
    answer = post("/v1/embeddings", {"model": name, "input": list(TEXTS)})
    return _difference([each["embedding"] for each in answer["data"]], expected)


# Networks that read: factory, changes of the configuration, and what is compared.
READERS: dict[str, tuple[str, str, dict[str, Any], Compare]] = {
    "eurobert classes": ("eurobert", CLASSES, {"num_labels": 3}, of_classes),
    "eurobert reranker": ("eurobert", CLASSES, {"num_labels": 1}, of_pairs),
    "ernie embedder": ("ernie", "AutoModel", {}, of_vectors),
}


def compared(
    root: Path, only: Sequence[str] = (), say: Callable[[str], None] = lambda _: None
) -> dict[str, str]:
    """The outcome of each row by its name: equal, or what differs."""
    rows = [row for row in TRACED if not only or row.kind in only]
    networks = write_folders(rows, root)
    for row in rows:
        settings = json.loads((root / row.name / "tokenizer_config.json").read_text())
        settings |= {"chat_template": TEMPLATE} if row.kind in CHATS else {}
        (root / row.name / "tokenizer_config.json").write_text(json.dumps(settings))
    readers = {name: each for name, each in READERS.items() if not only or name in only}
    folders = {name: root / name.replace(" ", "-") for name in readers}
    for name, (model_type, factory, changes, _) in readers.items():
        hub_folder(folders[name], model_type, factory, **changes)
        (folders[name] / "tokenizer_config.json").write_text(json.dumps(PLAIN))
        if factory == "AutoModel":
            as_embedder(folders[name], "mean")
    given = [*(root / row.name for row in rows), *folders.values()]
    outcomes = {}
    with (
        started(*given, "--folder-cache", root / "kept", "--precision", "fp32") as (address, _),
        ThreadPoolExecutor() as pool,
    ):
        post = poster(address)
        say("served")
        written = {row.name: pool.submit(_written, post, row) for row in rows}
        for row in rows:
            outcomes[row.name] = _outcome(networks[row.name], row, written[row.name].result())
            say(f"{row.name}: {outcomes[row.name]}")
        for name, (*_, compare) in readers.items():
            with torch.inference_mode():
                outcomes[name] = compare(post, folders[name].name, folders[name])
            say(f"{name}: {outcomes[name]}")
    return outcomes


def _written(post: Post, row: Row) -> dict[str, list[list[int]]]:
    """Tokens behind each text, asked together, and behind a chat."""
    asked = {"model": row.name, "prompt": list(TEXTS), **GREEDY}
    written = {"completion": _tokens(post("/v1/completions", asked))}
    if row.kind in CHATS:
        asked = {"model": row.name, "messages": MESSAGES, **GREEDY}
        written["chat"] = _tokens(post("/v1/chat/completions", asked))
    return written


def _tokens(answer: dict[str, Any]) -> list[list[int]]:
    return [choice["token_ids"] for choice in answer["choices"]]


def _outcome(network: Any, row: Row, written: dict[str, list[list[int]]]) -> str:
    """What the tokens are beside transformers' likeliest ones."""
    encode = transformers.AutoTokenizer.from_pretrained(network.name_or_path)
    prompts = {"completion": [encode(text).input_ids for text in TEXTS]}
    if row.kind in CHATS:
        text = encode.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
        prompts["chat"] = [encode(text, add_special_tokens=False).input_ids]
    for kind, texts in written.items():
        for prompt, token_ids in zip(prompts[kind], texts, strict=True):
            place = first_other(network, prompt, token_ids)
            if place is not None:
                return f"**{kind} other from token {place} on**"
    return "equal"


def _reference(folder: Path, factory: str) -> tuple[Any, Callable[..., Any]]:
    """Transformers' network of a folder and its tokenizer."""
    encode = transformers.AutoTokenizer.from_pretrained(folder)
    options = {"attn_implementation": "eager"}
    network = getattr(transformers, factory).from_pretrained(folder, **options).eval()

    def encoded(*texts: str) -> Any:
        ids = torch.tensor([encode(*texts).input_ids])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    return network, encoded


def _difference(found: Any, expected: Any) -> str:
    largest = float(np.abs(np.array(expected)).max())
    difference = float(np.abs(np.array(found) - np.array(expected)).max())
    return "equal" if difference <= CLOSE * max(1.0, largest) else f"**off by {difference:.0e}**"


def poster(address: str) -> Post:
    """Posts a body to a path of the server at an address, and gives what it answers."""

    def post(path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(  # noqa: S310 - our own server
            f"{address}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:  # noqa: S310
            return json.loads(answer.read())

    return post
