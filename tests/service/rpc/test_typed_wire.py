"""What every method of the typed API, and `ModelInfer` of every task, sends: kept and compared.

`typed_wire.json` holds each answer as JSON, floats rounded, since processors differ in the last
bits of an exponential; `python -m tests.service.rpc.test_typed_wire FILE` writes every byte
instead, so that two versions of the server can be compared on one machine. After a change that is
meant to change answers: `python -m tests.service.rpc.test_typed_wire`.
"""

import asyncio
import base64
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from tritonclient.grpc import service_pb2

from tests.fakes.every_task import (
    LONG,
    SERVICES,
    TEXTS,
    VALID,
    every_task,
    message,
    response_type,
    valid,
)
from tests.fakes.serving import Served, add_strings, eventually, within_patience
from tests.fakes.tasks import WHITE

DIGITS = 4  # of a float in the file
GOLDEN = Path(__file__).parent / "typed_wire.json"
PATH = "/inference.GRPCInferenceService/ModelInfer"
WRITTEN = {"model": "writes", "text": "win prize free"}
OF_TEXTS = [method for method, fields in VALID.items() if "texts" in fields]
VARIED: list[tuple[str, dict[str, Any]]] = [
    ("ListModels", {}),
    ("Classify", {"top_k": 2}),
    ("Classify", {"all_scores": True}),
    ("Classify", {"texts": ["win"], "text_pairs": ["now"]}),
    ("Classify", {"texts": ["win", "a"], "text_pairs": ["now"]}),
    ("Classify", {"top_k": 4}),
    ("Classify", {"top_k": 1, "all_scores": True}),
    ("Embed", {"model": "words"}),
    ("Embed", {"model": "words", "texts": ["win", "house of cards"]}),
    ("Embed", {"model": "words", "texts": [""]}),
    ("ScorePairs", {"text_pairs": ["now"]}),
    ("ScorePairs", {"raw_scores": True}),
    ("Rerank", {"top_n": 1, "raw_scores": True}),
    ("Rerank", {"documents": ["a", LONG]}),
    ("Rerank", {"documents": ["a", LONG], "truncate": True}),
    ("Rerank", {"documents": ["a", LONG], "max_document_tokens": 2, "truncate": True}),
    ("Rerank", {"query": LONG}),
    ("Rerank", {"documents": []}),
    ("Rerank", {"documents": ["a"] * 6}),
    ("Tokenize", {"model": "tale"}),
    ("Tokenize", {"model": "writes"}),
    ("Tokenize", {"texts": [LONG]}),
    ("Tokenize", {"omit_special_tokens": True}),
    ("Detokenize", {"model": "spam", "token_ids": [2, 4, 14, 5, 3]}),
    ("Detokenize", {"model": "tale", "token_ids": [119, 105, 110]}),
    ("Detokenize", {"model": "spam", "token_ids": [4, 99]}),
    ("Detokenize", {"model": "simple"}),
    ("FillMask", {"top_k": 2}),
    ("FillMask", {"candidates": ["cash", "home", "cash"]}),
    ("FillMask", {"candidates": ["cattle"]}),
    ("FillMask", {"candidates": ["cash"], "top_k": 2}),
    ("FillMask", {"top_k": 99}),
    ("FillMask", {"texts": ["no mask"]}),
    ("FillMask", {"texts": ["[MASK] " * 17]}),
    ("FillMask", {"texts": ["[MASK] " * 16] * 5}),
    ("FillMask", {"texts": ["now " * 20 + "[MASK]"], "truncate": True}),
    ("Answer", {"context": "lunch now"}),
    ("Answer", {"context": "lunch now", "must_answer": True}),
    ("Answer", {"context": "free lunch cash and free cash", "top_k": 2}),
    ("Answer", {"context": "now " * 40 + "free cash " + "later " * 20}),
    ("Answer", {"context": "free lunch cash", "max_answer_tokens": 2}),
    ("Answer", {"max_answer_tokens": 21}),
    ("Answer", {"top_k": 21}),
    ("Answer", {"question": ""}),
    ("Answer", {"context": "x" * 1_000}),
    ("ExtractFeatures", {"layers": 5, "pooling": 2}),
    ("ExtractFeatures", {"layers": 1, "pooling": 3}),
    ("ExtractFeatures", {"layers": 7, "weights": [0.5, 0, 0.25, -1, 2]}),
    ("ExtractFeatures", {"layers": 99}),
    ("ExtractFeatures", {"pooling": 9}),
    ("ExtractFeatures", {"weights": [1.0]}),
    ("Similarity", {"others": ["now"], "measure": 2}),
    ("Similarity", {"measure": 3}),
    ("Similarity", {"measure": 4}),
    ("Similarity", {"measure": 6}),
    ("Embed", {"prompt": "now ", "encodings": [5, 1]}),
    ("Embed", {"prompt_name": "query"}),
    ("Embed", {"dimensions": 2}),
    ("Similarity", {"others": ["a"] * 4}),
    ("Similarity", {"others": [LONG]}),
    ("Attend", {"layers": [1], "heads": [0]}),
    ("Attend", {"model": "crossed", "target": "cash now later"}),
    ("Attend", {"model": "crossed"}),
    ("Attend", {"target": "cash"}),
    ("Attend", {"layers": [2]}),
    ("Attend", {"heads": [0, 0]}),
    ("Attend", {"heads": [0, 1, 0]}),
    ("Attend", {"text": LONG}),
    ("ClassifyImage", {"top_k": 2}),
    ("ClassifyImage", {"all_scores": True}),
    ("ClassifyImage", {"top_k": 4}),
    ("ClassifyImage", {"images": []}),
    ("ClassifyImage", {"images": [WHITE] * 6}),
    ("ClassifyImage", {"images": [b"a text"]}),
    ("ClassifyImage", {"model": "spam"}),
    ("GenerateUnary", WRITTEN),
    ("GenerateUnary", {**WRITTEN, "text": "win unheard"}),
    ("GenerateUnary", {**WRITTEN, "sampling_params": {"top_k": 3}}),
    ("GenerateUnary", {**WRITTEN, "sampling_params": {"max_tokens": 2}}),
    ("GenerateUnary", {"text": "x" * 1_001}),
    ("GenerateUnary", {"sampling_params": {"temperature": -1.0}}),
    ("GenerateUnary", {"model": "spam"}),
    ("GenerateUnary", {"model": "simple"}),
]
# Tensors of each task's model, and request parameters.
INFERRED: dict[str, tuple[str, dict[str, list[str]], dict[str, Any]]] = {
    "classification": ("spam", {"text": TEXTS}, {}),
    "a pair": ("spam", {"text": ["win"], "text_pair": ["now"]}, {}),
    "embedding": ("mini", {"text": TEXTS}, {}),
    "a pair scored": ("match", {"text": ["win"], "text_pair": ["now"]}, {}),
    "no second text": ("match", {"text": ["win"]}, {}),
    "too long": ("mini", {"text": [LONG]}, {}),
    "truncated": ("mini", {"text": [LONG]}, {"truncate": True}),
    "words": ("words", {"text": TEXTS}, {}),
    "unknown words": ("words", {"text": ["house of cards"]}, {}),
    "masks": ("fills", {"text": VALID["FillMask"]["texts"]}, {}),
    "two fills": ("fills", {"text": ["win the [MASK]"]}, {"top_k": 2}),
    "candidates": ("fills", {"text": ["win the [MASK]"]}, {"candidates": "cash home"}),
    "no whole number": ("fills", {"text": ["win the [MASK]"]}, {"top_k": "two"}),
    "an odd candidate": ("fills", {"text": ["[MASK]"]}, {"candidates": "cattle"}),
    "no mask": ("fills", {"text": ["win"]}, {}),
    "entities": ("tags", {"text": VALID["ClassifyTokens"]["texts"]}, {}),
    "answers": ("asks", {"question": ["win"] * 2, "context": ["a free cash", "lunch"]}, {}),
    "no question": ("asks", {"question": [""], "context": ["a free cash"]}, {}),
    "features": ("deep", {"text": TEXTS}, {}),
    "a mix": (
        "deep",
        {"text": TEXTS},
        {"layers": "mix", "weights": "0,0,1,0,-1", "pooling": "cls"},
    ),
    "no pooling": ("deep", {"text": TEXTS}, {"pooling": "none"}),
    "no layer": ("deep", {"text": TEXTS}, {"layers": "third"}),
    "attention": ("looks", {"text": ["win prize"]}, {}),
    "attention across": ("crossed", {"text": ["win prize"], "target": ["now"]}, {}),
    "a source missing": ("crossed", {"text": ["win prize"]}, {}),
    "no texts": ("spam", {"text": []}, {}),
    "no texts with masks": ("fills", {"text": []}, {}),
    "no texts for features": ("deep", {"text": []}, {}),
    "no texts for answers": ("asks", {"question": [], "context": []}, {}),
}
REFUSED_ALIKE: dict[str, dict[str, Any]] = {
    "unknown model": {"model": "nobody"},
    "unknown version": {"version": "7"},
    "no number": {"version": "x"},
    "another task": {"model": "tale"},
    "tensors": {"model": "simple"},
}
OF_COUNT: dict[str, dict[str, Any]] = {
    "no texts": {"texts": []},
    "too many": {"texts": ["now"] * 6},
    "too long": {"texts": [f"[MASK] {LONG}"]},
    "cut": {"texts": [f"[MASK] {LONG}"], "truncate": True},
    "too many characters": {"texts": ["x" * 1_001]},
}


