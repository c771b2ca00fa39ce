// Attention in plain lists of numbers: every step from words to what comes out, for numbers that are typed.

import { cosine, dot } from "./vectors.js";

export const eye = (size) => Array.from({ length: size }, (_, row) => Array.from({ length: size }, (_, column) => +(row === column)));

export const times = (rows, matrix) => rows.map((row) => matrix[0].map((_, column) => dot(row, matrix.map((each) => each[column]))));

export function softmax(row) {
	const most = Math.max(...row), powers = row.map((value) => Math.exp(value - most)), sum = powers.reduce((all, value) => all + value);
	return powers.map((value) => value / sum);
}

/** The steps of heads with the matrices `q`, `k` and `v`, or with `scores` that are given; `output` is W^O, `by` divides the scores. */
export function attend({ x, heads, output, measure, by, isCausal }) {
	const all = heads.map((head) => {
		const [q, k, v] = [head.q, head.k, head.v].map((each) => each && times(x, each));
		const scores = head.scores ?? q.map((a) => k.map((b) => (measure === "cosine" ? cosine : dot)(a, b)));
		const scaled = scores.map((row, at) => row.map((score, to) => (isCausal && to > at ? -Infinity : score / by)));
		const weights = scaled.map(softmax);
		return { q, k, v: v ?? x, scores, scaled, weights, sums: times(weights, v ?? x) };
	});
	const joined = x.map((_, row) => all.flatMap(({ sums }) => sums[row]));
	return { heads: all, joined, out: output ? times(joined, output) : joined };
}

/** The table of sines and cosines: a row for each position. */
export const sinusoids = (rows, size) => Array.from({ length: rows }, (_, at) => Array.from({ length: size }, (_, i) => Math[i % 2 ? "cos" : "sin"](at / 10000 ** ((i - (i % 2)) / size))));

/** A vector turned by the angles of its position, each pair of values by its own. */
export const turned = (vector, at) => vector.map((value, i) => {
	const angle = at / 10000 ** ((i - (i % 2)) / vector.length), other = vector[i ^ 1];
	return value * Math.cos(angle) + (i % 2 ? 1 : -1) * other * Math.sin(angle);
});

/** A step of learning: products of each position with the others come to tell which of them are near. */
export function learned(table, rate = 0.1) {
	const near = table.map((_, a) => softmax(table.map((_, b) => -Math.abs(a - b)))), guess = table.map((a) => softmax(table.map((b) => dot(a, b))));
	return table.map((row, a) => row.map((value, i) => value + rate * table.reduce((sum, other, b) => sum + (near[a][b] - guess[a][b] + near[b][a] - guess[b][a]) * other[i], 0)));
}
