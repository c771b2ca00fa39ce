// `@openai/agents`: a run with a function over Responses and over chats, whole and streamed.
import assert from "node:assert/strict";
import { Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, run, setTracingDisabled, tool } from "@openai/agents";
import OpenAI from "openai";

setTracingDisabled(true);
const client = new OpenAI({ baseURL: `${process.env.ATTENDANT_URL}/v1`, apiKey: "none", maxRetries: 0 });
const asked = [];
const weather = tool({
  name: "weather",
  description: "The weather of a city",
  // Strict parameters become a grammar, whose forced text would lead this model off its table.
  strict: false,
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: true },
  execute: async ({ city }) => (asked.push(city), `${city}: rain`),
});
for (const Model of [OpenAIResponsesModel, OpenAIChatCompletionsModel]) {
  const agent = new Agent({ name: "helper", instructions: "Be brief.", tools: [weather], model: new Model(client, "agent") });
  assert.equal((await run(agent, "Weather?")).finalOutput, "The file is written.");
  const streamed = await run(agent, "Weather?", { stream: true });
  let text = "";
  for await (const piece of streamed.toTextStream()) text += piece;
  await streamed.completed;
  assert.equal(text, "The file is written.");
}
assert.deepEqual(asked, Array(4).fill("Ghent"));
