import assert from "node:assert/strict";
import { test } from "node:test";
import { attend, eye, learned, sinusoids, softmax, times, turned } from "../../playground/maths/attending.js";
import { dot, random } from "../../playground/maths/vectors.js";
import { PRESETS, written } from "../../playground/screens/inside_presets.js";

const near = (a, b) => a.flat(9).forEach((value, at) => assert.ok(Math.abs(value - b.flat(9)[at]) < 1e-9, `${value} ${b.flat(9)[at]}`));

test("every example computes the value that the lecture gives", () => {
  for (const { state, checks } of Object.values(PRESETS)) {
    for (const [value, name, of] of checks) assert.equal(written(of(attend(state), state), value), value, name);
  }
});

test("attention is softmax(q kT / by) v, heads side by side, times W^O", () => {
  const x = [[1, 2], [3, -1]], head = { q: [[1, 0], [2, 1]], k: [[0, 1], [1, 1]], v: [[2, 0], [0, 3]] }, output = [[1, 0], [0, 1], [1, 1], [0, 2]];
  const { heads, joined, out } = attend({ x, heads: [head, head], output, measure: "dot", by: 2, isCausal: false });
  const [q, k, v] = [[[5, 2], [1, -1]], [[2, 3], [-1, 2]], [[2, 6], [6, -3]]];
  const weights = q.map((a) => softmax(k.map((b) => dot(a, b) / 2)));
  near(heads[0].weights, weights);
  near(joined, times(weights, v).map((row) => [...row, ...row]));
  near(out, times(joined, output));
});

test("a causal head looks at no later word, and given scores are used as they are", () => {
  const { heads } = attend({ x: eye(2), heads: [{ scores: [[0, 9], [Math.log(3), 0]] }], output: null, measure: "dot", by: 1, isCausal: true });
  near(heads[0].weights, [[1, 0], [0.75, 0.25]]);
  near(heads[0].sums, heads[0].weights);
});

test("sines and cosines are the formula's, and turned vectors keep their products by distance", () => {
  near(sinusoids(2, 4)[1], [Math.sin(1), Math.cos(1), Math.sin(0.01), Math.cos(0.01)]);
  const vector = [0.3, -1, 2, 0.5], product = (a, b) => dot(turned(vector, a), turned(vector, b));
  near([product(3, 5), product(13, 15)], [product(0, 2), product(28, 30)]);
});

test("a learned table comes to know which positions are near", () => {
  const draw = random(1);
  let table = Array.from({ length: 12 }, () => Array.from({ length: 8 }, () => draw() - 0.5));
  for (let step = 0; step < 200; step++) table = learned(table);
  for (let at = 1; at < 10; at++) assert.ok(dot(table[at], table[at + 1]) > dot(table[at], table[at + 2]));
});
