"""`mteb` by its wrappers of OpenAI's API: its similarity of texts, retrieval and reranking.

The tasks are its own small ones, which are in the package, so that nothing is downloaded. The
figure of similarity is compared with that of vectors that are asked for here.
"""

import json
import os
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

import mteb
import numpy as np
from mteb.mocks.mock_tasks import MockRerankingTask, MockRetrievalTask, MockSTSTask
from mteb.models.openai_wrappers import OpenAIAPIEncodeWrapper, OpenAIAPIRerankWrapper
from scipy.stats import pearsonr

URL = os.environ["ATTENDANT_URL"]
TOLERANCE = 1e-4


def encoder() -> Any:
    return OpenAIAPIEncodeWrapper(URL, "tiny-embed", modalities=["text"], use_chat_template=False)


def scores(model: Any, task: Any) -> dict[str, Any]:
    """The figures of a task, without a cache of earlier ones."""
    result = mteb.evaluate(model, task, cache=None, show_progress_bar=False)
    (of_task,) = result.task_results
    found: dict[str, Any] = of_task.scores["test"][0]
    return found


def vectors(texts: list[str]) -> Any:
    body = json.dumps({"model": "tiny-embed", "input": texts, "truncate_prompt_tokens": -1})
    headers = {"content-type": "application/json"}
    request = Request(f"{URL}/v1/embeddings", body.encode(), headers)  # noqa: S310
    with build_opener(ProxyHandler({})).open(request) as answer:
        return np.array([each["embedding"] for each in json.load(answer)["data"]])


def cosines(first: Any, second: Any) -> Any:
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return (first * second).sum(axis=1) / lengths


def check_similarity() -> None:
    task = MockSTSTask()
    found = scores(encoder(), task)
    task.load_data()  # it was let go of behind the evaluation
    pairs = task.dataset["test"]
    alike = cosines(*(vectors(list(pairs[name])) for name in ("sentence1", "sentence2")))
    expected = pearsonr(pairs["score"], alike)[0]
    assert abs(found["cosine_pearson"] - expected) < TOLERANCE, (found, expected)


def check_ranks() -> None:
    """Each of two queries has one right document of two, so that none is without a rank."""
    reranker = OpenAIAPIRerankWrapper(URL, "tiny-match", modalities=["text"])
    for model, task in (
        (encoder(), MockRetrievalTask()),
        (encoder(), MockRerankingTask()),
        (reranker, MockRerankingTask()),
    ):
        found = scores(model, task)
        assert 0.5 <= found["map_at_1000"] <= 1.0, found


if __name__ == "__main__":
    check_similarity()
    check_ranks()
