"""A server with a made-up model of every task."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from attendant.v1 import features_pb2, generation_pb2, reading_pb2, text_pb2, vision_pb2
from google.protobuf.message import Message

from service.contract.tensors import Arrays, Signature
from tests.fakes.serving import Served, default_sessions, serving, write_models
from tests.fakes.sessions import (
    PAD_ID,
    SPECIAL,
    FakeSession,
    FakeSessions,
    embedder_manifest,
    spec,
    text_session,
    write_model,
    write_tokenizer,
)
from tests.fakes.tasks import (
    GREY,
    IMAGE_MANIFEST,
    SEEN_MANIFEST,
    TAGS,
    WHITE,
    features_manifest,
    file_of,
    hidden_states_session,
    image_attention_session,
    image_session,
    mask_session,
    packed_session,
    reading_manifest,
    span_logits,
    tag_logits,
    write_fill_mask,
)

MAX_TEXTS, MAX_CHARACTERS = 5, 1_000
LONG = "prize " * 30  # tokens, where the models take 12 or 20
SERVICES: dict[str, tuple[str, Any]] = {
    method.name: (f"/{service.full_name}/{method.name}", file)
    for file in (text_pb2, reading_pb2, features_pb2, vision_pb2, generation_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
SETTINGS = {"max_texts": MAX_TEXTS, "max_text_characters": MAX_CHARACTERS, "max_image_bytes": 4_096}

TEXTS = ["win a prize", "sorry the cash now later"]
ASK = {"model": "asks", "question": "win"}
GENERATED = {
    "model": "tale",
    "text": "once",
    "sampling_params": {"temperature": 0.0, "max_tokens": 4},
}
# Model, and what a valid call needs besides, by method.
VALID: dict[str, dict[str, Any]] = {
    "Classify": {"model": "spam", "texts": TEXTS},
    "Embed": {"model": "mini", "texts": TEXTS},
    "ScorePairs": {"model": "match", "texts": ["win"] * 2, "text_pairs": ["prize", "lunch now"]},
    "Rerank": {"model": "match", "query": "win", "documents": ["lunch now", "prize"]},
    "Tokenize": {"model": "spam", "texts": TEXTS},
    "FillMask": {"model": "fills", "texts": ["win the [MASK]", "[MASK] lunch [MASK]"]},
    "ClassifyTokens": {"model": "tags", "texts": ["the win prize", "\U0001f600 win, now a prize"]},
    "Answer": {**ASK, "context": "\U0001f600 sorry, free lunch cash now"},
    "ExtractFeatures": {"model": "deep", "texts": TEXTS},
    "Similarity": {"model": "mini", "texts": TEXTS},
    "Attend": {"model": "looks", "text": "win prize"},
    "ClassifyImage": {"model": "light", "images": [WHITE, file_of(GREY)]},
    "AttendImage": {"model": "seen", "image": WHITE},
    "GenerateUnary": GENERATED,
}


def attention_session(inputs: Sequence[str]) -> FakeSession:
    """Two layers of two heads; each query's weights depend on its token and those it looks at."""
    tensors = tuple(spec(name, "INT64", -1, -1) for name in inputs)

    def compute(arrays: Arrays) -> dict[str, np.ndarray]:
        keys = arrays["input_ids"]
        queries = arrays.get("target_ids", keys)
        heads = np.arange(1, 5, dtype=np.float32).reshape(1, 2, 2, 1, 1)
        weights = (queries[:, None, None, :, None] + heads * keys[:, None, None, None, :]) + 1.0
        return {"attentions": (weights / weights.sum(axis=-1, keepdims=True)).astype(np.float32)}

    return FakeSession(Signature(tensors, (spec("attentions", "FP32", -1, 2, 2, -1, -1),)), compute)


def writing_session() -> FakeSession:
    """Writes a source backwards, then the end; what is left of six symbols is padding."""
    tensors = (spec("source", "INT64", -1, -1),), (spec("target", "INT64", -1, 6),)

    def compute(arrays: Arrays) -> dict[str, np.ndarray]:
        rows = [[*row[row != PAD_ID][::-1], END][:6] for row in arrays["source"]]
        return {"target": np.array([row + [PAD_ID] * (6 - len(row)) for row in rows], np.int64)}

    return FakeSession(Signature(*tensors), compute)


