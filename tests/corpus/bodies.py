"""Bodies for every POST path of the HTTP port: right ones by hand, and wrong ones of each field.

The fields and their types are of the server's own description, docs/reference/openapi.json. Pure.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.fakes.tasks import WHITE

Schema: TypeAlias = Mapping[str, Any]
HALF = "\ud800"  # of a surrogate pair: JSON can write it, UTF-8 cannot
U32, I32 = 2**32 - 1, 2**31 - 1
TEXT, LONG = "win a prize", "prize " * 30
MESSAGES = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "go", "parameters": {"type": "object"}}}
# The seed is for bodies that change the temperature.
GREEDY = {"temperature": 0, "max_tokens": 3, "seed": 1}
ONE = {"max_tokens": 1}  # in streams: how many tokens a chunk has is a matter of time
USAGE = {"include_usage": True}
IMAGE = base64.b64encode(WHITE).decode()


@dataclass(frozen=True, slots=True)
class Base:
    """A right body of a path, which others are made from where `is_varied`."""

    path: str
    body: dict[str, Any]
    record: str = ""  # of the description, if another than the path's
    is_varied: bool = True
    fields: tuple[str, ...] = ()  # those that are varied; none: all but `left`
    left: tuple[str, ...] = ()


def _chat(**fields: Any) -> dict[str, Any]:
    return {"model": "talks", "messages": MESSAGES} | GREEDY | fields


def _completion(**fields: Any) -> dict[str, Any]:
    return {"model": "tale", "prompt": "once"} | GREEDY | fields


def _more(path: str, *bodies: dict[str, Any]) -> Iterator[Base]:
    for body in bodies:
        yield Base(path, body, is_varied=False)


def _openai() -> Iterator[Base]:
    yield Base("/v1/chat/completions", _chat())
    parts = [{"role": "user", "content": [{"type": "text", "text": "h"}]}]
    tooled = [
        {"role": "user", "content": "h"},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "go"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "a"},
    ]
    yield from _more(
        "/v1/chat/completions",
        _chat(messages=parts, tools=[TOOL], logprobs=True),
        *(_chat(stream=True, **ONE), _chat(stream=True, stream_options=USAGE, **ONE)),
        *(_chat(messages=tooled), _chat(tools=[TOOL], tool_choice="none"), _chat(n=2, seed=3)),
        *(_chat(logprobs=True, top_logprobs=2), _chat(use_beam_search=True, n=2)),
        _chat(response_format={"type": "json_object"}, max_tokens=8),
        *(_chat(guided_choice=["ab", "cd"]), _chat(guided_regex="a+b"), _chat(top_k=-1)),
        *(_chat(use_beam_search=True, n=2, top_p=0.5), _chat(stop=["x", "y"], max_tokens=30)),
        *(_chat(messages=MESSAGES * 40), _chat(model="tale"), _chat(model="spam")),
    )
    yield Base("/v1/completions", _completion())
    yield from _more(
        "/v1/completions",
        *(_completion(prompt=["on", "ce"]), _completion(prompt=[104, 105])),
        *(_completion(prompt=[[104], [105]], echo=True), _completion(stream=True, **ONE)),
        *(_completion(logprobs=2), _completion(logprobs=1, echo=True, max_tokens=0)),
        *(_completion(n=2, best_of=3, seed=1), _completion(use_beam_search=True, n=2)),
        *(_completion(prompt=[99999]), _completion(prompt=[[1, 99999]])),
        *(_completion(prompt="x" * 80), _completion(model="writes", prompt="win prize")),
        _completion(prompt="x" * 80, truncate_prompt_tokens=4),
    )
    yield Base("/v1/embeddings", {"model": "mini", "input": TEXT})
    yield from _more(
        "/v1/embeddings",
        *({"model": "mini", "input": each} for each in ([TEXT, "now"], [4, 5], [[4], [5, 6]])),
        *({"model": "mini", "input": each} for each in (LONG, ["a", LONG], [[4], [99]], [4, 99])),
        *({"model": "mini", "input": each} for each in (["a"] * 6, "x" * 1001, [TEXT, [4]])),
        {"model": "mini", "input": LONG, "truncate_prompt_tokens": -1},
        *(
            {"model": "mini", "input": [TEXT], "encoding_format": form, **more}
            for form in ("float", "base64", "bytes")
            for more in ({}, {"dimensions": 2}, {"embedding_type": "binary"})
        ),
        *(
            {"model": "mini", "input": [TEXT], "output_dtype": kind}
            for kind in ("float", "int8", "uint8", "binary", "ubinary", "base64", "bf16")
        ),
        *({"model": model, "input": TEXT} for model in ("spam", "simple", "three", "terms")),
        {"model": "mini", "input": TEXT, "prompt_name": "query"},
        {"model": "mini", "input": TEXT, "task": "retrieval.query", "truncate": True},
        {"model": "mini", "input": TEXT, "input_type": "document", "truncation": True},
    )


def _scores() -> Iterator[Base]:
    yield Base("/v1/classify", {"model": "spam", "input": TEXT})
    yield from _more(
        "/v1/classify",
        *({"model": "spam", "input": each} for each in ([TEXT, "now"], [[4], [5]], [4], LONG)),
        {"model": "spam", "input": LONG, "truncate_prompt_tokens": -1},
        {"model": "spam", "input": TEXT, "use_activation": False},
    )
    yield Base("/v1/score", {"model": "match", "text_1": "win", "text_2": ["prize", "now"]})
    yield from _more(
        "/v1/score",
        *({"model": model, "text_1": "win", "text_2": "prize"} for model in ("mini", "spam")),
        {"model": "match", "queries": ["win", "a"], "documents": ["prize", "now"]},
        {"model": "match", "text_1": ["win", "a"], "text_2": ["prize"] * 3},
        {"model": "match", "data_1": "win", "data_2": LONG},
    )
    yield Base("/v1/rerank", {"model": "match", "query": "win", "documents": ["now", "prize"]})
    yield from _more(
        "/v1/rerank",
        {"model": "match", "query": "win", "texts": ["now", "prize"], "return_text": True},
        {"model": "match", "query": "win", "documents": [{"text": "now"}, "a"], "top_n": 1},
        {"model": "match", "query": "win", "documents": ["now", LONG]},
        {"model": "match", "query": "win", "documents": ["a"], "return_documents": True},
        {"model": "match", "query": LONG, "documents": ["a"]},
        {"model": "mini", "query": "win", "documents": ["a"]},
    )
    yield Base(
        "/v1/ranking",
        {"model": "match", "query": {"text": "win"}, "passages": [{"text": "a"}, {"text": "now"}]},
    )
    yield Base("/v1/predict", {"model": "spam", "inputs": TEXT})
    yield from _more(
        "/v1/predict",
        *({"model": "spam", "inputs": each} for each in ([TEXT, "now"], [["win", "now"]], LONG)),
        {"model": "spam", "inputs": LONG, "truncate": True, "raw_scores": True},
    )
    yield Base("/v1/pooling", {"model": "three", "input": TEXT, "task": "embed"})
    yield from _more(
        "/v1/pooling",
        {"model": "three", "input": [TEXT, "now"], "task": "token_embed"},
        {"model": "mini", "input": [[4, 5]], "encoding_format": "base64"},
        {"model": "deep", "input": TEXT},
    )


def _others() -> Iterator[Base]:
    yield Base("/v1/tokenize", {"model": "tale", "prompt": "once"})
    yield from _more("/v1/tokenize", {"model": "talks", "messages": MESSAGES})
    yield Base("/v1/detokenize", {"model": "spam", "tokens": [4, 5]})
    for path in ("/v1/embed", "/v2/embed"):
        cohere = {"model": "mini", "texts": [TEXT, "now"], "input_type": "search_query"}
        yield Base(path, cohere, is_varied=path == "/v2/embed")
        yield from _more(
            path,
            *(cohere | {"embedding_types": each} for each in (["int8"], ["float", "ubinary"], [])),
            *(cohere | {"texts": [LONG], "truncate": each} for each in ("END", "NONE", "START")),
            cohere | {"output_dimension": 2},
        )
    yield Base("/embed", {"inputs": TEXT, "model": "mini"})
    yield from _more(
        "/embed",
        *({"inputs": each, "model": "mini"} for each in ([TEXT, "now"], [4, 5], [[4], [5]], LONG)),
        *({"inputs": each, "model": "mini", "truncate": True} for each in (LONG, ["a", LONG])),
        {"inputs": TEXT, "model": "mini", "normalize": False},
        {"inputs": TEXT, "model": "three"},
        {"inputs": TEXT},
    )
    yield Base("/embed_sparse", {"inputs": TEXT, "model": "three"})
    yield from _more(
        "/embed_sparse",
        *({"inputs": [TEXT, "now"], "model": model, "top_k": 2} for model in ("three", "terms")),
        {"inputs": TEXT, "model": "mini"},
    )
    compared = {"source_sentence": "win", "sentences": ["prize", "now"]}
    yield Base("/similarity", {"inputs": compared, "model": "mini", "parameters": {}})


def _hugging_face() -> Iterator[Base]:
    for model, record, inputs in (
        ("mini", "FeatureRequest", TEXT),
        ("spam", "LabelRequest", TEXT),
        ("mini", "SimilarityRequest", {"source_sentence": "win", "sentences": ["prize", "now"]}),
        ("fills", "MaskRequest", "win the [MASK]"),
        ("tags", "TokenRequest", "the win prize"),
        ("asks", "QuestionRequest", {"question": "win", "context": "free lunch cash"}),
        ("tale", "GenerationRequest", "once"),
        ("light", "LabelRequest", IMAGE),
    ):
        body: dict[str, Any] = {"inputs": inputs}
        if record not in ("FeatureRequest", "SimilarityRequest"):
            body["parameters"] = {}
        if model == "tale":
            body["parameters"] = {"do_sample": False, "max_new_tokens": 3, "seed": 1}
        yield Base(f"/models/{model}", body, record, is_varied=model != "light")
    asked = {"max_new_tokens": 3, "do_sample": False, "seed": 1}
    yield from _more(
        "/models/tale",
        {"inputs": "once", "stream": True, "parameters": asked | {"max_new_tokens": 1}},
        *({"inputs": "on", "parameters": asked | more} for more in _OF_TEXT),
    )
    yield from _more("/models/mini", {"inputs": [TEXT, "now"], "truncate": True}, {"inputs": LONG})
    yield from _more("/models/spam", {"inputs": [TEXT, "now"], "parameters": {"top_k": 2}})
    yield from _more("/models/simple", {"inputs": TEXT})
    yield from _more("/models/nobody", {"inputs": TEXT})


_OF_TEXT = (
    *({"num_beams": 2}, {"best_of": 2, "do_sample": True, "seed": 1}, {"top_n_tokens": 60}),
    *({"return_full_text": True}, {"grammar": {"type": "regex", "value": "a+"}}),
    *({"top_n_tokens": 2, "details": True}, {"adapter_id": "x"}, {"decoder_input_details": True}),
)


def _kserve() -> Iterator[Base]:
    texts = {"name": "text", "datatype": "BYTES", "shape": [1, 1], "data": [TEXT]}
    yield Base("/v2/models/spam/infer", {"inputs": [texts]}, "InferBody")
    numbers = [
        {"name": name, "datatype": "INT32", "shape": [1, 16], "data": list(range(16))}
        for name in ("INPUT0", "INPUT1")
    ]
    yield Base("/v2/models/simple/infer", {"inputs": numbers, "id": "7"}, "InferBody")
    wanted = {"outputs": [{"name": "OUTPUT0", "parameters": {"classification": 2}}]}
    yield from _more("/v2/models/simple/infer", {"inputs": numbers} | wanted)
    generated: dict[str, Any] = {"text_input": "once"} | GREEDY
    yield Base("/v2/models/tale/generate", generated, "v1.SamplingParams")
    yield from _more(
        "/v2/models/tale/generate",
        *({"text_input": "on", "parameters": GREEDY | more} for more in ({}, {"stop": "x"})),
        *({**GREEDY, "text_input": each} for each in ("", 7, ["a"], HALF, None)),
        {"id": "7", "stream": True} | generated,
    )
    yield from _more("/v2/models/tale/generate_stream", generated | ONE, generated | {"n": 2})
    yield from _more("/v2/models/spam/generate", {"text_input": TEXT})


API: dict[str, dict[str, Any]] = {
    "Answer": {"model": "asks", "question": "win", "context": "free lunch cash"},
    "Attend": {"model": "looks", "text": "win prize"},
    "AttendImage": {"model": "seen", "image": IMAGE},
    "Classify": {"model": "spam", "texts": [TEXT, "now"]},
    "ClassifyImage": {"model": "light", "images": [IMAGE]},
    "ClassifyTokens": {"model": "tags", "texts": ["the win prize"]},
    "Detokenize": {"model": "spam", "token_ids": [4, 5]},
    "Embed": {"model": "mini", "texts": [TEXT, "now"]},
    "ExtractFeatures": {"model": "deep", "texts": ["win"]},
    "FillMask": {"model": "fills", "texts": ["win the [MASK]"]},
    "Generate": {"model": "tale", "text": "once", "sampling_params": GREEDY | ONE},
    "GenerateUnary": {"model": "talks", "text": "once", "sampling_params": GREEDY},
    "ListModels": {},
    "Rerank": {"model": "match", "query": "win", "documents": ["now", "prize"]},
    "ScorePairs": {"model": "match", "texts": ["win"], "text_pairs": ["prize"]},
    "Similarity": {"model": "mini", "texts": [TEXT], "others": ["now"]},
    "Tokenize": {"model": "spam", "texts": [TEXT]},
}


def _typed() -> Iterator[Base]:
    for method, body in API.items():
        if method == "Generate":
            yield Base("/api/Generate", body, fields=("model", "priority", "text"))
        elif method == "GenerateUnary":
            yield Base("/api/GenerateUnary", body, left=("conversation", "token_ids"))
        else:
            yield Base(f"/api/{method}", body)
    yield from _more(
        "/api/Embed",
        {"model": "three", "texts": [TEXT], "kinds": ["EMBEDDING_KIND_SPARSE"], "topK": 2},
        {"model": "three", "texts": [TEXT], "kinds": [1, "EMBEDDING_KIND_TOKEN_VECTORS"]},
        {"model": "terms", "texts": [TEXT], "withPieces": True},
        {"model": "mini", "token_ids": [{"ids": [4, 5]}], "encodings": [2, 5]},
        {"model": "mini", "token_ids": [{"ids": [4, 5]}], "texts": ["a"]},
        *({"model": "mini", "token_ids": [{"ids": ids}]} for ids in ([], [99], [4] * 20)),
        {"model": "mini", "texts": [LONG], "truncate": True, "prompt": "now "},
        {"model": "mini", "texts": [LONG]},
        {"model": "mini", "texts": ["a"] * 6},
    )
    spoken = {"messages": [{"role": "user", "content": "hi"}]}
    for name, value in (("conversation", spoken), ("token_ids", {"ids": [104]})):
        asked = {"model": "talks", name: value, "sampling_params": GREEDY}
        yield Base("/api/GenerateUnary", asked, fields=(name,))
    for more in ({"conversation": spoken}, {"token_ids": {"ids": [104, 105]}}, {"text": "a"}):
        asked = {"model": "talks", **more, "sampling_params": GREEDY}
        yield from _more("/api/GenerateUnary", asked, asked | {"conversation": spoken})


def bases() -> Iterator[Base]:
    """Every right body, and with it the path that takes it."""
    for some in (_openai, _scores, _others, _hugging_face, _kserve, _typed):
        yield from some()


FAULTY = (  # whatever the path
    b"",
    b"[]",
    b"{}",
    b"null",
    b'"a"',
    b'{"model": ',
    b'{"model": "\xff"}',
    b'{"model": "\\ud800"}',
    b'{"model": "mini"} x',
    b"[" * 200 + b"]" * 200,
)


class Description:
    """The server's description of its port, in OpenAPI."""

    def __init__(self, openapi: Mapping[str, Any]) -> None:
        self._records: Mapping[str, Schema] = openapi["components"]["schemas"]
        self._paths: Mapping[str, Any] = openapi["paths"]

    def bodies(self) -> Iterator[tuple[str, bytes]]:
        """Every path with the bodies to send."""
        known = list(bases())
        for base in known:
            yield base.path, written(base.body)
            if base.is_varied:
                for body in self._varied(base):
                    yield base.path, body
        for path in dict.fromkeys(base.path for base in known):
            for faulty in FAULTY:
                yield path, faulty
        for path, methods in self._paths.items():
            if "post" in methods:
                yield from self._alike(path, known)

    def _alike(self, path: str, known: list[Base]) -> Iterator[tuple[str, bytes]]:
        """A few bodies for a path that does what another does."""
        base = next((each for each in known if _ends_alike(path, each.path)), None)
        body = base.body if base else {}
        model = body.get("model") or (_model_in(base.path) if base else "simple")
        named = path.replace("{model}", model).replace("{version}", "1")
        for name, value in (("task", "feature-extraction"), ("region", "r"), ("repository", "m")):
            named = named.replace(f"{{{name}}}", value)
        if named in {each.path for each in known}:
            return
        for each in (body, body | {"model": "nobody"}, body | {"unheard": 1}):
            yield named, written(each)
        for faulty in (b"", b"[]", b'{"inputs": 7, "texts": 7, "input": 7, "prompt": 7}'):
            yield named, faulty

    def _varied(self, base: Base) -> Iterator[bytes]:
        record = self._records[base.record or self._record_of(base.path)]
        for name in record.get("required", ()):
            yield written({key: each for key, each in base.body.items() if key != name})
        for name in base.body:
            camel = re.sub("_(.)", lambda found: found[1].upper(), name)
            yield written({camel if key == name else key: base.body[key] for key in base.body})
            yield written(base.body)[:-1] + b", " + written({name: base.body[name]})[1:]
        yield written(base.body | {"unheard": 1})
        yield written(base.body | dict.fromkeys(base.body))
        for name, schema in record["properties"].items():
            if name in base.left or (base.fields and name not in base.fields):
                continue
            for value in self._values(schema, base.body.get(name), 0):
                yield written(base.body | {name: value})

    def _record_of(self, path: str) -> str:
        content = self._paths[path]["post"]["requestBody"]["content"]
        return str(content["application/json"]["schema"]["$ref"].rpartition("/")[2])

    def _values(self, schema: Schema, now: Any, depth: int) -> Iterator[Any]:
        """Values around what a field takes: its bounds, other types, and odd ones of its type."""
        if "$ref" in schema:
            record = self._records[schema["$ref"].rpartition("/")[2]]
            yield from (None, [], "a") if depth < 2 else ()
            inner = now if isinstance(now, dict) else {}
            for name, each in record.get("properties", {}).items():
                if depth < 2:
                    for value in self._values(each, inner.get(name), depth + 1):
                        yield inner | {name: value}
            return
        kinds = [each for each in schema.get("anyOf", (schema,)) if each.get("type") != "null"]
        if len(kinds) < len(schema.get("anyOf", ())) and not depth:
            yield None
        for each in kinds:
            if "$ref" in each:
                yield from self._values(each, now, depth)
            elif "enum" in each:
                yield from (*each["enum"], "UNHEARD", 1, 99, HALF)
            elif each.get("type") == "array" and depth < 2:
                yield from ([], "a", [7], [None], {"a": 1}, [[]])
                (item, *_) = now if isinstance(now, list) and now else (None,)
                for value in list(self._values(each.get("items", {}), item, depth + 1)):
                    yield [value]
            else:
                yield from _plain(each)


