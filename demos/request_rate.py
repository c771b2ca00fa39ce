"""Requests a second that served models answer, in turns, so that all meet the same hour."""

import itertools
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor

from service.client import TextClient

NUM_CLIENTS = 8  # at once, as busy users are
ROUNDS = 3  # counted ones, after one that warms up
TIMEOUT_S = 60.0


def request_rates(
    address: str, models: Sequence[str], texts: Sequence[str], num_requests: int
) -> dict[str, float]:
    """Classifications a second of each model, one text a request: the median of the rounds."""
    rates: dict[str, list[float]] = {model: [] for model in models}
    asked = list(itertools.islice(itertools.cycle(texts), num_requests))
    with (
        TextClient(address, TIMEOUT_S) as client,
        ThreadPoolExecutor(NUM_CLIENTS) as clients,
    ):
        for _ in range(1 + ROUNDS):
            for model in models:
                rates[model].append(_rate(client, clients, model, asked))
    return {model: statistics.median(each[1:]) for model, each in rates.items()}


def _rate(client: TextClient, clients: Executor, model: str, texts: Sequence[str]) -> float:
    began_s = time.perf_counter()
    for _ in clients.map(
        lambda text: client.classify(model, [text], top_k=1, truncate=True), texts
    ):
        pass
    return len(texts) / (time.perf_counter() - began_s)
