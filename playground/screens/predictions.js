// What a masked token changes in the answer of another model.

import { json } from "../api/client.js";
import { models } from "../api/models.js";
import { fixed, percent, visible } from "../maths/numbers.js";
import { slice } from "../maths/offsets.js";
import { h, table } from "../parts/page.js";

/** The text with the mask in place of a token, and words and a table about the answers to both. */
export async function masked(of, token, by, signal) {
	const mask = await maskOf(of.model, signal), text = slice(of.text, 0, token.start) + mask + slice(of.text, token.end), model = models.list.find((each) => each.name === by);
	const call = (path, body) => json(path, { body: { model: by, ...body }, signal });
	return { text, words: h("span", h("b", visible(token.text, true)), mask ? ` is ${mask}` : " is left out: the model has no token for a mask"), change: model && await change[model.task](by, of.text, text, token, call) };
}

/** The mask as the model spells it, "" where it has none. */
async function maskOf(name, signal) {
	const model = models.list.find((each) => each.name === name);
	if (model.mask_token) return model.mask_token;
	const { results } = await json("api/Tokenize", { body: { model: name, texts: ["[MASK]"], omit_special_tokens: true }, signal });
	return results[0].tokens[0].piece === "[MASK]" ? "[MASK]" : "";
}

const change = {
	async "text-classification"(name, before, after, _, call) {
		const { results } = await call("api/Classify", { texts: [before, after], all_scores: true }), [was, is] = results.map(({ labels }) => Object.fromEntries(labels.map(({ label, score }) => [label, score])));
		const isNumber = models.list.find((each) => each.name === name).score_function === "identity", format = isNumber ? fixed : percent;
		return table(["Label", "Before", "Masked", "Change"], Object.keys(was).map((label) => [label, format(was[label]), format(is[label]), fixed((isNumber ? 1 : 100) * (is[label] - was[label]), isNumber ? 3 : 2)]), { caption: `Labels of ${name}` });
	},
	async "fill-mask"(name, _, after, token, call) {
		const { results } = await call("api/FillMask", { texts: [after] }), { fills } = results[0].masks[0];
		return table([`In place of ${token.text}`, "Probability"], fills.map((each) => [each.token, percent(each.score)]), { caption: `Fills of ${name}` });
	},
	async embedding(name, before, after, _, call) {
		const { rows } = await call("api/Similarity", { texts: [before], others: [after] });
		return h("p", `${name}: cosine ${fixed(rows[0].values[0], 4)} between the text before and after.`);
	},
};
