import assert from "node:assert/strict";
import { test } from "node:test";

import { bytesOf, hex, idsOf, textOf } from "../../playground/maths/bytes.js";
import { writeCsv } from "../../playground/maths/csv.js";
import { parseCsv, textsOf } from "../../playground/maths/pasted.js";
import { ORDERS, filled, pairs, siblings, times, union } from "../../playground/maths/fills.js";
import { placed, ticks } from "../../playground/maths/places.js";
import { nested } from "../../playground/maths/spans.js";
import { batches, without, words } from "../../playground/maths/words.js";

const fill = (token, id, logprob) => ({ token, token_id: id, logprob });

test("pairs have the log of the ratio of both probabilities", () => {
  const first = [fill("oil", 1, -1), fill("art", 2, -3)], second = [fill("art", 2, -1.5), fill("oil", 1, -4)];
  assert.deepEqual(pairs(first, second), [
    { token: "oil", first: -1, second: -4, ratio: 3 }, { token: "art", first: -3, second: -1.5, ratio: -1.5 }]);
  assert.deepEqual(union([first, second]), ["oil", "art"]);
  assert.deepEqual(pairs(first, second).sort(ORDERS.second).map((row) => row.token), ["art", "oil"]);
  assert.deepEqual(["as likely", "as likely", "2.0 times as likely", "20.0 times as likely", "1097 times as likely"], [times(0.001), times(0.03), times(-Math.LN2), times(Math.log(20)), times(7)]);
});

test("texts that differ in one word are a pair", () => {
  assert.deepEqual(siblings(["The list has it.", "A list has it.", "The list had it", "The list has it. now"]), [["The / A", "The list has it.", "A list has it."]]);
});

test("a fill stands where the mask stood", () => {
  assert.equal(filled("a [MASK].", 2, 8, "cat"), "a cat.");
  assert.equal(filled("walk [MASK].", 5, 11, "##ing"), "walking.");
  assert.equal(filled("a<mask>", 1, 7, "\u0120cat"), "a cat");
  assert.equal(filled("😀 [MASK]", 3, 9, "\u2581$&"), "😀 $&");
});

test("a table goes through text unchanged, and a text of a model is no formula", () => {
  const rows = [["a,b", 'say "x"'], ["two\nlines", "-1.5"]];
  assert.deepEqual(parseCsv(writeCsv(rows)), rows);
  assert.equal(writeCsv([["=1+1", -0.5, "-x", null]]), "'=1+1,-0.5,'-x,\n");
});

test("fields in quotes may have commas, quotes and line breaks", () => {
  assert.deepEqual(parseCsv('"a,b","say ""x"""\r\n\n"two\nlines",c'), [["a,b", 'say "x"'], ["two\nlines", "c"]]);
});

test("pasted lines are texts; a column named text is taken", () => {
  assert.deepEqual(textsOf("win, a prize\n\nlunch\r\n"), ["win, a prize", "lunch"]);
  assert.deepEqual(textsOf('label,text\nspam,"win, now"\nham,lunch\n'), ["win, now", "lunch"]);
  assert.deepEqual(textsOf('"win, now"\n"lunch"'), ["win, now", "lunch"]);
});

test("labels cover neither one another nor points, and those without room are left out", () => {
  const area = { x: 0, y: 0, width: 200, height: 100 };
  const labels = Array.from({ length: 40 }, (_, index) => ({ x: 20 + (index * 37) % 160, y: 10 + (index * 53) % 80, width: 40, height: 14 }));
  const boxes = placed(labels, area).map((corner) => corner && { ...corner, width: 40, height: 14 });
  const shown = boxes.filter(Boolean);
  assert.ok(shown.length >= 5 && shown.length < 40, `${shown.length}`);
  const overlap = (a, b) => a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
  shown.forEach((box, index) => {
    assert.ok(box.x >= 0 && box.y >= 0 && box.x + 40 <= 200 && box.y + 14 <= 100);
    assert.ok(shown.every((other, at) => at === index || !overlap(box, other)));
  });
  boxes.forEach((box, index) => box && labels.forEach((point, at) => assert.ok(at === index || !overlap(box, { x: point.x - 2, y: point.y - 2, width: 4, height: 4 }))));
  assert.deepEqual(ticks(-10.3, 0), [-10, -8, -6, -4, -2, 0]);
  assert.deepEqual(ticks(0.02, 0.11, 4), [0.05, 0.1]);
});

test("one word is left out at a time, in at most so many groups", () => {
  const text = " win a  prize";
  assert.deepEqual(without(text, words(text)), ["a  prize", " win prize", " win a"]);
  const long = Array.from({ length: 130 }, (_, index) => `w${index}`).join(" ");
  const groups = words(long, 63);
  assert.equal(groups.length, 44);
  assert.equal(groups.map(({ start, end }) => long.slice(start, end)).join(" "), long);
  assert.deepEqual(batches([1, 2, 3], 2), [[1, 2], [3]]);
  assert.deepEqual(words("  "), []);
});

test("spans inside of spans are a tree, from the first character on, by code points", () => {
  const text = "😀 New York Times!";
  const outer = { start: 0, end: 16 }, inner = { start: 2, end: 10 }, crossing = { start: 6, end: 17 };
  assert.deepEqual(nested(text, [inner, outer, crossing]), [
    { span: outer, inner: [{ text: "😀 " }, { span: inner, inner: [{ text: "New York" }] }, { text: " Times" }] }, { text: "!" }]);
  assert.deepEqual(nested("ab", [{ start: 0, end: 1 }]), [{ span: { start: 0, end: 1 }, inner: [{ text: "a" }] }, { text: "b" }]);
  const cut = nested("😀win a prize", [{ start: 6, end: 12, label: "b" }, { start: 0, end: 4, label: "a" }, { start: 3, end: 5, label: "across another's border" }]);
  assert.deepEqual(cut.map(({ text: plain, span, inner }) => [plain ?? inner[0].text, span?.label]), [["😀win", "a"], [" a", undefined], [" prize", "b"]]);
});

test("bytes of a token are the tokenizer's, or its text's", () => {
  assert.equal(hex(bytesOf("8J8=", "?")), "F0 9F");
  assert.equal(hex(bytesOf("", "é😀")), "C3 A9 F0 9F 98 80");
  assert.equal(textOf(bytesOf("8J8=", "")), null);
  assert.equal(textOf(bytesOf("", "é😀")), "é😀");
  assert.deepEqual(idsOf("[101, 7, 102]"), [101, 7, 102]);
  assert.equal(idsOf("1 x"), null);
  assert.deepEqual(idsOf(" "), []);
});
