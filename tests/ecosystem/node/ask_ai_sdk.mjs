// `ai` with three providers: Responses, which is the default of OpenAI's, Messages, and chats; completions, embeddings.
import assert from "node:assert/strict";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const SAID = "The file is written.";
const baseURL = `${process.env.ATTENDANT_URL}/v1`;
const compatible = createOpenAICompatible({ name: "attendant", baseURL, apiKey: "none", includeUsage: true });
const request = { model: compatible.completionModel("tiny-gpt"), prompt: "The function", temperature: 0, maxOutputTokens: 12, maxRetries: 0 };

async function equalByStream(asked) {
  const whole = await generateText(asked);
  assert.ok(["stop", "length"].includes(whole.finishReason));
  let text = "";
  for await (const piece of streamText(asked).textStream) text += piece;
  assert.equal(text, whole.text);
  return whole;
}

assert.ok((await equalByStream(request)).text);
await equalByStream({ ...request, model: compatible.chatModel("tiny-chat"), prompt: "Hello" });

const { embeddings } = await embedMany({ model: compatible.textEmbeddingModel("tiny-embed"), values: ["win a prize", "lunch"] });
assert.equal(embeddings.length, 2);

const openai = createOpenAI({ baseURL, apiKey: "none" });
const anthropic = createAnthropic({ baseURL, apiKey: "none" });
const asked = [];
const tools = {
  weather: tool({
    description: "The weather of a city",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => (asked.push(city), `${city}: rain`),
  }),
};
const stateless = { providerOptions: { openai: { store: false } } };
const models = [
  [openai("agent"), stateless],
  [openai.chat("agent"), {}],
  [anthropic("agent"), {}],
  [compatible.chatModel("agent"), {}],
];
for (const [model, options] of models) {
  const turn = { model, tools, prompt: "Weather?", maxRetries: 0, stopWhen: stepCountIs(3), ...options };
  const whole = await generateText(turn);
  assert.equal(whole.text, SAID);
  assert.equal(whole.steps.length, 2);
  const streamed = streamText(turn);
  let text = "";
  for await (const piece of streamed.textStream) text += piece;
  assert.equal(text, SAID);
  assert.ok((await streamed.usage).outputTokens > 0);
}
assert.deepEqual(asked, Array(2 * models.length).fill("Ghent"));

// Without `store: false` a second turn names the first answer, which a server without a memory does not have.
const first = await generateText({ model: openai("agent"), prompt: "Hello", maxRetries: 0 });
const messages = [{ role: "user", content: "Hello" }, ...first.response.messages, { role: "user", content: "Again" }];
const again = { model: openai("agent"), messages, maxRetries: 0 };
await assert.rejects(generateText(again), (error) => error.statusCode === 400 && /store/.test(error.message));
assert.equal((await generateText({ ...again, ...stateless })).text, "Hello there.");
