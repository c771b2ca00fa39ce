// Forms of outputs, as far as the page can judge them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { faultOf, lackOf } from "../../playground/maths/forms.js";

const SCHEMA = JSON.stringify({ type: "object", properties: { who: { type: "object", required: ["name"] }, all: { type: "array", items: { required: ["id"] } } }, required: ["who"] });

test("a schema is an object of JSON, and an expression has no look-around", () => {
  assert.equal(faultOf("json_schema", SCHEMA), "");
  assert.match(faultOf("json_schema", '{"type": '), /^This is no JSON: ./);
  assert.equal(faultOf("json_schema", "[]"), "A schema is an object, in braces.");
  for (const each of ["(?=a)b", "a(?!b)", "(?<=a)b", "(?<!a)b"]) assert.match(faultOf("regex", each), /^Look-around/);
  for (const each of ["(?:a|b)+", "(?P<name>a)", "(?i)a"]) assert.equal(faultOf("regex", each), "");
  assert.match(faultOf("choice", " "), /^Write/);
  assert.equal(faultOf("", ""), "");
});

test("an output is JSON with the keys that its schema requires, at any depth", () => {
  assert.equal(lackOf("json_schema", SCHEMA, '{"who": {"name": "a"}, "all": [{"id": 1}]}'), "");
  assert.match(lackOf("json_schema", SCHEMA, '{"who": {"na'), /^it is no JSON: ./);
  assert.equal(lackOf("json_schema", SCHEMA, "{}"), "it has no “who”");
  assert.equal(lackOf("json_schema", SCHEMA, "7"), "it is no object");
  assert.equal(lackOf("json_schema", SCHEMA, '{"who": {}}'), "who has no “name”");
  assert.equal(lackOf("json_schema", SCHEMA, '{"who": {"name": ""}, "all": [{"id": 1}, {}]}'), "all[1] has no “id”");
});

test("an output matches its expression whole, and is one of its texts", () => {
  assert.equal(lackOf("regex", "a|bc", "bc"), "");
  assert.equal(lackOf("regex", "a|b", "ab"), "the expression does not match all of it");
  assert.equal(lackOf("regex", "(?P<name>a)", "x"), ""); // which a browser does not read
  assert.equal(lackOf("choice", "yes\nno", "no"), "");
  assert.equal(lackOf("choice", "yes\nno", "n"), "it is none of the texts");
});
