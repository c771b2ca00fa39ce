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

test("a generation is a completion of OpenAI's library, with its fields and the others in extra_body", () => {
  const sampling_params = { temperature: 0.8, top_k: 5, max_tokens: 60, stop: [], logprobs: 20, seed: 7, fit_max_tokens: true, n: 1 };
  const written = inPython({ path: "api/Generate", body: { model: "gpt", text: "Once", sampling_params }, isStream: true }, BASE, false);
  for (const line of ['client.completions.create(', '    model="gpt",', '    prompt="Once",', "    logprobs=5,", "    temperature=0.8,", "    seed=7,", "    stream=True,", '"top_k": 5', "for chunk in answer:"])
    assert.ok(written.includes(line), `${line} in ${written}`);
  assert.doesNotMatch(written, /fit_max_tokens|stop=/);
  const ids = inPython({ path: "api/GenerateUnary", body: { model: "gpt", token_ids: { ids: [5, 6] }, sampling_params: { stop: ["\n"] } } }, BASE, true);
  assert.match(ids, /prompt=\[\s+5,\s+6\s+\],\n {4}stop=\[\s+"\\n"\s+\],\n\)\nprint\(answer\)/);
  assert.match(ids, /api_key=os\.environ\["TOKEN"\]/);
});

test("a conversation is a chat, and texts to embed are embeddings", () => {
  const chat = inPython({ path: "api/Generate", body: { model: "talk", conversation: { messages: [{ role: "user", content: "Hi" }] }, sampling_params: { logprobs: 20 } }, isStream: true }, BASE, false);
  assert.match(chat, /client\.chat\.completions\.create\(\n {4}model="talk",\n {4}messages=[\s\S]*logprobs=True,\n {4}top_logprobs=20,\n {4}stream=True,/);
  assert.match(inPython({ path: "api/Embed", body: { model: "mini", texts: ["a"] } }, BASE, false), /client\.embeddings\.create\(\n {4}model="mini",\n {4}input=/);
  assert.match(inPython({ path: "api/Embed", body: { model: "mini", texts: ["a"], dimensions: 2, prompt_name: "query" } }, BASE, false), /embeddings\.create\([\s\S]*\n {4}dimensions=2,\n {4}extra_body=\{\s+"prompt_name": "query"\s+\},/);
  assert.match(inPython({ path: "api/Embed", body: { model: "mini", texts: ["a"], prompt: "" } }, BASE, false), /requests\.post/);
});

test("a chat has the budget of its thoughts and the variables of its template", () => {
  const body = { model: "talk", conversation: { messages: [], template_variables: '{"enable_thinking": false}' }, sampling_params: { max_reasoning_tokens: 0 } };
  assert.match(inPython({ path: "api/Generate", body }, BASE, false), /extra_body=\{\s+"chat_template_kwargs": \{\s+"enable_thinking": False\s+\},\s+"thinking_token_budget": 0/);
});

test("a form is response_format of a chat, and structured_outputs otherwise", () => {
  const asked = (prompt, form) => inPython({ path: "api/Generate", body: { model: "talk", ...prompt, sampling_params: form }, isStream: true }, BASE, false);
  const chat = { conversation: { messages: [{ role: "user", content: "Hi" }] } }, schema = '{"type": "object"}';
  assert.match(asked(chat, { json_schema: schema }), /response_format=\{\s+"type": "json_schema",\s+"json_schema": \{\s+"name": "answer",\s+"schema": \{\s+"type": "object"/);
  assert.match(asked(chat, { regex: "a+" }), /extra_body=\{\s+"structured_outputs": \{\s+"regex": "a\+"/);
  assert.match(asked({ text: "Hi" }, { json_schema: schema }), /"structured_outputs": \{\s+"json": \{\s+"type": "object"/);
  assert.match(asked({ text: "Hi" }, { choice: { texts: ["yes", "no"] } }), /"structured_outputs": \{\s+"choice": \[\s+"yes",\s+"no"/);
});

test("a ranking is a call of Cohere's library, unless it has more than that takes", () => {
  const body = { model: "match", query: "a", documents: ["b", "c"], top_n: 1 };
  assert.match(inPython({ path: "api/Rerank", body }, BASE, true), /import cohere\n\nclient = cohere\.ClientV2\(base_url="http:\/\/localhost:8000", api_key=os\.environ\["TOKEN"\]\)\nanswer = client\.rerank\(\n {4}model="match",\n {4}query="a",\n {4}documents=\[[\s\S]*top_n=1,\n\)/);
  assert.match(inPython({ path: "api/Rerank", body: { ...body, raw_scores: true } }, BASE, false), /requests\.post\([\s\S]*True/);
});

test("what OpenAI's API has no call for goes by requests", () => {
  for (const [path, body] of [["api/Classify", { model: "spam", texts: ["a"] }], ["api/GenerateUnary", { model: "dates", text: "a", sampling_params: { beam_width: 4, n: 4 } }],
    ["api/GenerateUnary", { model: "gpt", text: "a", sampling_params: { max_tokens: 0, prompt_logprobs: 1 } }], ["api/Generate", { model: "talk", conversation: { messages: [], tools: [] } }]])
    assert.match(inPython({ path, body }, BASE, false), new RegExp(`requests\\.post\\(\n {4}"${BASE}/${path}",`));
});

test("tensors go by Triton's library, and every form has the body", () => {
  const call = { path: "v2/models/spam/infer", body: { inputs: [{ name: "text", datatype: "BYTES", shape: [1, 1], data: ["a"] }] } };
  assert.match(inPython(call, BASE, false), /InferenceServerClient\("localhost:8000"\)[\s\S]*client\.infer\("spam", inputs\)/);
  assert.ok(curl(call, BASE, false).includes(JSON.stringify(call.body)));
  assert.match(inJavaScript(call, BASE, true), /await fetch\("http:\/\/localhost:8000\/v2\/models\/spam\/infer"[\s\S]*Bearer \$\{process\.env\.TOKEN\}/);
});
