// `ai` with `@ai-sdk/openai-compatible`: its schemas of completions and chats, their streams, and embeddings.
import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateText, streamText } from "ai";

const provider = createOpenAICompatible({ name: "attendant", baseURL: `${process.env.ATTENDANT_URL}/v1`, apiKey: "none" });
const request = { model: provider.completionModel("tiny-gpt"), prompt: "The function", temperature: 0, maxOutputTokens: 12, maxRetries: 0 };

const whole = await generateText(request);
assert.ok(whole.text);
assert.ok(["stop", "length"].includes(whole.finishReason));
const stream = streamText(request);
let text = "";
for await (const piece of stream.textStream) text += piece;
assert.equal(text, whole.text);

const chat = { ...request, model: provider.chatModel("tiny-chat"), prompt: "Hello" };
const reply = await generateText(chat);
assert.ok(["stop", "length"].includes(reply.finishReason));
let said = "";
for await (const piece of streamText(chat).textStream) said += piece;
assert.equal(said, reply.text);

const { embeddings } = await embedMany({ model: provider.textEmbeddingModel("tiny-embed"), values: ["win a prize", "lunch"] });
assert.equal(embeddings.length, 2);
