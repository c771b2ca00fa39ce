import assert from "node:assert/strict";
import { test } from "node:test";
import { extended, seen } from "../../playground/maths/strokes.js";

const W = 280;
/** A pad with one filled rectangle. */
function pad(left, top, wide, tall, value = 255) {
  const ink = new Uint8ClampedArray(W * W);
  for (let y = top; y < top + tall; y++) ink.fill(value, y * W + left, y * W + left + wide);
  return ink;
}
const box = (image, columns) => {
  const at = [...image.keys()].filter((index) => image[index] > 127), xs = at.map((index) => index % columns), ys = at.map((index) => Math.floor(index / columns));
  return [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
};

test("a drawing anywhere on the pad becomes 20 of 28 pixels, in the middle", () => {
  for (const [left, top] of [[10, 10], [200, 100], [130, 130]]) {
    const image = seen(pad(left, top, 40, 80), W, 28, 28);
    assert.deepEqual(box(image, 28), [9, 18, 4, 23], `${left} ${top}`);
  }
});

test("the larger drawing of the same shape gives the same pixels", () => {
  assert.deepEqual(seen(pad(20, 20, 60, 120), W, 28, 28), seen(pad(100, 90, 30, 60), W, 28, 28));
});

test("the centre of mass is in the middle, as far as the drawing fits", () => {
  const ink = pad(100, 40, 20, 200); // an L: its foot draws the centre to the right
  pad(100, 220, 100, 20).forEach((value, at) => { ink[at] ||= value; });
  const image = seen(ink, W, 28, 28), mass = image.reduce((sum, value) => sum + value, 0);
  const x = image.reduce((sum, value, at) => sum + value * ((at % 28) + 0.5), 0) / mass;
  assert.ok(Math.abs(x - 14) < 0.05, String(x));
});

test("a very small image is filled, and nothing is cut off", () => {
  const image = seen(pad(50, 30, 60, 180), W, 8, 8);
  assert.deepEqual(box(image, 8).slice(2), [0, 7]);
  assert.ok(Math.abs(image.reduce((sum, value) => sum + value, 0) / 255 - 64 / 3) < 0.1);
});

test("without fitting the pad is scaled as it is", () => {
  assert.deepEqual(box(seen(pad(0, 0, 140, 70), W, 28, 28, false), 28), [0, 13, 0, 6]);
  assert.ok(seen(pad(0, 0, W, W, 100), W, 7, 14, false).every((value) => value === 100));
});

test("an empty pad is an empty image", () => {
  assert.ok(seen(new Uint8ClampedArray(W * W), W, 28, 28).every((value) => value === 0));
});

test("points that are near to the last one are left out", () => {
  assert.deepEqual(extended(extended(extended([20], 10.4, 10), 11, 11), 20, 10), [20, 10, 10, 20, 10]);
});
