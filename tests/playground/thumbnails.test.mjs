import assert from "node:assert/strict";
import { test } from "node:test";

import { paint, shades } from "../../playground/maths/thumbnails.js";

const INDEX = Uint32Array.from({ length: 256 }, (_, at) => at);

test("a pixel has the colour of the largest weight below it, and other pixels stay", () => {
  const pixels = new Uint32Array(16).fill(7), matrix = [0, 0.5, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0.2];
  paint(pixels, 4, { left: 1, top: 2, width: 2, height: 2 }, matrix, 4, INDEX, 1);
  assert.deepEqual([...pixels], [7, 7, 7, 7, 7, 7, 7, 7, 7, 128, 0, 7, 7, 0, 255, 7]);
});

test("a matrix smaller than its picture is made larger cell by cell", () => {
  const pixels = new Uint32Array(16);
  paint(pixels, 4, { left: 0, top: 0, width: 4, height: 4 }, [0, 1, 0.5, 0], 2, INDEX, 1);
  assert.deepEqual([...pixels], [0, 0, 255, 255, 0, 0, 255, 255, 128, 128, 0, 0, 128, 128, 0, 0]);
});

test("of signed values the one farthest from nothing counts, whose colour is in the middle", () => {
  const pixels = new Uint32Array(2);
  paint(pixels, 2, { left: 0, top: 0, width: 2, height: 1 }, [0.2, -0.5, 0.1, 0], 4, INDEX, 0.5, true);
  assert.deepEqual([...pixels], [0, 153]);
});

test("shades are opaque pixels of a scale", () => {
  const made = shades((value) => [Math.round(255 * Math.max(0, value)), Math.round(255 * Math.max(0, -value)), 3], -1);
  assert.deepEqual([...new Uint8Array(made.slice(0, 1).buffer)], [0, 255, 3, 255]);
  assert.deepEqual([...new Uint8Array(made.slice(255).buffer)], [255, 0, 3, 255]);
});
