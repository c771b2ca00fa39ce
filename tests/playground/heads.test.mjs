import assert from "node:assert/strict";
import { test } from "node:test";

import { LABELS, labelOf, scores } from "../../playground/maths/heads.js";

const SIZE = 6;
const plain = (ids) => ids.map((id) => ({ id, isSpecial: false }));
const alone = { queries: plain([1, 2, 3, 4, 5, 6]), keys: plain([1, 2, 3, 4, 5, 6]) };
const enclosed = (() => {
  const tokens = [{ id: 101, isSpecial: true }, ...plain([7, 8, 7, 9]), { id: 102, isSpecial: true }];
  return { queries: tokens, keys: tokens };
})();
/** A matrix whose row has all its weight at one column. */
const pointing = (to) => {
  const matrix = new Float32Array(SIZE * SIZE);
  for (let row = 0; row < SIZE; row++) matrix[row * SIZE + to(row)] = 1;
  return matrix;
};
const label = (matrix, tokens) => labelOf(scores(matrix, tokens)).label;

test("a head that looks one token back, ahead, or at itself is called so", () => {
  assert.equal(label(pointing((row) => Math.max(0, row - 1)), alone), "previous");
  assert.equal(label(pointing((row) => Math.min(SIZE - 1, row + 1)), alone), "next");
  assert.equal(label(pointing((row) => row), alone), "self");
  assert.deepEqual(scores(pointing((row) => row), alone).self, 1);
});

test("a head that looks at the first token or at separators is called so", () => {
  assert.equal(label(pointing(() => 0), alone), "first");
  assert.equal(label(pointing((row) => (row % 2 ? 0 : SIZE - 1)), enclosed), "first");
});

test("a head that looks at other places of the same token is called so, and one of a text that repeats nothing is not", () => {
  const same = pointing((row) => ({ 1: 3, 3: 1 })[row] ?? 2);
  assert.equal(scores(same, enclosed).same, 1);
  assert.equal(label(same, enclosed), "same");
  assert.equal(scores(same, alone).same, 0);
});

test("a head that looks at all tokens alike is broad, also where each row sees only those before it", () => {
  const even = new Float32Array(SIZE * SIZE).fill(1 / SIZE);
  assert.equal(label(even, alone), "broad");
  assert.ok(Math.abs(scores(even, alone).broad - 1) < 1e-6);
  const causal = new Float32Array(SIZE * SIZE);
  for (let row = 0; row < SIZE; row++) causal.fill(1 / (row + 1), row * SIZE, row * SIZE + row + 1);
  assert.ok(Math.abs(scores(causal, alone).broad - 1) < 1e-6);
});

test("a head without a habit is mixed, and its score is what the best label lacks", () => {
  const matrix = pointing((row) => [3, 4, 5, 1, 2, 2][row]);
  assert.equal(label(matrix, alone), "mixed");
  const { score } = labelOf({ previous: 0.3, next: 0.1, self: 0, first: 0, same: 0, broad: 0.4 });
  assert.ok(Math.abs(score - 0.6) < 1e-9);
});

test("positions mean nothing where queries are another text than keys, but the same token does", () => {
  const cross = { queries: plain([1, 2]), keys: plain([2, 1, 3]), isCross: true };
  const of = scores([0, 1, 0, 1, 0, 0], cross);
  assert.deepEqual([of.self, of.previous, of.next, of.first, of.same], [0, 0, 0, 0, 1]);
});

test("every label has a name", () => {
  for (const name of [...Object.keys(scores(pointing((row) => row), alone)), "mixed"]) assert.ok(LABELS[name], name);
});