def cases() -> dict[str, tuple[str, Message]]:
    """Path and message by name."""
    asked: dict[str, tuple[str, dict[str, Any]]] = {}
    for method, fields in VALID.items():
        asked[f"{method} valid"] = method, fields
        for name, change in REFUSED_ALIKE.items():
            asked[f"{method} {name}"] = method, fields | change
    for method in OF_TEXTS:
        for name, change in OF_COUNT.items():
            if method == "Tokenize" and "truncate" in change:
                continue  # nothing is too long for it
            asked[f"{method} {name}"] = method, valid(method, **change)
    for method, change in VARIED:
        number = sum(name.startswith(f"{method} varied") for name in asked)
        asked[f"{method} varied {number}"] = method, VALID.get(method, {}) | change
    found = {
        name: (SERVICES[method][0], message(method, **fields))
        for name, (method, fields) in asked.items()
    }
    for name, (model, tensors, parameters) in INFERRED.items():
        found[f"ModelInfer {name}"] = PATH, inference(model, tensors, parameters)
    return found


def inference(
    model: str, tensors: dict[str, list[str]], parameters: dict[str, Any]
) -> service_pb2.ModelInferRequest:
    request = service_pb2.ModelInferRequest(model_name=model, id="7")
    for name, texts in tensors.items():
        add_strings(request, name, *texts)
        request.inputs[-1].shape.append(1)
    for name, value in parameters.items():
        kind = {bool: "bool_param", int: "int64_param", str: "string_param"}[type(value)]
        setattr(request.parameters[name], kind, value)
    return request


