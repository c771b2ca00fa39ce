// Which words are one token of a model.

import { plural, visible } from "../maths/numbers.js";

/** The words of a list with commas. */
export const listed = (text) => [...new Set(text.split(/[,\n]/).map((word) => word.trim()).filter(Boolean))];

/** The words that are one token, and of the others why they are not. */
export async function oneToken(words, { model, call }) {
	if (!words.length) return { known: [], reasons: [] };
	const { results } = await call("api/Tokenize", { model: model.name, texts: words, omit_special_tokens: true });
	const reasons = words.map((word, index) => {
		const { tokens } = results[index];
		if (tokens.length > 1) return `“${visible(word)}” is ${plural(tokens.length, "piece")} (${tokens.map(({ piece }) => visible(piece)).join(" ")}), and a mask takes one.`;
		return tokens.length && !tokens[0].is_unknown ? "" : `“${visible(word)}” is not in the vocabulary.`;
	});
	return { known: words.filter((_, index) => !reasons[index]), reasons: reasons.filter(Boolean) };
}
