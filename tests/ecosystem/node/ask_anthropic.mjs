// `@anthropic-ai/sdk`: messages whole and streamed, a function and its result, counts, models, errors.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ baseURL: process.env.ATTENDANT_URL, apiKey: "none", maxRetries: 0 });
const tools = [{ name: "weather", description: "The weather of a city", input_schema: { type: "object", properties: { city: { type: "string" } } } }];
const asked = { model: "agent", max_tokens: 64, messages: [{ role: "user", content: "Weather?" }] };

const plain = await client.messages.create(asked);
assert.equal(plain.content[0].text, "Hello there.");
assert.equal(plain.stop_reason, "end_turn");
const stream = client.messages.stream(asked);
let text = "";
stream.on("text", (piece) => (text += piece));
const built = await stream.finalMessage();
assert.equal(text, "Hello there.");
assert.deepEqual(built.content, plain.content);

const called = await client.messages.create({ ...asked, tools });
assert.equal(called.stop_reason, "tool_use");
const call = called.content.find((block) => block.type === "tool_use");
assert.deepEqual([call.name, call.input], ["weather", { city: "Ghent" }]);
const streamed = await client.messages.stream({ ...asked, tools }).finalMessage();
assert.deepEqual(streamed.content.find((block) => block.type === "tool_use").input, call.input);
const result = { type: "tool_result", tool_use_id: call.id, content: [{ type: "text", text: "rain" }] };
const messages = [...asked.messages, { role: "assistant", content: called.content }, { role: "user", content: [result] }];
const answered = await client.messages.create({ ...asked, tools, messages });
assert.equal(answered.content[0].text, "The file is written.");

const counted = await client.messages.countTokens({ model: "agent", messages: asked.messages });
assert.equal(counted.input_tokens, plain.usage.input_tokens + (plain.usage.cache_read_input_tokens ?? 0));

const names = [];
for await (const model of client.models.list()) names.push(model.id);
assert.ok(names.includes("agent"));

await assert.rejects(client.messages.create({ ...asked, model: "absent" }), Anthropic.NotFoundError);
await assert.rejects(client.messages.create({ ...asked, max_tokens: -1 }), Anthropic.BadRequestError);
