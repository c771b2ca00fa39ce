// `@huggingface/inference` at the addresses of models: classes, features, generated text, of which
// it asks for a stream in the form of completions, and chats.
import assert from "node:assert/strict";
import { InferenceClient } from "@huggingface/inference";

const client = new InferenceClient();
const at = (model) => ({ endpointUrl: `${process.env.ATTENDANT_URL}/models/${model}` });

const classes = await client.textClassification({ ...at("tiny-spam"), inputs: "win a prize" });
assert.deepEqual(classes.map((each) => each.label).sort(), ["ham", "spam"]);
assert.ok(Math.abs(classes.reduce((sum, each) => sum + each.score, 0) - 1) < 1e-4);

const features = await client.featureExtraction({ ...at("tiny-embed"), inputs: "win a prize" });
assert.ok(features.flat(Infinity).every(Number.isFinite));

const parameters = { max_new_tokens: 8, do_sample: false, return_full_text: false };
const request = { ...at("tiny-gpt"), inputs: "The function", parameters };
const { generated_text: text } = await client.textGeneration(request);
assert.equal(typeof text, "string");
let streamed = "";
for await (const piece of client.textGenerationStream(request)) streamed += piece.choices[0].text;
assert.ok(streamed.length > 0);

const chat = { ...at("tiny-chat"), messages: [{ role: "user", content: "Hello" }], temperature: 0, max_tokens: 12 };
const reply = await client.chatCompletion(chat);
let said = "";
for await (const piece of client.chatCompletionStream(chat)) said += piece.choices[0].delta.content ?? "";
assert.equal(said, reply.choices[0].message.content);
