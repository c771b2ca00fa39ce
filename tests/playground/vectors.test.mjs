import assert from "node:assert/strict";
import { test } from "node:test";
import { dense, late } from "../../playground/maths/embeddings.js";
import { clustered, components, cosine, matrix, mean, norm, random } from "../../playground/maths/vectors.js";

test("cosine is that of the angle, and 0 of a vector without direction", () => {
  assert.equal(cosine([3, 4], [6, 8]), 1);
  assert.equal(cosine([1, 0], [0, 2]), 0);
  assert.equal(cosine([1, 0], [-5, 0]), -1);
  assert.equal(cosine([0, 0], [1, 2]), 0);
  assert.equal(norm([3, 4]), 5);
  assert.deepEqual(mean([[1, 2], [3, 6]]), [2, 4]);
});

test("the order puts like rows side by side, and has every row once", () => {
  const groups = [0, 1, 2, 0, 1, 2, 0], vectors = groups.map((group, index) => [group === 0, group === 1, group === 2].map((is) => Number(is) + index / 1000));
  const order = clustered(matrix(vectors));
  assert.deepEqual([...order].sort(), [0, 1, 2, 3, 4, 5, 6]);
  const runs = order.map((row) => groups[row]).filter((group, at, all) => group !== all[at - 1]);
  assert.equal(runs.length, 3);
  assert.deepEqual(clustered([]), []);
  assert.deepEqual(clustered([[1]]), [0]);
});

test("groups are turned so that their likest ends meet", () => {
  const at = [0, 1, 5, 4, 2.4], order = clustered(at.map((a) => at.map((b) => -Math.abs(a - b))));
  const places = order.map((row) => at[row]);
  assert.ok(JSON.stringify(places) === "[0,1,2.4,4,5]" || JSON.stringify(places) === "[5,4,2.4,1,0]", String(places));
});

test("a hundred rows are ordered within a second of the processor's time", () => {
  const draw = random(3), vectors = Array.from({ length: 100 }, () => Array.from({ length: 16 }, draw)), started = process.cpuUsage();
  assert.equal(new Set(clustered(matrix(vectors))).size, 100);
  assert.ok(process.cpuUsage(started).user < 1e6); // microseconds: other processes do not count
});

test("components are the directions of most variance, and the same for the same seed", () => {
  const draw = random(7), vectors = Array.from({ length: 60 }, () => { const [a, b] = [draw() * 10, draw() * 3]; return [a + b, a - b, 5]; });
  const { points, shares } = components(vectors), again = components(vectors);
  assert.deepEqual(points, again.points);
  assert.ok(shares[0] > shares[1] && Math.abs(shares[0] + shares[1] - 1) < 1e-9, String(shares));
  for (const [i, j] of [[0, 1], [5, 40]]) {
    const before = Math.hypot(...vectors[i].map((value, at) => value - vectors[j][at])), after = Math.hypot(points[i][0] - points[j][0], points[i][1] - points[j][1]);
    assert.ok(Math.abs(before - after) < 1e-9); // three values, of which one is fixed: nothing is lost
  }
  for (const component of [0, 1]) {
    const values = points.map((point) => point[component]);
    assert.ok(Math.max(...values) >= -Math.min(...values) || Math.max(...values) > 0);
    assert.ok(Math.abs(values.reduce((sum, value) => sum + value, 0)) < 1e-9);
  }
});

test("components agree with a decomposition done by hand", () => {
  const { points, shares } = components([[2, 0], [-2, 0], [0, 1], [0, -1]]);
  assert.deepEqual(shares.map((share) => +share.toFixed(9)), [0.8, 0.2]);
  assert.deepEqual(points.map(([x]) => +Math.abs(x).toFixed(6)), [2, 2, 0, 0]);
});

test("vectors that are all alike have no directions", () => {
  const { points, shares } = components([[1, 2], [1, 2]]);
  assert.deepEqual(shares, [0, 0]);
  assert.deepEqual(points.map((point) => point.map(Math.abs)), [[0, 0], [0, 0]]);
});

test("weights of tokens become vectors over the tokens that any text has", () => {
  assert.deepEqual(dense([{ token_ids: [5, 9], weights: [1, 2] }, {}, { token_ids: [9, 3], weights: [4, 0.5] }]), [[1, 2, 0], [0, 0, 0], [0, 4, 0.5]]);
});

test("late interaction is the mean of each query vector's best product, and not symmetric", () => {
  assert.equal(late([[1, 0], [0, 1]], [[1, 0]]), 0.5);
  assert.equal(late([[1, 0]], [[1, 0], [0, 1]]), 1);
  assert.equal(late([], [[1, 0]]), 0);
});
