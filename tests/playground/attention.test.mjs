import assert from "node:assert/strict";
import { test } from "node:test";

import { largest, matricesOf, matrixOf, mean, pages, rollout, strongest, without } from "../../playground/maths/attention.js";
import { changed, cropped } from "../../playground/maths/differences.js";

const close = (actual, expected) => {
  assert.equal(actual.length, expected.length);
  expected.forEach((value, at) => assert.ok(Math.abs(actual[at] - value) < 1e-6, `${actual[at]} at ${at}, expected ${value}`));
};

test("a head's matrix is the part of its layer and head", () => {
  const weights = { layers: 2, heads: 3, rows: 1, columns: 2, values: Float32Array.from({ length: 12 }, (_, at) => at) };
  assert.deepEqual([...matrixOf(weights, 1, 2)], [10, 11]);
  assert.deepEqual(matricesOf(weights, 0, [2, 0]).map((each) => [...each]), [[4, 5], [0, 1]]);
  assert.equal(matricesOf(weights, 1).length, 3);
});

test("mean and largest are those of each cell", () => {
  const matrices = [Float32Array.of(1, 0, 0.25), Float32Array.of(0, 1, 0.75)];
  close(mean(matrices), [0.5, 0.5, 0.5]);
  close(largest(matrices), [1, 1, 0.75]);
});

test("rollout of one layer is half the layer and half the token itself, and of two layers their product", () => {
  const layer = Float32Array.of(0, 1, 1, 0);
  close(rollout([layer], 2), [0.5, 0.5, 0.5, 0.5]);
  const second = Float32Array.of(1, 0, 1, 0);
  close(rollout([second, layer], 2), [0.75, 0.25, 0.75, 0.25]);
  close(rollout([], 2), [1, 0, 0, 1]);
});

test("hidden keys and queries have no weight, and what remains is scaled to one only on request", () => {
  const matrix = [0.5, 0.25, 0.25, 0.2, 0.4, 0.4];
  close(without(matrix, [false, true], [true, false, false], false), [0, 0.25, 0.25, 0, 0, 0]);
  close(without(matrix, [false, true], [true, false, false], true), [0, 0.5, 0.5, 0, 0, 0]);
});

test("lines are those above a threshold, or the strongest that make a share of their row, the strongest last", () => {
  const matrix = [0.7, 0.2, 0.1, 0, 0.4, 0.6];
  const places = (limits) => strongest(matrix, 3, limits).map(({ row, column }) => [row, column]);
  assert.deepEqual(places({ threshold: 0.4 }), [[1, 1], [1, 2], [0, 0]]);
  assert.deepEqual(places({ share: 0.85 }), [[0, 1], [1, 1], [1, 2], [0, 0]]);
  assert.deepEqual(places({ share: 0.5 }), [[1, 2], [0, 0]]);
  assert.deepEqual(places({ threshold: 0, most: 1 }), [[0, 0]]);
  assert.equal(strongest(matrix, 3, { share: 1 }).length, 5);
});

test("pages have all layers once, no more values than the limit, and the page that is needed first before the others", () => {
  const perLayer = 12 * 128 * 128, limit = 2 ** 21;
  assert.deepEqual(pages(12, perLayer, limit), [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]);
  assert.deepEqual(pages(12, perLayer, limit, 7)[0], [6, 7, 8, 9, 10, 11]);
  assert.deepEqual(pages(6, 10, limit), [[0, 1, 2, 3, 4, 5]]);
  assert.deepEqual(pages(3, 2 * limit, limit), [[0], [1], [2]]);
  for (let layers = 1; layers < 30; layers++) {
    for (const fits of [1, 2, 3, 7, 40]) {
      const made = pages(layers, 10, 10 * fits);
      assert.deepEqual(made.flat(), Array.from({ length: layers }, (_, layer) => layer));
      assert.ok(made.every((page) => page.length <= fits));
    }
  }
});

test("changed cells are those that moved by more than a margin", () => {
  assert.deepEqual(changed([0.1, 0.5, 0.9], [0.11, 0.6, 0.5]), [1, 2]);
});

test("a cropped matrix has the first rows and columns", () => {
  assert.deepEqual([...cropped(Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8, 9), 3, 2, 2)], [1, 2, 4, 5]);
});
