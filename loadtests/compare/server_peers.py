"""Who takes part as a server of an embedder: ours, other servers, and the session without one.

A server runs on the float32 graph that the usual exporter writes, and on the very int8 graph that
ours serves; with its own batching, as its guide has it, and with none. To add one, add its
environment here and its start to `servers/launching.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from loadtests.compare.encoder_peers import optimum, quantized
from loadtests.compare.encoders import ENCODERS
from loadtests.compare.environments import Conversion, Environment
from loadtests.compare.peer import Peer
from loadtests.compare.peers import INFINITY, ONNXRUNTIME, OWN, our_export, shown_precision
from loadtests.compare.traffic import EMBED
from loadtests.load.server import flags_of

DRIVER, BARE = "servers.driver", "workers.bare_session"
PRECISIONS = ("int8",)
BATCH_ROWS = 8  # as in most of the servers' guides; 32 measured slower for all on real lengths
PACKAGES = "onnxruntime==1.31.1 tokenizers"
OIP_CLIENT = "tritonclient[grpc]==2.73.0"
QUICK = ("Triton", "MLServer", "LitServe")
ON_ONNXRUNTIME = {  # servers that run a function of ours, by the name that the tables have
    name: Environment(folder, (f"install {packages} {PACKAGES}",), shown=(shown, "onnxruntime"))
    for name, folder, packages, shown in (
        ("Triton", "triton", f"nvidia-pytriton==0.7.0 {OIP_CLIENT}", "nvidia-pytriton"),
        ("MLServer", "mlserver", "mlserver==1.7.1", "mlserver"),
        ("LitServe", "litserve", "litserve==0.2.19", "litserve"),
        ("BentoML", "bentoml", "bentoml==1.4.39", "bentoml"),
        ("Ray Serve", "ray", f"ray[serve,serve-grpc]==2.60.0 {OIP_CLIENT}", "ray"),
    )
}


def our_servers(
    model: str, precisions: Sequence[str], settings: Mapping[str, object]
) -> list[Peer]:
    """Our server over gRPC and HTTP with its defaults, and once more for each of the settings."""
    peers = []
    for precision in precisions or PRECISIONS:
        ways: list[tuple[str, str, list[str]]] = [
            ("gRPC", "attendant", []),
            ("HTTP", "attendant_http", []),
            *(
                (f"{name}={value}", "attendant", flags_of({name: value}))
                for name, value in settings.items()
            ),
        ]
        exported, shown = our_export(model, precision), shown_precision(precision)
        for way, server, flags in ways:
            name, options = f"attendant {precision}, {way}", {"server": server, "flags": flags}
            peers.append(Peer(name, OWN, DRIVER, EMBED, shown, exported, options))
    return peers


def server_peers(model: str) -> list[Peer]:
    """Others, each with batches of `BATCH_ROWS` and of one; and the session alone."""
    graphs = {"float32": optimum(model, ONNXRUNTIME, "onnx"), "int8": our_export(model, "int8")}
    peers = [
        _server(name, environment, precision, model, graph, rows)
        for name, environment in ON_ONNXRUNTIME.items()
        for precision, graph in graphs.items()
        for rows in (BATCH_ROWS, 1)
    ]
    litserve = ON_ONNXRUNTIME["LitServe"]
    bare = Peer("bare session int8", OWN, BARE, EMBED, "int8", graphs["int8"], in_quick=True)
    return [
        bare,
        *peers,
        _server("LitServe its own", litserve, "int8", model, quantized(model), BATCH_ROWS),
        _server("Infinity", INFINITY, "float32", model, model, BATCH_ROWS),
    ]


def _server(
    name: str,
    environment: Environment,
    precision: str,
    model: str,
    opened: Conversion | str,
    rows: int,
) -> Peer:
    encoder = ENCODERS[model]
    options: dict[str, Any] = {"server": environment.name, "rows": rows}
    options |= {"pooling": encoder.pooling, "max_tokens": encoder.max_tokens}
    return Peer(
        f"{name} {precision}" + " unbatched" * (rows == 1),
        environment,
        DRIVER,
        EMBED,
        precision,
        opened,
        options,
        in_quick=rows > 1 and name in QUICK,
        runs_in_ours=True,
    )
