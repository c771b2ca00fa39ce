// Fills of a mask under two prompts, as pairs.

/** Every token that a list has, the likeliest first; ids without a spelling are left out. */
export function union(lists) {
	const best = new Map();
	for (const { token, logprob } of lists.flat()) if (token) best.set(token, Math.max(logprob, best.get(token) ?? -Infinity));
	return [...best].sort((a, b) => b[1] - a[1]).map(([token]) => token);
}

/** One row for each token of both: log probabilities, and the log of their ratio. */
export function pairs(first, second) {
	const other = new Map(second.map((fill) => [fill.token_id, fill.logprob]));
	return first.filter((fill) => other.has(fill.token_id)).map(({ token, token_id: id, logprob }) => ({ token, first: logprob, second: other.get(id), ratio: logprob - other.get(id) }));
}

/** Pairs of texts that differ in one word, with the words. */
export function siblings(texts) {
	return texts.flatMap((one, index) => texts.slice(index + 1).flatMap((other) => {
		const [left, right] = [one.split(" "), other.split(" ")], differ = left.flatMap((word, at) => (word === right[at] ? [] : [`${word} / ${right[at]}`]));
		return left.length === right.length && differ.length === 1 ? [[differ[0], one, other]] : [];
	}));
}

/** How rows are ordered, by name. */
export const ORDERS = {
	difference: (a, b) => Math.abs(b.ratio) - Math.abs(a.ratio),
	first: (a, b) => b.first - a.first,
	second: (a, b) => b.second - a.second,
	word: (a, b) => a.token.localeCompare(b.token),
};

/** A ratio in words. @param ratio natural logarithm */
export function times(ratio) {
	const value = Math.exp(Math.abs(ratio));
	return value < 1.05 ? "as likely" : `${value < 100 ? value.toPrecision(value < 10 ? 2 : 3) : value < 1e5 ? Math.round(value) : value.toExponential(0)} times as likely`;
}

/** A text with a word in place of [start, end), in UTF-16; a piece such as "##ing" joins the word before. */
export function filled(text, start, end, token) {
	const before = text.slice(0, start), after = text.slice(end);
	if (token.startsWith("##")) return before.trimEnd() + token.slice(2) + after;
	const word = token.replace(/^[\u0120\u2581]/, " ");
	return before + (!before || /\s$/.test(before) ? word.trimStart() : word) + after;
}
