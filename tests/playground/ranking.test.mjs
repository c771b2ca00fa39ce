// Rankings of several answers, and the ends of bars.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ends, merged } from "../../playground/maths/ranking.js";

const places = (all) => all.map(({ index }) => index);

test("rankings of parts are one ranking of the list", () => {
  const parts = [[{ index: 1, score: 0.9 }, { index: 0, score: 0.2 }], [{ index: 0, score: 0.5 }, { index: 1, score: 0.2 }], [{ score: 0.95 }]];
  assert.deepEqual(places(merged(parts, 2)), [4, 1, 2, 0, 3]);
  assert.deepEqual(places(merged(parts, 2, 2)), [4, 1]);
});

test("one answer keeps the server's order, where scores are rounded to equal ones", () => {
  assert.deepEqual(places(merged([[{ index: 2, score: 1 }, { index: 0, score: 1 }, { index: 1, score: 0 }]], 5)), [2, 0, 1]);
});

test("bars of probabilities end at 1, and those of numbers have 0 among them", () => {
  assert.deepEqual(ends([0.2, 0.4], false), { least: 0, most: 1 });
  assert.deepEqual(ends([-3, 2], true), { least: -3, most: 2 });
  assert.deepEqual(ends([-3, -2], true), { least: -3, most: 0 });
  assert.deepEqual(ends([5, 2], true), { least: 0, most: 5 });
});
