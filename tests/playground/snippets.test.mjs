// Calls of screens in the words of other programs.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { curl, inGrpc, inJavaScript, inPython } from "../../playground/api/snippets.js";

const BASE = "http://localhost:8000";
const { paths } = JSON.parse(readFileSync(new URL("../../docs/reference/openapi.json", import.meta.url)));

test("every method of the typed API has the name that gRPC has for it", () => {
  const operations = Object.entries(paths).filter(([path]) => /^\/api\/[A-Z]/.test(path)).map(([path, { post }]) => [path.slice(1), post["x-operation"]]);
  assert.ok(operations.length > 10);
  for (const [path, operation] of operations) assert.ok(inGrpc({ path, body: {} }, BASE, false).endsWith(`localhost:8001 ${operation.slice(1)}`), path);
});

test("gRPC has the body, the token and no TLS where the page has none", () => {
  const call = { path: "api/Classify", body: { model: "spam", texts: ["it's"] } };
  assert.match(inGrpc(call, BASE, true), /grpcurl -plaintext \\\n {2}-H "Authorization: Bearer \$TOKEN" \\\n {2}-d '\{"model":"spam","texts":\["it'\\''s"\]\}'/);
  assert.doesNotMatch(inGrpc(call, "https://models.example", false), /plaintext|TOKEN/);
  assert.match(inGrpc({ path: "v2/models/spam/infer", body: {} }, BASE, false), /another form/);
});

test("Python has the call that the page makes, its token and its stream", () => {
  const body = { model: "gpt", text: "Once", sampling_params: { temperature: 0.8, n: 1 } }, written = inPython({ path: "api/Generate", body, isStream: true }, BASE, true);
  assert.match(written, /^import os\n\nimport requests\n\nanswer = requests\.post\(\n {4}"http:\/\/localhost:8000\/api\/Generate",\n {4}json=\{/);
  for (const part of ['"temperature": 0.8', "stream=True", "Bearer {os.environ['TOKEN']}", "text/event-stream", "for line in answer.iter_lines():"]) assert.ok(written.includes(part), part);
  assert.match(inPython({ path: "api/Embed", body: { model: "mini", texts: ["a"], is: true } }, BASE, false), /"is": True[\s\S]*print\(answer\.json\(\)\)/);
});

test("every form has the body", () => {
  const call = { path: "v2/models/spam/infer", body: { inputs: [{ name: "text", datatype: "BYTES", shape: [1, 1], data: ["a"] }] } };
  assert.ok(curl(call, BASE, false).includes(JSON.stringify(call.body)));
  assert.match(inJavaScript(call, BASE, true), /await fetch\("http:\/\/localhost:8000\/v2\/models\/spam\/infer"[\s\S]*Bearer \$\{process\.env\.TOKEN\}/);
});
