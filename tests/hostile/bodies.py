"""Bodies in which one field alone is long, made from a server's description of its port.

Every text, list and object in the body of every path is such a field, at any depth; of a field that
takes any JSON there are several forms. Pure.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

Schema: TypeAlias = Mapping[str, Any]
MAX_DEPTH = 6  # of fields in each other
# Of texts these are read in all forms, others in one.
READ = ("content", "context", "input", "inputs", "prompt", "query", "text", "texts", "text_1")
# The model that reads a record, by a part of the record's name; the first that matches.
MODELS = {
    **dict.fromkeys(("Chat", "Token", "Completion", "Generat"), "gpt"),
    **dict.fromkeys(("Classify", "Predict", "Label"), "spam"),
    "": "minilm",
}
# Values without which a record is refused before anything in it is read.
NEEDED: dict[str, dict[str, Any]] = {
    "ChatMessage": {"role": "user", "content": "a"},
    "v1.ChatMessage": {"role": "user", "content": "a"},
    "FunctionCall": {"name": "a", "arguments": "{}"},
    "v1.ToolCall": {"name": "a", "arguments": "{}"},
    "Tool": {"type": "function", "function": {"name": "a"}},
    "TextPart": {"type": "text", "text": "a"},
    "SchemaFormat": {"name": "a", "schema": {"type": "object"}},
    "Input": {"name": "text", "datatype": "BYTES", "shape": [1, 1], "data": ["a"]},
    "v1.GenerateRequest": {"sampling_params": {"max_tokens": 1}},
    "ScoreRequest": {"text_1": "a", "text_2": "a"},
    "RerankRequest": {"query": "a", "documents": ["a"]},
    "ClassifyRequest": {"input": "a"},
    "ChatRequest": {"max_tokens": 1},
    "CompletionRequest": {"max_tokens": 1},
}
# Paths whose body the description has as any object, and a body that is right.
OPEN: dict[str, dict[str, Any]] = {
    "generate": {"text_input": "a", "max_tokens": 1},
    "infer": {"inputs": [NEEDED["Input"]]},
}


@dataclass(frozen=True, slots=True)
class Hole:
    """The place of the long field in a body: text before and behind it, and what it is made of."""

    field: str
    form: str
    unit: Callable[[int], str]
    separator: str = ","
    before: str = ""
    behind: str = ""

    def within(self, before: str, behind: str, name: str) -> "Hole":
        """The same field inside something else."""
        field = (
            f"{name}{self.field}"
            if self.field.startswith(("[", "{")) or not name
            else (f"{name}.{self.field}" if self.field else name)
        )
        return replace(self, field=field, before=before + self.before, behind=self.behind + behind)

    def body(self, num_bytes: int) -> bytes:
        """A body of about `num_bytes` bytes."""
        step = len((self.unit(0) + self.separator).encode())
        count = max(1, num_bytes // step)
        if self.unit(0) == self.unit(1):
            inner = (self.unit(0) + self.separator) * (count - 1) + self.unit(0)
        else:
            inner = self.separator.join(map(self.unit, range(count)))
        return (self.before + inner + self.behind).encode()


def _same(text: str) -> Callable[[int], str]:
    return lambda _: text


TEXTS = (
    Hole("", "words", _same("free prize "), "", '"', '"'),
    Hole("", "letters", _same("a"), "", '"', '"'),
    Hole("", "escapes", _same("\\u00e9"), "", '"', '"'),
    Hole("", "a wide character", _same("a"), "", '"\U0001f600', '"'),
)
LISTS = {
    "digits": "1",
    "numbers": "300",
    "fractions": "1.5",
    "empty objects": "{}",
    "empty lists": "[]",
    "lists of one": "[1]",
    "objects of one": '{"a":1}',
    "short texts": '"ab"',
    "empty texts": '""',
    "null": "null",
}
ANY = (
    *TEXTS[:1],
    *(Hole("[]", form, _same(unit), ",", "[", "]") for form, unit in LISTS.items()),
    Hole("{}", "members", lambda n: f'"k{n}":1', ",", "{", "}"),
    Hole("{}", "empty members", lambda n: f'"k{n}":{{}}', ",", "{", "}"),
    Hole("{}", "ids", lambda n: f'"{n}":1', ",", "{", "}"),
)
SCHEMAS = (
    Hole("anyOf[]", "empty schemas", _same("{}"), ",", '{"anyOf":[', "]}"),
    Hole("enum[]", "texts", lambda n: f'"v{n}"', ",", '{"enum":[', "]}"),
    Hole(
        *("properties", "numbers", lambda n: f'"p{n}":{{"type":"integer"}}', ","),
        *('{"type":"object","properties":{', "}}"),
    ),
    Hole("pattern", "letters", _same("a"), "", '{"type":"string","pattern":"', '"}'),
)


class Description:
    """A port's description, in OpenAPI."""

    def __init__(self, openapi: Mapping[str, Any]) -> None:
        self._records: Mapping[str, Schema] = openapi["components"]["schemas"]
        self._paths: Mapping[str, Any] = openapi["paths"]

    def bodies(self) -> Iterator[tuple[str, Hole]]:
        """Each path with the fields of its body; of paths with the same records, the first."""
        for path, model, hole in self._bodies():
            task = "text-generation" if model == "gpt" else "feature-extraction"
            yield path.replace("{model}", model).replace("{task}", task), hole

    def _bodies(self) -> Iterator[tuple[str, str, Hole]]:
        seen: set[str] = set()
        for path, methods in self._paths.items():
            if "post" not in methods:
                continue
            schema = methods["post"]["requestBody"]["content"].get("application/json", {})
            schema = schema.get("schema", {})
            key = json.dumps(schema) if "$ref" in json.dumps(schema) else path
            if key in seen or "{version}" in path:
                continue
            seen.add(key)
            for each in schema.get("anyOf", (schema,)):
                name = each.get("$ref", "").rpartition("/")[2]
                model = next(model for part, model in MODELS.items() if part in name)
                if path.endswith(("/generate", "/generate_stream")):
                    model = "gpt"
                for hole in self._of_path(path, each):
                    yield path, model, hole

    def _of_path(self, path: str, schema: Schema) -> Iterator[Hole]:
        known = OPEN.get(path.rpartition("/")[2], {})
        if schema == {"type": "object"}:
            is_open = path.endswith(("/generate", "/load"))
            for hole in ANY if is_open else (ANY[0], ANY[4], ANY[-2]):
                for name in (*known, "parameters", "other"):
                    others = {key: value for key, value in known.items() if key != name}
                    yield _member(name, hole, others)
            return
        yield from self._holes(schema, 0)

    def _holes(self, schema: Schema, depth: int) -> Iterator[Hole]:
        if depth > MAX_DEPTH:
            return
        if "$ref" in schema:
            yield from self._of_record(schema["$ref"].rpartition("/")[2], depth)
        elif "anyOf" in schema:
            for each in schema["anyOf"]:
                yield from self._holes(each, depth)
        elif schema.get("type") == "string":
            if "enum" not in schema:
                yield from TEXTS
        elif schema.get("type") == "array" and "items" not in schema:
            for hole in ANY[1:]:
                yield hole if hole.before == "[" else hole.within("[", "]", "[]")
        elif schema.get("type") == "array":
            unit = json.dumps(self.least(schema["items"]), separators=(",", ":"))
            yield Hole("[]", "elements", _same(unit), ",", "[", "]")
            if unit == "1":
                yield Hole("[]", "large numbers", _same("300"), ",", "[", "]")
            for hole in self._holes(schema["items"], depth + 1):
                yield hole.within("[", "]", "[]")
        elif schema.get("type") == "object":
            if schema.get("additionalProperties", {}) != {}:
                value = json.dumps(self.least(schema["additionalProperties"]))
                unit_of = lambda n, value=value: f'"{n}":{value}'  # noqa: E731
                yield Hole("{}", "members", unit_of, ",", "{", "}")
            else:
                for hole in (*ANY[1:], *SCHEMAS):
                    is_list = hole.before == "["
                    yield hole.within('{"a":', "}", "{}") if is_list else hole
        elif not schema.get("type"):
            yield from (*ANY, *SCHEMAS)

    def _of_record(self, name: str, depth: int) -> Iterator[Hole]:
        record = self._records[name]
        if "properties" not in record:
            yield from self._holes(record, depth)
            return
        for field, schema in record["properties"].items():
            if field == "function_call" and depth:
                continue
            others = self._others(name, field)
            for hole in self._holes(schema, depth + 1):
                if hole in TEXTS[1:] and field not in READ:
                    continue
                yield _member(field, hole, others)

    def _others(self, name: str, field: str) -> dict[str, Any]:
        """The fields that a record needs beside one of them."""
        values: dict[str, Any] = self.least({"$ref": name})
        values.pop(field, None)
        if name == "ResponseFormat":
            values = {"type": "json_schema" if field == "json_schema" else "json_object"}
        if name == "ScoreRequest" and field not in ("text_1", "text_2"):
            pairs = {"queries": "documents", "data_1": "data_2"}
            pairs |= {second: first for first, second in pairs.items()}
            values = {pairs[field]: "a"} if field in pairs else values
        return values

    def least(self, schema: Schema) -> Any:
        """A small value that a schema allows."""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            record = self._records[name]
            required = record.get("required", ())
            values = {field: self.least(record["properties"][field]) for field in required}
            if "model" in record["properties"]:
                values["model"] = next(model for part, model in MODELS.items() if part in name)
            return values | NEEDED.get(name, {})
        if "anyOf" in schema:
            return self.least(schema["anyOf"][0])
        if "enum" in schema:
            return schema["enum"][-1]
        if schema.get("type") == "array":
            return [self.least(schema["items"])] if "items" in schema else []
        kinds = {"object": {}, "integer": 1, "number": 1, "boolean": True}
        return kinds.get(schema.get("type", ""), "a")


def _member(name: str, hole: Hole, others: Mapping[str, Any]) -> Hole:
    written = [f"{json.dumps(key)}:{json.dumps(value)}" for key, value in others.items()]
    before = "{" + "".join(f"{each}," for each in written) + json.dumps(name) + ":"
    return hole.within(before, "}", name)
