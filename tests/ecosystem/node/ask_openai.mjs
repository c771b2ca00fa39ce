// `openai` for Node: models, completions and chats whole and streamed, embeddings, and errors by their class.
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.env.ATTENDANT_URL}/v1`, apiKey: "none", maxRetries: 0 });
const greedy = { model: "tiny-gpt", prompt: "The function", temperature: 0, max_tokens: 12 };

const names = [];
for await (const model of client.models.list()) names.push(model.id);
assert.ok(names.includes("tiny-gpt"));

const answer = await client.completions.create(greedy);
assert.ok(answer.choices[0].text);
assert.ok(answer.usage.completion_tokens > 0);
let text = "";
for await (const event of await client.completions.create({ ...greedy, stream: true })) {
  text += event.choices[0].text;
}
assert.equal(text, answer.choices[0].text);

const chat = {
  model: "tiny-chat",
  messages: [{ role: "user", content: "Hello" }],
  temperature: 0,
  max_completion_tokens: 12,
};
const reply = await client.chat.completions.create(chat);
assert.equal(reply.choices[0].message.role, "assistant");
let said = "";
for await (const event of await client.chat.completions.create({ ...chat, stream: true })) {
  said += event.choices[0].delta.content ?? "";
}
assert.equal(said, reply.choices[0].message.content);

// The client asks for base64 unless told otherwise, and decodes it.
const input = ["win a prize", "lunch"];
const decoded = await client.embeddings.create({ model: "tiny-embed", input });
const plain = await client.embeddings.create({ model: "tiny-embed", input, encoding_format: "float" });
assert.deepEqual(
  decoded.data.map((each) => Array.from(each.embedding, Math.fround)),
  plain.data.map((each) => Array.from(each.embedding, Math.fround)),
);

await assert.rejects(client.completions.create({ ...greedy, model: "absent" }), OpenAI.NotFoundError);
await assert.rejects(
  client.chat.completions.create({ model: "tiny-gpt", messages: [{ role: "user", content: "x" }] }),
  (error) => error instanceof OpenAI.BadRequestError && error.code === "no_chat_template",
);
const left = await client.completions.create({ ...greedy, max_tokens: 400, stream: true });
for await (const event of left) {
  assert.ok(event.choices.length);
  break;
}
