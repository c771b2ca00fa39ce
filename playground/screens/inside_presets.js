// The lectures' examples of attention, with the values that they give.

import { eye } from "../maths/attending.js";
import { cosine, dot } from "../maths/vectors.js";

/** A number as a lecture writes it: at most two digits behind the point, or as many as `like` has. */
export const written = (value, like) => (like ? value.toFixed(like.split(".")[1]?.length ?? 0) : Number.isFinite(value) ? String(+value.toFixed(2) || 0) : String(value)).replace("-", "−").replace("Infinity", "∞");

const one = (size, head = {}) => ({ q: eye(size), k: eye(size), v: eye(size), ...head });
const state = (words, x, others = {}) => ({ words, x, heads: [one(x[0].length)], output: null, measure: "dot", by: 1, isCausal: false, ...others });
const [APPLE, ORANGE, PHONE, CHERRY] = [[2, 2], [0, 3], [3, 0], [1, 4]], ROOT = 1.4142;
const weights = (row, words, values) => values.map((value, at) => [value, `weight of ${words[at]} for ${words[row]}`, ({ heads }) => heads[0].weights[row][at]]);
const alike = (values, a, b) => [["dot product", dot], ["cosine", cosine], ["scaled dot product", (one, other) => dot(one, other) / Math.SQRT2]].map(([name, measure], at) => [values[at], `${name} of ${a[0]} and ${b[0]}`, (_, { words, x }) => measure(...[a, b].map(([word]) => x[words.indexOf(word)] ?? x[0]))]);
const PLACES = [["banana", 3, 2], ["strawberry", 3.6, 2.7], ["laptop", 2.5, -2.2], ["phone", 3, -3], ["football", -3, 3], ["basketball", -3.6, 2.4], ["house", -2.4, -3], ["building", -3.6, -2.6]];
const quiz = (title, word, at, other, to, answer) => ({ title, note: `Quiz: the place of "${word}" is between two groups. Which does the word beside it pull it to?`, answer, places: PLACES, state: state([word, other], [at, to], { by: ROOT }), checks: [] });

export const PRESETS = {
	products: {
		title: "112 and 96", note: "The query of Thinking is multiplied with both keys. The lecture's vectors have 64 values, so it divides by 8; here two values give the same products.",
		state: state(["Thinking", "Machines"], eye(2), { by: 8, heads: [one(2, { q: [[8, 8], [7, 8]], k: [[8, 6], [7, 5]], v: [[1, 0], [0, 1]] })] }),
		checks: [["112", "q · k, Thinking with Thinking", ({ heads }) => heads[0].scores[0][0]], ["96", "q · k, Thinking with Machines", ({ heads }) => heads[0].scores[0][1]], ["14", "112 divided by 8", ({ heads }) => heads[0].scaled[0][0]], ["12", "96 divided by 8", ({ heads }) => heads[0].scaled[0][1]],
			...weights(0, ["Thinking", "Machines"], ["0.88", "0.12"])],
	},
	apple: {
		title: "An apple and an orange", note: "Cosines are the scores: 1 with itself, 0.71 with the other. The softmax makes shares of them, and apple moves towards orange.",
		state: state(["apple", "orange"], [APPLE, ORANGE], { measure: "cosine" }), checks: weights(0, ["apple", "orange"], ["0.57", "0.43"]),
	},
	phone: {
		title: "An apple phone", note: "The same word beside phone: the same shares pull it the other way.",
		state: state(["apple", "phone"], [APPLE, PHONE], { measure: "cosine" }), checks: weights(0, ["apple", "phone"], ["0.57", "0.43"]),
	},
	sentence: {
		title: "With the words and, an", note: "Words that are like no other have a cosine of 0, and e⁰ is 1: each still takes a share.",
		state: state(["apple", "orange", "and", "an"], [[...APPLE, 0, 0], [...ORANGE, 0, 0], [0, 0, 2, 0], [0, 0, 0, 2]], { measure: "cosine" }), checks: weights(0, ["apple", "orange", "and", "an"], ["0.40", "0.30", "0.15", "0.15"]),
	},
	measures: {
		title: "Three measures", note: "The dot product grows with length, the cosine is that of the angle alone, and the scaled dot product divides by the root of the number of values.",
		state: state(["cherry", "orange", "phone"], [CHERRY, ORANGE, PHONE], { by: ROOT }),
		checks: [...alike(["12", "0.97", "8.49"], ["cherry"], ["orange"]), ...alike(["3", "0.24", "2.12"], ["cherry"], ["phone"]), ...alike(["0", "0", "0"], ["orange"], ["phone"])],
	},
	fruit: quiz("Quiz: apple, cherry", "apple", [2, 0], "cherry", [2.5, 3], "To the fruits: two thirds of its new place are cherry's."),
	ball: quiz("Quiz: court, tennis", "court", [-2, 0], "tennis", [-2.5, 2], "To the balls. The word alone was as near to the houses."),
	house: quiz("Quiz: court, castle", "court", [-2, 0], "castle", [-3, -2], "To the houses: the same word, another sentence."),
	value: {
		title: "A value matrix", note: "The weights are those of apple and orange. W^V decides what is summed: this one doubles the first value and halves the second.",
		state: state(["apple", "orange"], [APPLE, ORANGE], { measure: "cosine", heads: [one(2, { v: [[2, 0], [0, 0.5]] })] }), checks: weights(0, ["apple", "orange"], ["0.57", "0.43"]),
	},
	heads: {
		title: "Two heads", note: "The first head compares the second value only (fruit), the other the first (phone). Their sums stand side by side, and W^O mixes them into one vector.",
		state: state(["apple", "orange", "phone"], [APPLE, ORANGE, PHONE], { by: ROOT, heads: [one(2, { q: [[0, 0], [0, 1]] }), one(2, { q: [[1, 0], [0, 0]] })], output: [[0.5, 0], [0, 0.5], [0.5, 0], [0, 0.5]] }), checks: [],
	},
};
