import assert from "node:assert/strict";
import test from "node:test";

import { edited, shaped } from "../../playground/maths/sampling.js";

const LOGITS = [3, 2, 1, 0, -1, -2, -3, -4];
const SUM = Math.log(LOGITS.reduce((sum, logit) => sum + Math.exp(logit), 0));
const candidates = (count = LOGITS.length) => LOGITS.slice(0, count).map((logit, id) => ({ id, logit, logprob: logit - SUM }));
const softmax = (logits) => {
  const weights = logits.map(Math.exp), total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / total);
};
const near = (actual, expected) => actual.forEach((value, index) => assert.ok(Math.abs(value - expected[index]) < 1e-9, `${value} at ${index}, expected ${expected[index]}`));

test("without settings the probabilities are those of the model, and the others have what is left", () => {
  const whole = shaped(candidates(), {});
  near(whole.rows.map((row) => row.probability), softmax(LOGITS));
  assert.equal(whole.beyond, 0);
  const part = shaped(candidates(3), {});
  near(part.rows.map((row) => row.probability), softmax(LOGITS));
  near([part.beyond], [1 - part.rows.at(-1).cumulated]);
  assert.equal(part.certainty, "exact");
});

test("temperature divides logits; 0 leaves the likeliest", () => {
  near(shaped(candidates(), { temperature: 0.5 }).rows.map((row) => row.probability), softmax(LOGITS.map((logit) => 2 * logit)));
  const greedy = shaped(candidates(3), { temperature: 0 });
  assert.deepEqual(greedy.rows.map((row) => row.probability), [1, 0, 0]);
  assert.deepEqual([greedy.kept, greedy.cut, greedy.beyond], [1, "temperature 0", 0]);
});

test("the share beyond the candidates is estimated well at any temperature", () => {
  for (const temperature of [0.2, 0.5, 0.9, 1.1, 2, 10]) {
    const probabilities = softmax(LOGITS.map((logit) => logit / temperature)), rest = probabilities.slice(3).reduce((sum, each) => sum + each, 0);
    const { beyond, certainty } = shaped(candidates(3), { temperature }, [], [], LOGITS.length);
    assert.equal(certainty, "estimate");
    assert.ok(Math.abs(beyond - rest) < 0.15, `${beyond} at ${temperature}, expected ${rest}`);
  }
});

test("top-k, top-p and min-p keep the fewest, and share the whole among these", () => {
  assert.deepEqual([shaped(candidates(), { top_k: 2 }).kept, shaped(candidates(4), { top_k: 2 }).certainty], [2, "exact"]);
  near(shaped(candidates(), { top_k: 2 }).rows.map((row) => row.probability), [...softmax([3, 2]), 0, 0, 0, 0, 0, 0]);
  const [first, second] = softmax(LOGITS);
  assert.deepEqual([shaped(candidates(), { top_p: first - 1e-6 }).kept, shaped(candidates(), { top_p: first + 1e-6 }).kept, shaped(candidates(), { top_p: first + second + 1e-6 }).kept], [1, 2, 3]);
  assert.equal(shaped(candidates(), { min_p: Math.exp(-1) * 0.99 }).kept, 2);
  const { cut, kept } = shaped(candidates(), { top_k: 5, top_p: 0.7, min_p: 0.01 });
  assert.deepEqual([cut, kept], ["top-p", 2]);
});

test("filters that reach beyond the candidates give no exact share", () => {
  assert.equal(shaped(candidates(3), { top_k: 5 }).certainty, "estimate");
  assert.equal(shaped(candidates(3), { min_p: 0.001 }).certainty, "estimate");
  assert.equal(shaped(candidates(3), { top_p: 0.999 }).kept, 3);
  assert.ok(shaped(candidates(3), { top_p: 0.999 }).beyond > 0);
});

test("bias is added first, the repetition penalty divides positive logits and multiplies negative ones, the others are subtracted", () => {
  const settings = { logit_bias: { 4: 2 }, repetition_penalty: 2, presence_penalty: 0.5, frequency_penalty: 0.25 };
  const logits = candidates().map((each) => edited(each, settings, new Set([0, 4, 5]), new Map([[5, 2]])));
  assert.deepEqual(logits, [1.5, 2, 1, 0, 0.5, -2 * 2 - 0.5 - 0.5, -3, -4]);
  const { rows } = shaped(candidates(), settings, [0, 4], [5, 5]);
  assert.deepEqual(rows.map((row) => row.id), [1, 0, 2, 4, 3, 6, 7, 5]);
});
