"""What servers of embedders are asked: texts, one a request, by clients that wait for answers."""

import random

from loadtests.compare.encoders import texts_of_real_lengths
from loadtests.compare.traffic import EMBED, LEVELS, Make, Traffic
from loadtests.compare.worker import Work
from loadtests.load.lengths import SEED
from loadtests.measure.batching import WORDS

MODELS = ("minilm", "bert-base")
TEXTS = dict(zip(LEVELS, (32, 64, 128), strict=True))  # of a turn, by the number of clients
FIXED_WORDS = 126  # 128 tokens with the two that are special
OF_CAPACITY = 0.7


def fixed_texts(count: int) -> list[str]:
    """Texts of 128 tokens: nothing to pad."""
    generator = random.Random(SEED)
    return [" ".join(generator.choices(WORDS, k=FIXED_WORDS)) for _ in range(count)]


def _closed(model: str, kind: str, clients: int) -> Traffic:
    """Texts in the order in which they are drawn: a server that batches by length sorts itself."""
    make, what = {
        "real": (texts_of_real_lengths, "texts of real lengths"),
        "fixed": (fixed_texts, "texts of 128 tokens"),
    }[kind]

    def works(count: int) -> Make:
        return lambda _: Work([], clients, texts=make(count))

    return Traffic(
        f"{model}-serve-{kind}-{clients}",
        EMBED,
        f"{what}, one a request, {clients} client{'s' * (clients > 1)}",
        works(TEXTS[clients]),
        works(TEXTS[clients] // 2) if clients == max(LEVELS) else None,
    )


def _open(model: str) -> Traffic:
    clients = max(LEVELS)
    texts = texts_of_real_lengths(TEXTS[clients])
    return Traffic(
        f"{model}-serve-open",
        EMBED,
        f"the same, Poisson arrivals at {OF_CAPACITY:.0%} of what {clients} clients got of each",
        lambda _: Work([], clients, texts=texts, of_capacity=OF_CAPACITY),
    )


SERVER_TRAFFIC = {
    model: (
        *(_closed(model, "real", clients) for clients in LEVELS),
        _closed(model, "fixed", max(LEVELS)),
        _open(model),
    )
    for model in MODELS
}