END = 3  # of what `writes` writes: [SEP]


def write_every_model(repository: Path) -> None:
    """One or more of each task."""
    write_models(repository)
    write_fill_mask(repository)
    write_model(repository, "light", IMAGE_MANIFEST)
    write_model(repository, "seen", SEEN_MANIFEST)
    write_model(repository, "tags", reading_manifest("token-classification", labels=TAGS))
    write_model(repository, "asks", reading_manifest("question-answering"))
    write_model(repository, "match", reading_manifest("pair-scoring"))
    write_model(repository, "deep", features_manifest())
    attending = {"num_layers": 2, "num_heads": 2}
    write_model(repository, "looks", reading_manifest("attention", **attending))
    write_model(
        repository, "crossed", reading_manifest("attention", network="encoder-decoder", **attending)
    )
    write_model(repository, "words", embedder_manifest(network="words"))
    recurrent = {"network": "recurrent", "max_source_tokens": 8, "eos_token_ids": (END,)}
    write_model(repository, "writes", reading_manifest("text-generation", **recurrent))
    (repository / "writes" / "config.pbtxt").write_text("max_batch_size: 4")
    write_tokenizer(repository / "writes" / "1" / "tokenizer.json")
    for name in ("writes", "words"):
        _bare(repository / name / "1" / "tokenizer.json")


def _bare(path: Path) -> None:
    """A tokenizer of words alone: nothing before or after them."""
    fields = json.loads(path.read_text())
    fields["post_processor"] = None
    fields["added_tokens"] = [
        {
            "id": i,
            "content": name,
            "special": True,
            **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
        }
        for i, name in enumerate(SPECIAL)
    ]
    path.write_text(json.dumps(fields))


def every_session() -> FakeSessions:
    return FakeSessions(
        **default_sessions()._makers,
        fills=mask_session,
        tags=lambda: packed_session(tag_logits),
        asks=lambda: packed_session(span_logits),
        match=lambda: text_session("logits", 1),
        deep=hidden_states_session,
        looks=lambda: attention_session(("input_ids", "attention_mask")),
        crossed=lambda: attention_session(("input_ids", "attention_mask", "target_ids")),
        words=lambda: text_session("embedding", 4),
        writes=writing_session,
        light=image_session,
        seen=image_attention_session,
    )


@asynccontextmanager
async def every_task(repository: Path, **settings: Any) -> AsyncIterator[Served]:
    """All of them served."""
    write_every_model(repository)
    async with serving(repository, every_session(), **(SETTINGS | settings)) as served:
        yield served


def message(method: str, **fields: Any) -> Message:
    """The request message of a method of the typed API."""
    _, file = SERVICES[method]
    service = next(
        s for s in file.DESCRIPTOR.services_by_name.values() if method in s.methods_by_name
    )
    kind: Any = getattr(file, service.methods_by_name[method].input_type.name)
    found: Message = kind(**fields)
    return found


def response_type(path: str) -> Any:
    """The class of what the method at a path answers."""
    _, _, name = path.split("/")
    _, file = SERVICES[name]
    service = next(
        s for s in file.DESCRIPTOR.services_by_name.values() if name in s.methods_by_name
    )
    return getattr(file, service.methods_by_name[name].output_type.name)


def call(served: Served, method: str, *, timeout: float | None = None, **fields: Any) -> Any:
    """A method of the typed API asked its valid request, but for these fields."""
    path, _ = SERVICES[method]
    stub: Any = served.channel.unary_unary(
        path,
        request_serializer=lambda request: request.SerializeToString(),
        response_deserializer=response_type(path).FromString,
    )
    return stub(message(method, **valid(method, **fields)), timeout=timeout)


def valid(method: str, **changes: Any) -> dict[str, Any]:
    """The fields of a method's valid request, but for these; other texts have empty second ones."""
    fields = VALID[method] | changes
    if "text_pairs" in VALID[method] and "texts" in changes:
        fields["text_pairs"] = [""] * len(changes["texts"])
    return fields
