import assert from "node:assert/strict";
import test from "node:test";

import { History, bytesOf, differing, lineage, numThoughts, owner, path, rank, spelled, texts, thoughtsOf, written } from "../../playground/maths/branches.js";

const token = (text, more) => ({ id: text.length, bytes: new TextEncoder().encode(text), top: [], ...more });
const branch = (parent, keep, words, more) => ({ parent, keep, tokens: words.map((word) => token(word)), text: words.join(""), finish: "", ...more });

test("a path has the tokens of the parents up to where a branch goes on", () => {
  const first = branch(null, 0, ["a", "b", "c"]), second = branch(first, 1, ["d", "e"]), third = branch(second, 2, ["f"]);
  assert.equal(texts(path(third)).join(""), "adf");
  assert.deepEqual(lineage(third), [first, second, third]);
  assert.deepEqual([owner(third, 0), owner(third, 1), owner(third, 2)].map(([each, place]) => [each.text, place]), [["abc", 0], ["de", 0], ["f", 0]]);
});

test("characters whose bytes several tokens have are the last one's", () => {
  const [first, ...others] = new TextEncoder().encode("😀");
  const cut = [token("a"), { bytes: Uint8Array.of(first) }, { bytes: Uint8Array.from(others) }, token("b")];
  assert.deepEqual(texts(cut), ["a", "", "😀", "b"]);
  assert.deepEqual(texts(cut.slice(0, 2)), ["a", "�"]);
  assert.equal(spelled(Uint8Array.of(first)), "‹F0›");
  assert.equal(spelled(bytesOf(btoa("<b>"))), "<b>");
});

test("what ended a text is marked as cut, and is not taken for text", () => {
  const stopped = branch(null, 0, ["one", " two", "<end>"], { text: "one two", finish: "FINISH_REASON_STOP" });
  assert.deepEqual(written(stopped).map((each) => each.isCut), [false, false, true]);
  assert.deepEqual(written({ ...stopped, finish: "FINISH_REASON_LENGTH" }).map((each) => each.isCut), [false, false, false]);
  assert.deepEqual(written({ ...stopped, text: "" }).map((each) => each.isCut), [true, true, true]);
});

test("the rank counts from 1, and is 0 where a token is not among the likeliest", () => {
  assert.deepEqual([rank({ id: 7, top: [{ id: 3 }, { id: 7 }] }), rank({ id: 8, top: [{ id: 3 }] })], [2, 0]);
});

test("tokens that differ are those that no common subsequence holds", () => {
  assert.deepEqual(differing([..."abcde"], [..."axcye"]), [false, true, false, true, false]);
  assert.deepEqual(differing([..."abc"], [..."abc"]), [false, false, false]);
  assert.deepEqual(differing([..."ab"], []), [true, true]);
  assert.deepEqual(differing([..."abcd"], [..."abcd"], 2), [false, false, true, true]);
});

test("a history goes back and forth, forgets what was undone, and keeps a bounded number", () => {
  const history = new History(0, 3);
  assert.deepEqual([history.canMove(-1), history.canMove(1)], [false, false]);
  for (const each of [1, 2, 3]) history.push(each);
  history.move(-1);
  history.move(-1);
  assert.deepEqual([history.now, history.canMove(-1), history.canMove(1)], [1, false, true]);
  history.move(-1);
  history.push(9);
  assert.deepEqual([history.now, history.canMove(1)], [9, false]);
  history.drop();
  assert.deepEqual([history.now, history.canMove(1)], [1, false]);
});

test("tokens are thoughts up to the one with which the answer begins", () => {
  const after = (words, piece, more) => numThoughts(branch(null, 0, words, { text: "", ...more }), piece);
  assert.equal(after(["<", "think>"], {}), 0); // not known yet
  assert.equal(after(["<", "think>", "a"], { reasoning: "a" }), 3);
  assert.equal(after(["a", "</think>"], {}, { thoughts: 1 }), 2);
  assert.equal(after(["a", "</think>", "\n\nYes", "<end>"], { text: "Yes" }, { thoughts: 1 }), 2);
  assert.equal(after(["a", "</think>", "Yes", "!"], { text: "!" }, { text: "Yes", thoughts: 2 }), 2);
  assert.equal(after(["Yes"], { text: "Yes" }), 0);
  assert.equal(after(["a", "�"], { text: "b" }, { thoughts: 1 }), 1);
});

test("a branch has the thoughts of the first one, unless it begins within them", () => {
  const first = branch(null, 0, ["a", "</think>", "Yes"], { text: "Yes", thoughts: 2 });
  const later = (keep) => branch(first, keep, ["!"]);
  assert.deepEqual([first, later(3), later(2), later(1)].map(thoughtsOf), [2, 2, 2, 0]);
  assert.equal(thoughtsOf(branch({ ...first, text: "" }, 3, ["b"])), 0); // it was cut within them
});

test("what ended an answer behind thoughts is marked as cut", () => {
  const thought = branch(null, 0, ["a", "</think>", "\n\nYes", "<end>"], { text: "Yes", thoughts: 2, finish: "FINISH_REASON_STOP" });
  assert.deepEqual(written(thought).map((each) => each.isCut), [false, false, false, true]);
});
