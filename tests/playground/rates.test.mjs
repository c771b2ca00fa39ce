// Rates and quantiles of the live strip.

import assert from "node:assert/strict";
import { test } from "node:test";
import { quantile, rates } from "../../playground/maths/rates.js";

const answer = (changes) => ({ time_seconds: 0, calls: { http: 0, grpc: 0 }, calls_refused: 0, requests: { failed: 0 }, generation: { tokens: 0 },
  latency: [{ below_seconds: 0.01, count: 0 }, { below_seconds: 0.1, count: 0 }, { below_seconds: null, count: 0 }], batches: [], ...changes });

test("rates are the difference of two answers by the time between them", () => {
  const before = answer({ batches: [{ rows: 1, count: 5 }] });
  const after = answer({ time_seconds: 10, calls: { http: 20, grpc: 5 }, calls_refused: 1, requests: { failed: 2 }, generation: { tokens: 400 }, batches: [{ rows: 1, count: 7 }, { rows: 4, count: 2 }] });
  const { calls, tokens, errors, rows, p50 } = rates(before, after);
  assert.deepEqual([calls, tokens, errors, rows], [{ http: 2, grpc: 0.5 }, 40, 3, 2.5]);
  assert.ok(Number.isNaN(p50), "of no requests there is no median");
});

test("quantiles lie between the bounds of their part", () => {
  const bounds = [0.01, 0.1];
  assert.equal(quantile([{ below_seconds: 0.01, count: 4 }], bounds, 0.5), 0.005);
  assert.ok(Math.abs(quantile([{ below_seconds: 0.01, count: 2 }, { below_seconds: 0.1, count: 2 }], bounds, 0.75) - 0.055) < 1e-9);
  assert.equal(quantile([{ below_seconds: null, count: 3 }], bounds, 0.95), 0.1);
});