def _model_in(path: str) -> str:
    parts = path.split("/")
    return parts[3] if path.startswith("/v2/models") else parts[-1]


def _plain(schema: Schema) -> tuple[Any, ...]:
    kind = schema.get("type")
    if kind == "string":
        return ("", HALF, 7, ["a"], "a\0b")
    if kind in ("integer", "number"):
        high = schema.get("maximum", U32)
        return (-1, 0, 1, high, high + 1, 0.5, "1", True, 1e300)
    if kind == "boolean":
        return (True, False, "true", 1)
    if kind == "object":
        return ({}, "a", [], {"65": 1}, {"a": HALF})
    return ("a", 7, [], {}, [7, "a"], HALF)


def _ends_alike(path: str, other: str) -> bool:
    """Whether two paths lead to one handler, as far as their last parts tell."""
    if re.search(r"/\{?version", path) or path.startswith("/v2/models"):
        return path.rpartition("/")[2] == other.rpartition("/")[2]
    if path.endswith(("{model}", "{task}")):
        return other == "/models/mini"
    tail = re.search(r"(chat/|v2/)?[^/]+$", path)
    return tail is not None and re.sub("^/v1/", "/", other) == f"/{tail[0]}"


def written(body: Any) -> bytes:
    return json.dumps(body).encode()