async def asked(served: Served, path: str, request: Message, **options: Any) -> dict[str, Any]:
    """What comes back: the message without its timings, or the status."""
    call: Any = served.channel.unary_unary(
        path, request_serializer=lambda each: each.SerializeToString()
    )
    try:
        raw = await within_patience(call(request, **options))
    except grpc.aio.AioRpcError as error:
        trailers = dict(error.trailing_metadata() or ())
        return {
            "status": error.code().name,
            "details": error.details(),
            "trailers": {key: str(value) for key, value in sorted(trailers.items())},
        }
    reply = service_pb2.ModelInferResponse() if path == PATH else response_type(path)()
    reply.ParseFromString(raw)
    timed = []
    if "timings" in reply.DESCRIPTOR.fields_by_name and reply.HasField("timings"):
        timed = [field.name for field, _ in reply.timings.ListFields()]
        reply.ClearField("timings")
    return {"message": reply, "timed": timed}


async def recorded() -> dict[str, dict[str, Any]]:
    """What every case gives, and what models count at the end."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        async with every_task(Path(folder), max_queue_requests=1) as served:
            for name, (path, request) in cases().items():
                found[name] = await asked(served, path, request)
            for method in ("Classify", "FillMask", "Answer", "ClassifyImage"):
                found |= await _refused_for_want_of_room(served, method)
            for method in VALID:
                found |= await _not_admitted(served, method)
            counted = {}
            for model in served.app.repository.models():
                with model.statistics() as kept:
                    counted[model.name] = [
                        kept.success.count,
                        kept.fail.count,
                        kept.inference_count,
                    ]
            found["counted"] = {"models": counted}
    return found


async def _refused_for_want_of_room(served: Served, method: str) -> dict[str, dict[str, Any]]:
    """One runs, one leaves the queue with its deadline, one waits, and one finds the queue full."""
    path, request = SERVICES[method][0], message(method, **VALID[method])
    model = VALID[method]["model"]
    session = served.sessions[model]
    session.hold()
    num_runs = len(session.batches)
    running = asyncio.create_task(asked(served, path, request))
    await asyncio.to_thread(session.wait_for_runs, num_runs + 1)
    late = await asked(served, path, request, timeout=1.0)
    await eventually(lambda: served.num_waiting(model) == 0)
    waiting = asyncio.create_task(asked(served, path, request))
    await eventually(lambda: served.num_waiting(model) > 0)
    full = await asked(served, path, request)
    session.release()
    await asyncio.gather(running, waiting)
    late.pop("details")  # the client's words, or the server's
    late.pop("trailers")
    return {f"{method} full queue": full, f"{method} late": late}


async def _not_admitted(served: Served, method: str) -> dict[str, dict[str, Any]]:
    admission = served.app._admission
    path, request = SERVICES[method][0], message(method, **VALID[method])
    before = admission._max_bytes
    admission._max_bytes = 1
    try:
        return {f"{method} not admitted": await asked(served, path, request)}
    finally:
        admission._max_bytes = before


def plain(answer: dict[str, Any]) -> dict[str, Any]:
    """The same as JSON, floats rounded."""
    if "message" not in answer:
        return answer
    reply = answer["message"]
    fields = MessageToDict(reply, preserving_proto_field_name=True)
    if isinstance(reply, service_pb2.ModelInferResponse):
        pairs = zip(reply.outputs, reply.raw_output_contents, strict=True)
        fields["raw_output_contents"] = [_values(out.datatype, raw) for out, raw in pairs]
    return {"fields": _rounded(fields), "timed": answer["timed"]}


def _values(datatype: str, raw: bytes) -> list[Any]:
    if datatype != "BYTES":
        kind = {"FP32": "<f4", "INT32": "<i4", "INT64": "<i8"}[datatype]
        return list(np.frombuffer(raw, kind).tolist())
    found = []
    while raw:
        size = int.from_bytes(raw[:4], "little")
        text = raw[4 : 4 + size].decode()
        found.append(json.loads(text) if text[:1] in "[{" and text else text)
        raw = raw[4 + size :]
    return found


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS) + 0.0
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value


def exact(answer: dict[str, Any]) -> dict[str, Any]:
    """The same with every byte."""
    if "message" not in answer:
        return answer
    raw = answer["message"].SerializeToString(deterministic=True)
    return {"bytes": base64.b64encode(raw).decode(), "timed": answer["timed"]}


def written(answers: dict[str, dict[str, Any]]) -> str:
    """One case a line."""
    lines = (f"{json.dumps(name)}: {json.dumps(each)}" for name, each in answers.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def test_every_answer_is_what_it_was() -> None:
    found = {name: plain(answer) for name, answer in asyncio.run(recorded()).items()}
    kept = json.loads(GOLDEN.read_text())
    assert list(found) == list(kept)
    for name, answer in found.items():
        assert _alike(json.loads(json.dumps(answer)), kept[name]), (name, answer, kept[name])


def _alike(found: Any, kept: Any) -> bool:
    """Whether all is equal but for numbers that another processor may round otherwise."""
    if isinstance(found, float) and isinstance(kept, float):
        return bool(abs(found - kept) < 1.5 * 10**-DIGITS)
    if isinstance(found, dict) and isinstance(kept, dict):
        return list(found) == list(kept) and all(_alike(found[key], kept[key]) for key in kept)
    if isinstance(found, list) and isinstance(kept, list):
        return len(found) == len(kept) and all(map(_alike, found, kept))
    return type(found) is type(kept) and bool(found == kept)


def test_answers_differ_by_more_than_rounding_or_not_at_all() -> None:
    kept = {"scores": [0.9273, 1], "text": "free"}
    assert _alike({"scores": [0.9274, 1], "text": "free"}, kept)
    for other in (
        {"scores": [0.9275, 1], "text": "free"},
        {"scores": [0.9273, 2], "text": "free"},
        {"scores": [0.9273], "text": "free"},
        {"text": "free", "scores": [0.9273, 1]},
        {"scores": [0.9273, 1], "text": "cash"},
    ):
        assert not _alike(other, kept)


if __name__ == "__main__":
    answers = asyncio.run(recorded())
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(written({n: exact(each) for n, each in answers.items()}))
    else:
        GOLDEN.write_text(written({name: plain(each) for name, each in answers.items()}))
