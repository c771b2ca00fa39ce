// Keywords of a schema that the server does not take, with their lines.

import assert from "node:assert/strict";
import { test } from "node:test";

import { schemaMarks } from "../../playground/maths/schema_keywords.js";

const marked = (schema) => [...schemaMarks(JSON.stringify(schema)).matchAll(/“([^”]*)”/g)].map(([, place]) => place);

test("a mark says the line, the place, the value and what is expected", () => {
  const schema = { type: "object", properties: { name: { type: "string", minLength: "3" }, "a,\"[b": { not: {} } } };
  assert.equal(schemaMarks(JSON.stringify(schema, null, 2)), 'Line 6: “properties.name.minLength” is "3", expected a whole number from 0.\nLine 9: “properties.a,"[b.not” is nothing that outputs can be held to.');
});

test("schemas are looked for where the server reads them, and nowhere else", () => {
  const wrong = { uniqueItems: true };
  for (const [schema, place] of [
    [{ properties: { not: wrong } }, "properties.not"], [{ patternProperties: { "^a": wrong } }, "patternProperties.^a"], [{ additionalProperties: wrong }, "additionalProperties"],
    [{ items: wrong }, "items"], [{ items: [{}, wrong] }, "items.1"], [{ prefixItems: [wrong] }, "prefixItems.0"], [{ additionalItems: wrong }, "additionalItems"],
    [{ anyOf: [{}, { oneOf: [wrong] }] }, "anyOf.1.oneOf.0"], [{ allOf: [wrong] }, "allOf.0"], [{ $defs: { of: wrong } }, "$defs.of"], [{ definitions: { of: wrong } }, "definitions.of"],
  ]) assert.deepEqual(marked(schema), [`${place}.uniqueItems`]);
  for (const schema of [{ enum: [wrong] }, { const: wrong }, { default: wrong }, { examples: [wrong] }, { title: "not", "x-mine": wrong }, { properties: { uniqueItems: true, __proto__: {} } }]) assert.deepEqual(marked(schema), []);
});

test("formats are those of texts: what a number says of itself is not read, and a name that is not known is an annotation", () => {
  assert.deepEqual(marked({ format: 32 }), ["format"]);
  assert.deepEqual(marked({ type: ["string", "null"], format: 32 }), ["format"]);
  assert.deepEqual(marked({ type: "integer", format: 32 }), []);
  assert.deepEqual(marked({ format: "int32" }), []);
});

test("three marks are shown, and how many more there are", () => {
  const schema = { if: {}, then: {}, else: {}, not: {}, contains: {} };
  assert.match(schemaMarks(JSON.stringify(schema)), /^(Line 1: .*\n){3}And 2 more\.$/);
});

test("deep schemas are read to a depth, and wide ones at once", () => {
  let deep = { not: {} };
  for (let depth = 0; depth < 2000; depth += 1) deep = { items: deep };
  assert.deepEqual(marked(deep), []);
  const wide = Object.fromEntries([...Array(3000).keys()].map((each) => [`p${each}`, { type: "string" }]));
  assert.deepEqual(marked({ properties: wide }), []);
});
