// Offsets, visible text, times, events and permalinks.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fromUtf16, slice, toUtf16 } from "../../playground/maths/offsets.js";
import { duration, times } from "../../playground/maths/numbers.js";
import { parse, write } from "../../playground/maths/permalink.js";
import { EventReader } from "../../playground/maths/sse.js";
import { visible } from "../../playground/maths/visible.js";

test("offsets are code points, and indices halves of astral characters", () => {
  const text = "😀 ab😀c";
  assert.equal(toUtf16(text, 0), 0);
  assert.equal(toUtf16(text, 2), 3);
  assert.equal(fromUtf16(text, 3), 2);
  assert.equal(slice(text, 2, 5), "ab😀");
  assert.equal(slice(text, 5), "c");
});

test("controls and marks of direction are seen; line breaks only in tokens", () => {
  assert.equal(visible("a\u202eb\u0000<b>\n"), "a[RLO]b␀<b>\n");
  assert.equal(visible(" a\n", true), "·a↵");
  assert.equal(visible("\ud800x😀"), "[U+D800]x😀");
});

test("events are read from pieces that are cut anywhere", () => {
  const stream = 'data: {"a": 1}\n\n: ping\n\ndata: 2\r\n\r\ndata: 3\n\n';
  for (let size = 1; size < stream.length; size++) {
    const reader = new EventReader(), data = [];
    for (let at = 0; at < stream.length; at += size) data.push(...reader.push(stream.slice(at, at + size)));
    assert.deepEqual(data, ['{"a": 1}', "2", "3"], `pieces of ${size}`);
  }
});

test("a permalink gives back what it was written from, without long texts", () => {
  const hash = write("fill-mask", { model: "bert", text: "a & b = 😀 [MASK]?#", top_k: 5, long: "x".repeat(5000) });
  assert.deepEqual(parse(hash), { id: "fill-mask", values: { model: "bert", text: "a & b = 😀 [MASK]?#", top_k: "5" } });
  assert.deepEqual(parse(""), { id: "", values: {} });
});

test("times have a unit and few digits, and those of an answer are those that it has", () => {
  assert.deepEqual([0.0012, 0.0994, 0.25, 0.9996, 12.34, 300].map(duration), ["1.2 ms", "99 ms", "250 ms", "1.00 s", "12.3 s", "5 min"]);
  assert.equal(times({ queue_seconds: 0.001, compute_seconds: 0.02, total_seconds: 0.03 }), "queue 1.0 ms, compute 20 ms");
  assert.equal(times({ queue_seconds: 0.001, time_to_first_token_seconds: 0.02, total_seconds: 0.3 }), "queue 1.0 ms, first token 20 ms, in all 300 ms");
});
