"""The page and the server take the same keywords of JSON schema, with the same kinds of values."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from service.errors import InvalidArgument
from service.grammars.form import Grammar
from tests.fakes.grammars import piece_compiler

pytest.importorskip("llguidance")
NODE = shutil.which("node")
MODULE = Path(__file__).parents[2] / "playground/maths/schema_keywords.js"
# Of the drafts from 4 on, and of OpenAPI; `$schema`, whose value is looked up, and `$defs` apart.
KEYWORDS = (
    *("$anchor", "$comment", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor"),
    *("$recursiveRef", "$ref", "$vocabulary", "additionalItems", "additionalProperties", "allOf"),
    *("anyOf", "const", "contains", "contentEncoding", "contentMediaType", "contentSchema"),
    *("default", "dependencies", "dependentRequired", "dependentSchemas"),
    *("deprecated", "description", "discriminator", "else", "enum", "example", "examples"),
    *("exclusiveMaximum", "exclusiveMinimum", "externalDocs", "format", "id", "if", "items"),
    *("maxContains", "maxItems", "maxLength", "maxProperties", "maximum", "minContains"),
    *("minItems", "minLength", "minProperties", "minimum", "multipleOf", "not", "nullable"),
    *("oneOf", "pattern", "patternProperties", "prefixItems", "properties", "propertyNames"),
    *("readOnly", "required", "then", "title", "type", "unevaluatedItems"),
    *("unevaluatedProperties", "uniqueItems", "writeOnly", "x-guidance", "xml"),
)
FORMATS = (
    *("date", "date-time", "duration", "email", "hostname", "idn-email", "idn-hostname", "ipv4"),
    *("ipv6", "iri", "iri-reference", "json-pointer", "regex", "relative-json-pointer", "time"),
    *("uri", "uri-reference", "uri-template", "uuid", "unknown", "password", "binary", "byte"),
    *("int32", "int64", "float", "double"),
)
SCHEMA = {"type": "number"}
VALUES: list[Any] = [
    *(None, True, False, 1, -1, 1.5, "string", *FORMATS),
    *([], ["null"], ["string", "null"], [1], [SCHEMA], [True], {}, {"a": SCHEMA}, {"a": 1}),
    *({"a": ["b"]}, ["null", "strng"], [SCHEMA, 5], SCHEMA),
]
PROGRAM = f"""
import {{ schemaMarks }} from {json.dumps(MODULE.as_uri())};
let written = "";
for await (const each of process.stdin) written += each;
console.log(JSON.stringify(JSON.parse(written).map((each) => schemaMarks(JSON.stringify(each)))));
"""


BESIDE = {"additionalItems": {"items": [True]}}  # without which the server reads no value of it


def schemas() -> list[dict[str, Any]]:
    """One for each keyword and value; the only text in `$ref` is one that leads to a schema."""
    defined = {"$defs": {"number": SCHEMA}}
    made = [
        defined | BESIDE.get(keyword, {}) | {keyword: value}
        for keyword in KEYWORDS
        for value in VALUES
        if keyword != "$ref" or not isinstance(value, str)
    ]
    return [*made, defined | {"$ref": "#/$defs/number"}]


def refusal(schema: dict[str, Any]) -> str:
    """Why the server cannot hold an output to it; nothing where it can."""
    try:
        piece_compiler().compile(Grammar.of("json_schema", schema))
    except InvalidArgument as error:
        return str(error)
    return ""


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_the_page_marks_what_the_server_refuses_and_nothing_else() -> None:
    """Every keyword with values of every kind, about 3,000 schemas, each judged by both."""
    assert NODE is not None
    judged = schemas()
    ran = subprocess.run(  # noqa: S603 - our own program
        [NODE, "--input-type=module", "--eval", PROGRAM],
        input=json.dumps(judged),
        capture_output=True,
        text=True,
        check=True,
    )
    for schema, mark in zip(judged, json.loads(ran.stdout), strict=True):
        reason = refusal(schema)
        assert bool(mark) == bool(reason), f"{schema}: the page: {mark!r}, the server: {reason!r}"
