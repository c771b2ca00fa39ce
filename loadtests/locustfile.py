"""Users of text and generative models for Locust, for people who have it (`pip install locust`).

    python -m locust -f loadtests/locustfile.py --headless --users 16 --host 127.0.0.1:8001

Locust's users wait for their answers: a closed loop, in which a slow server gets fewer requests.
For latency under a given rate, see `python -m loadtests.load`. Models are named by the environment:
CLASSIFIER, EMBEDDER and GENERATOR, by default those of `make models`; an empty name: none.
"""

import os
import random
import time
from collections.abc import Callable
from typing import Any

import grpc
import grpc.experimental.gevent as grpc_gevent
from attendant.v1 import generation_pb2, generation_pb2_grpc, text_pb2, text_pb2_grpc
from locust import User, between, task

from loadtests.load.lengths import known_lengths

grpc_gevent.init_gevent()  # calls give way to other users, as everything does in Locust

TIMEOUT_S = 30.0
CLASSIFIER = os.environ.get("CLASSIFIER", "spam")
EMBEDDER = os.environ.get("EMBEDDER", "minilm")
GENERATOR = os.environ.get("GENERATOR", "gpt")


class TextUser(User):  # type: ignore[misc] # Locust has no types here
    """Classifies, embeds and generates, with pauses as people make them."""

    wait_time = between(0.05, 0.2)

    def on_start(self) -> None:
        self._generator = random.Random(id(self))
        options = [("grpc.enable_retries", 0)]
        self._channel = grpc.insecure_channel(self.host or "127.0.0.1:8001", options)
        self._text = text_pb2_grpc.TextServiceStub(self._channel)
        self._generation = generation_pb2_grpc.GenerationServiceStub(self._channel)

    def on_stop(self) -> None:
        self._channel.close()

    @task(8)  # type: ignore[untyped-decorator]
    def classify(self) -> None:
        texts = [known_lengths()["sms"].text(self._generator)]
        request = text_pb2.ClassifyRequest(model=CLASSIFIER, texts=texts, truncate=True)
        self._measured(
            "Classify", CLASSIFIER, lambda: self._text.Classify(request, timeout=TIMEOUT_S)
        )

    @task(4)  # type: ignore[untyped-decorator]
    def embed(self) -> None:
        texts = [known_lengths()["reviews"].text(self._generator)]
        request = text_pb2.EmbedRequest(model=EMBEDDER, texts=texts, truncate=True)
        self._measured("Embed", EMBEDDER, lambda: self._text.Embed(request, timeout=TIMEOUT_S))

    @task(1)  # type: ignore[untyped-decorator]
    def generate(self) -> None:
        params = generation_pb2.SamplingParams(max_tokens=16)
        request = generation_pb2.GenerateRequest(
            model=GENERATOR, text="If the", sampling_params=params
        )

        def whole() -> Any:
            *_, last = self._generation.Generate(request, timeout=TIMEOUT_S)
            return last

        self._measured("Generate", GENERATOR, whole)

    def _measured(self, method: str, model: str, ask: Callable[[], Any]) -> None:
        """Ask, and tell Locust how long it took and what came of it."""
        if not model:
            return
        started_s = time.perf_counter()
        length, error = 0, None
        try:
            length = ask().ByteSize()
        except grpc.RpcError as raised:
            error = raised
        self.environment.events.request.fire(
            request_type=method,
            name=model,
            response_time=(time.perf_counter() - started_s) * 1e3,
            response_length=length,
            exception=error,
        )
