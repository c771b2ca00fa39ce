"""Every server, declared as `loadtests/compare/peers.py` declares engines.

Each runs on the float32 graph that the usual exporter writes, which is what people have unless they
do something about it, and on the very int8 graph that ours serves; with its own batching, as its
guide has it, and with none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from loadtests.compare.environments import Conversion, Environment
from loadtests.compare.models import BERT, random_row
from loadtests.compare.peer import Peer
from loadtests.compare.peers import ORT_BERT, ORT_BERT_INT8, TORCH
from loadtests.compare.peers import ours as our_engines
from loadtests.compare.traffic import CLASSIFY, SEED, Sizes, Traffic, fixed_rows
from loadtests.compare.worker import Work

OUR_PRECISIONS = ("int8",)
CLIENTS = (1, 8, 32)
OF_CAPACITY = 0.7
DRIVER = "servers.driver"
BATCH_ROWS = 8  # as in most of their guides; 32 measured slower for all on real lengths
ONNXRUNTIME = "onnxruntime==1.31.1 tokenizers"
OIP_CLIENT = "tritonclient[grpc]==2.73.0"

TRITON = Environment(
    "triton",
    (f"install nvidia-pytriton==0.7.0 {OIP_CLIENT} {ONNXRUNTIME}",),
    shown=("nvidia-pytriton", "onnxruntime"),
)
MLSERVER = Environment(
    "mlserver", (f"install mlserver==1.7.1 {ONNXRUNTIME}",), shown=("mlserver", "onnxruntime")
)
LITSERVE = Environment(
    "litserve", (f"install litserve==0.2.19 {ONNXRUNTIME}",), shown=("litserve", "onnxruntime")
)
BENTOML = Environment(
    "bentoml", (f"install bentoml==1.4.39 {ONNXRUNTIME}",), shown=("bentoml", "onnxruntime")
)
RAY = Environment(
    "ray",
    (f"install ray[serve,serve-grpc]==2.60.0 {OIP_CLIENT} {ONNXRUNTIME}",),
    shown=("ray", "onnxruntime"),
)
INFINITY = Environment(
    "infinity",
    (f"install {TORCH} infinity-emb[torch,server]==0.0.78 transformers<5",),
    shown=("infinity_emb", "torch", "transformers"),
)
ON_ONNXRUNTIME = {
    "Triton": TRITON,
    "MLServer": MLSERVER,
    "LitServe": LITSERVE,
    "BentoML": BENTOML,
    "Ray Serve": RAY,
}
QUICK = ("Triton", "MLServer", "LitServe")


def ours(task: str, precisions: Sequence[str] | None, settings: Mapping[str, object]) -> list[Peer]:
    """Our server, over what `attendant export` wrote at these precisions."""
    if task != CLASSIFY:
        return []
    engines = our_engines(task, precisions or OUR_PRECISIONS, settings)
    options = {"server": "attendant"}
    return [
        replace(each, name=f"served {each.name}", worker=DRIVER, options=options)
        for each in engines
    ]


def _server(
    name: str,
    environment: Environment,
    precision: str,
    model: Conversion | str,
    rows: int,
    *,
    in_quick: bool = False,
) -> Peer:
    """With batches of so many rows; 1 is no batching."""
    options = {"server": environment.name, "rows": rows}
    if rows == 1:
        name = f"{name} unbatched"
    return Peer(
        name, environment, DRIVER, CLASSIFY, precision, model, options, in_quick, runs_in_ours=True
    )


(OUR_INT8,) = (each.model for each in our_engines(CLASSIFY, ["int8"], {}))
SERVERS: tuple[Peer, ...] = (
    *(
        _server(
            f"{name} {precision}",
            environment,
            precision,
            model,
            rows,
            in_quick=rows > 1 and name in QUICK,
        )
        for name, environment in ON_ONNXRUNTIME.items()
        for precision, model in (("float32", ORT_BERT), ("int8", OUR_INT8))
        for rows in (BATCH_ROWS, 1)
    ),
    _server("LitServe its own int8", LITSERVE, "int8", ORT_BERT_INT8, BATCH_ROWS),
    _server("Infinity float32", INFINITY, "float32", BERT, BATCH_ROWS),
)


def _fixed(count: int, concurrency: int) -> Work:
    return replace(fixed_rows(count), concurrency=concurrency)


def _real(sizes: Sequence[int], concurrency: int, of_capacity: float = 0.0) -> Work:
    """In the order in which they are drawn: whoever batches by length does it itself."""
    generator = np.random.default_rng(SEED)
    rows = [random_row(generator, size) for size in sizes]
    return Work(rows, concurrency, of_capacity=of_capacity)


def _closed(kind: str, what: str, concurrency: int, count: int) -> Traffic:
    def made(sizes: Sizes, count: int) -> Work:
        if kind == "fixed":
            return _fixed(count, concurrency)
        return _real(sizes(count), concurrency)

    return Traffic(
        f"serve-{kind}-{concurrency}",
        CLASSIFY,
        f"{what}, one a request, {concurrency} client{'s' * (concurrency > 1)}",
        lambda sizes: made(sizes, count),
        (lambda sizes: made(sizes, count // 2)) if concurrency == max(CLIENTS) else None,
    )


SERVER_TRAFFIC: tuple[Traffic, ...] = (
    *(
        _closed("fixed", "rows of 128 tokens", clients, count)
        for clients, count in zip(CLIENTS, (16, 32, 64), strict=True)
    ),
    *(
        _closed("real", "reviews, SMS and passages", clients, count)
        for clients, count in zip(CLIENTS, (32, 64, 128), strict=True)
    ),
    Traffic(
        "serve-real-open",
        CLASSIFY,
        f"the same, Poisson arrivals at {OF_CAPACITY:.0%} of what 32 clients showed of each",
        lambda sizes: _real(sizes(128), max(CLIENTS), OF_CAPACITY),
    ),
)
