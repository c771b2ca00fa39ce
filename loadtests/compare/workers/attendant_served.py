"""Ours through gRPC: `attendant serve`, with requests of 32 texts to embed or one to score all."""

import atexit
import time
from pathlib import Path

import grpc
from attendant.v1 import text_pb2, text_pb2_grpc

from loadtests.compare.worker import Answer, Run, Setup, Work, serve
from loadtests.load.server import flags_of, start_server

MODEL = "model"  # its name in the repository that it was exported to
REQUEST_TEXTS = 32  # all requests are in flight at once
LONGEST_BYTES = ("grpc.max_receive_message_length", -1)


def open_engine(setup: Setup) -> Run:
    flags = ["--max-queue-s", "0", *flags_of(setup.options["settings"])]
    server = start_server(Path(setup.model), flags)
    atexit.register(server.stop)
    channel = grpc.insecure_channel(server.address, options=[LONGEST_BYTES])
    stub = text_pb2_grpc.TextServiceStub(channel)

    def embed(work: Work) -> list[list[float]]:
        calls = []
        for start in range(0, len(work.texts), REQUEST_TEXTS):
            texts = work.texts[start : start + REQUEST_TEXTS]
            request = text_pb2.EmbedRequest(model=MODEL, texts=texts, truncate=True)
            calls.append(stub.Embed.future(request))
        return [list(each.values) for call in calls for each in call.result().results]

    def score(work: Work) -> list[list[float]]:
        queries = [work.query] * len(work.texts)
        request = text_pb2.ScorePairsRequest(
            model=MODEL, texts=queries, text_pairs=work.texts, truncate=True
        )
        return [[each.score] for each in stub.ScorePairs(request).results]

    def run(work: Work) -> Answer:
        started_s = time.perf_counter()
        values = score(work) if work.query else embed(work)
        return Answer(time.perf_counter() - started_s, values)

    return run


if __name__ == "__main__":
    serve(open_engine)
