"""The rules of a grammar for arguments that are literals of a language: of Python, or of Gemma.

Values of Python are JSON but for the words of booleans and of nothing. Gemma's texts stand between
marks of their own, so of a schema for it types, lists of values, alternatives, properties and
items are kept to, and nothing else.
"""

import json
from collections.abc import Mapping
from typing import Any

from service.families.call_forms import Literals
from service.grammars.source_text import literal
from service.http.openai.marked_scan import kinds_of

Schema = Mapping[str, Any]
_WORDS = {"boolean": '"True" | "False"', "null": '"None"'}
_PLAIN = ("integer", "number", "boolean", "null")
_DEFINED = ("$defs", "definitions")
NOTHING = '""'  # a rule of no text


class Rules:
    """The lines of a grammar, with a rule for each mark."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._marks: dict[str, str] = {}

    def mark(self, text: str) -> str:
        """The rule of a mark."""
        if text not in self._marks:
            self._marks[text] = f"mark{len(self._marks)}"
            self.lines.append(f"{self._marks[text]}: {literal(text)}")
        return self._marks[text]

    def sequence(self, before: str, rule: str, behind: str = "") -> str:
        """A rule with marks around it, if there are any."""
        marks = [self.mark(text) if text else "" for text in (before, behind)]
        return " ".join(filter(None, (marks[0], rule, marks[1])))

    def text_to(self, mark: str) -> str:
        """A rule of any text up to a mark, which ends it."""
        name = f"to_{self.mark(mark)}"
        line = f"{name}[lazy]: ANY_{name.upper()} {literal(mark)}"
        if line not in self.lines:
            self.lines += [line, rf"ANY_{name.upper()}: /(.|\n)*/"]
        return name


class LiteralRules:
    """Adds the rules of one function's arguments to the lines of a grammar."""

    def __init__(self, rules: Rules, form: Literals, place: int, root: Schema) -> None:
        """`root` is the schema of the arguments; errors of the grammar find the `place`."""
        self._rules, self._form, self._place, self._root = rules, form, place, root
        self._between = literal(form.between)
        self._names: dict[str, str] = {}  # of the rules of values, by their schemas
        self._num_rules = 0

    def arguments(self, *, are_any: bool) -> str:
        """The name of a rule for what stands between the brackets of a call."""
        if not self._root.get("properties") and not are_any:
            return self._add(NOTHING)
        return self._members(self._root, self._form.equals)

    def _add(self, ways: str, name: str = "") -> str:
        """The name of a new rule."""
        name = name or self._new_name()
        self._rules.lines.append(f"{name}: {ways}")
        return name

    def _new_name(self) -> str:
        self._num_rules += 1
        return f"literal{self._place}_{self._num_rules}"

    def _json(self, schema: Schema) -> str:
        """A rule of JSON, by whose name an error of the grammar is found."""
        defined = {name: self._root[name] for name in _DEFINED if name in self._root}
        self._num_rules += 1
        text = json.dumps({**schema, **defined}, ensure_ascii=False)
        return self._add(f"%json {text}", f"value{self._place}_{self._num_rules}_json")

    def _members(self, schema: Schema, equals: str) -> str:
        """Properties in their order; any where none are known."""
        known, required = schema.get("properties") or {}, schema.get("required") or ()
        if not known:
            one = self._add(f"/[A-Za-z_][A-Za-z0-9_]{{0,63}}/ {literal(equals)} {self._any()}")
            return self._add(f"({one} ({self._between} {one})*)?")
        following, ways = self._add(NOTHING), [NOTHING]
        for key, value in reversed(known.items()):  # each rule names the one behind it
            one = self._add(f"{literal(f'{key}{equals}')} {self._value(value)}")
            first, head = f"{one} {following}", f"{self._between} {one}"
            ways = [first] if key in required else [first, *ways]
            following = self._add(
                f"{head} {following}" if key in required else f"({head})? {following}"
            )
        return self._add(" | ".join(ways))

    def _value(self, schema: object) -> str:
        known = schema if isinstance(schema, Mapping) else {}
        text = json.dumps(known, sort_keys=True)
        if text not in self._names:
            self._names[text] = self._new_name()  # a schema may hold itself
            self._add(self._ways(known), self._names[text])
        return self._names[text]

    def _ways(self, schema: Schema) -> str:
        """The alternatives of one value."""
        kinds = kinds_of(schema)
        choices = [schema["const"]] if "const" in schema else schema.get("enum")
        if not self._form.quote:
            if kinds and kinds <= _WORDS.keys() and choices is None:
                return " | ".join(_WORDS[kind] for kind in sorted(kinds))
            return self._json(schema)
        if choices is not None:
            return " | ".join(map(self._written, choices))
        for parts in (schema.get("anyOf"), schema.get("oneOf")):
            if parts:
                return " | ".join(map(self._value, parts))
        if (target := self._target_of(schema.get("$ref"))) is not None:
            return self._value(target)
        return " | ".join(self._of_kind(kind, schema) for kind in sorted(kinds)) or self._any()

    def _of_kind(self, kind: str, schema: Schema) -> str:
        if kind in _PLAIN:
            return self._json({**schema, "type": kind})
        if kind == "string":
            return f"{self._rules.mark(self._form.quote)} {self._rules.text_to(self._form.quote)}"
        if kind == "object":
            return f'"{{" {self._members(schema, ":")} "}}"'
        item = self._value(schema.get("items"))
        items = f"{item} ({self._between} {item})*"
        return f'"[" {items} "]"' if schema.get("minItems") else f'"[" ({items})? "]"'

    def _any(self) -> str:
        kinds = ["string", *_PLAIN, "array", "object"]
        return self._value({"type": kinds} if self._form.quote else {})

    def _target_of(self, reference: object) -> object:
        """The definition that a reference names; None where it is none of these."""
        parts = reference.removeprefix("#/").split("/") if isinstance(reference, str) else []
        if len(parts) != 2 or parts[0] not in _DEFINED:
            return None
        return self._root.get(parts[0], {}).get(parts[1])

    def _written(self, value: object) -> str:
        """One of the values that a schema lists."""
        if not isinstance(value, str):
            return literal(json.dumps(value, ensure_ascii=False))
        quote = self._rules.mark(self._form.quote)
        return " ".join(filter(None, (quote, literal(value) if value else "", quote)))
