import assert from "node:assert/strict";
import test from "node:test";

import { entropy, surprise } from "../../playground/maths/surprise.js";

const near = (actual, expected) => actual.forEach((value, index) => assert.ok(Math.abs(value - expected[index]) < 1e-9, `${value} at ${index}, expected ${expected[index]}`));

test("entropy is in bits, and surprise leaves the first token out", () => {
  near([entropy([Math.log(0.5), Math.log(0.25), Math.log(0.25)])], [1.5]);
  const { bits, total, perplexity, worst } = surprise([undefined, Math.log(0.5), Math.log(0.125)]);
  assert.deepEqual([bits[0], worst], [null, [2, 1]]);
  near([...bits.slice(1), total, perplexity], [1, 3, 4, 4]);
});
