// Parts of the screen of similarity: words by analogy, and one word in several sentences, layer by layer.

import { ApiError } from "../api/client.js";
import { inParts, models } from "../api/models.js";
import { legible } from "../maths/contrast.js";
import { fixed, percent } from "../maths/numbers.js";
import { fromUtf16 } from "../maths/offsets.js";
import { components, cosine, matrix, mean } from "../maths/vectors.js";
import { bars, fill, h } from "../parts/page.js";
import { heatMap } from "../parts/heat_map.js";
import { scatter } from "../parts/scatter.js";

const PER_CALL = 1000; // words, where the server takes as many

/** What a heat map writes into its cells: two digits, none of large numbers, and no sign of a zero. */
export const written = (value, below, text = fixed(Math.round(100 * value) / 100 + 0, Math.abs(value) < 99 ? 2 : 0)) => [text, legible(below)];

/** Vectors in their first two principal components. */
export function mapOf(names, vectors, isOn, onpick) {
	const { points, shares } = components(vectors), [first, second] = shares.map((share) => percent(share));
	return scatter({ label: "Map of the vectors", summary: `The two components keep ${percent(shares[0] + shares[1])} of the variance: what is near here may still differ.`, points: points.map(([x, y], index) => ({ x, y, label: names[index], note: `${fixed(x, 2)}, ${fixed(y, 2)}`, kind: isOn(index) ? "on" : "" })), xTitle: `first component, ${first}`, yTitle: `second, ${second}`, onpick });
}

/** The words nearest to a − b + c, of the whole vocabulary. */
export function analogy(screen, into) {
	const fields = h("div.fields"), kept = new Map();
	into.append(fields);
	const inputs = [["a", "Word", 1], ["b", "Minus", -1], ["c", "Plus", 1]].map(([name, label, sign]) => [screen.text(name, { label, rows: 1, into: fields }), sign]);
	const count = screen.number("neighbours", { label: "Neighbours", min: 1, max: 50, value: 10, isIndex: true, into });

	/** Its words without special tokens. */
	const vocabulary = async ({ name, version, vocabulary_size: size }, call) => {
		const key = `${name} ${version}`;
		if (!kept.has(key)) {
			const { text } = await call("api/Detokenize", { model: name, token_ids: [...Array(size).keys()] });
			kept.set(key, [...new Set(text.split(/\s+/))].filter((word) => word && !/^[[<].*[\]>]$/.test(word)));
		}
		return kept.get(key);
	};
	return {
		presets: [["list"], ["list", "tuple", "dictionary"], ["classes", "class", "function"], ["error"]].map(([a, b = "", c = ""]) => ({ title: `${a}${b && ` − ${b}`}${c && ` + ${c}`}`, values: { mode: "analogy", a, b, c } })),
		async run({ model, call }) {
			const words = await vocabulary(model, call), scores = [];
			const given = inputs.filter(([control]) => control.value.trim()).map(([control, sign]) => {
				const text = control.value.trim(), word = [text, text.toLowerCase()].find((each) => words.includes(each));
				if (!word) throw new ApiError(400, `“${text}” is not among the ${words.length} words of this model.`, control.name);
				return { word, sign };
			});
			if (!given.length) throw new ApiError(400, "Give a word.", "a");
			const texts = given.map(({ word }) => word), title = given.map(({ word, sign }, index) => `${sign < 0 ? " − " : index ? " + " : ""}${word}`).join("");
			const perCall = Math.min(PER_CALL, models.mostTexts - texts.length);
			if (perCall < 1) throw new ApiError(400, `The server takes ${models.mostTexts} texts in one request; this needs ${texts.length + 1}: --max-texts sets it.`);
			for (let at = 0; at < words.length; at += perCall) {
				const others = words.slice(at, at + perCall), { rows } = await call("api/Similarity", { model: model.name, texts, others });
				others.forEach((label, index) => scores.push({ label, value: given.reduce((sum, { sign }, row) => sum + sign * rows[row].values[index], 0) }));
			}
			const best = scores.filter(({ label }) => !texts.includes(label)).sort((a, b) => b.value - a.value).slice(0, count.value);
			const names = [...texts, ...best.map(({ label }) => label)], results = await inParts({ texts: names }, (part) => call("api/Embed", { model: model.name, ...part }));
			return () => fill(screen.result, h("h2", `Nearest to ${title}`), bars(best.map((each) => ({ ...each, text: fixed(each.value) })), { label: `Nearest to ${title}`, onpick: ({ label }) => screen.show({ values: { a: label, b: "", c: "" } }) }),
				h("p.soft.small", `${given.length > 1 ? "Sums of cosines" : "Cosines"}; ${words.length} words were compared.`), mapOf(names, results.map(({ values }) => values), (index) => index < texts.length));
		},
	};
}

/** The first place of a word in a text, in code points. */
function placeOf(word, text) {
	const escaped = word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), match = new RegExp(`(?<![\\p{L}\\p{N}])${escaped}(?![\\p{L}\\p{N}])`, "iu").exec(text);
	return match && [fromUtf16(text, match.index), fromUtf16(text, match.index + match[0].length)];
}

/** A word's vector in each sentence, by layer. */
export function inContext(screen, into) {
	const word = screen.text("word", { label: "Word that all lines have", rows: 1, into }), layer = screen.number("layer", { label: "Layer (0: embeddings)", min: 0, max: 1, value: 0, isIndex: true, into });
	return {
		/** Another model: its last layer is shown first. */
		choose({ num_layers: most }) {
			layer.bound(most);
			layer.value = layer.initial = most;
		},
		presets: [
			["train", "He took a train", "We left the city by train", "He likes to train in the mornings", "They train hard for the race"],
			["apple", "She ate a sweet apple", "They cut the red apple", "Apple sells a new phone", "The phone of Apple is fast"],
			["bank", "He sat on the bank of the river", "The bank raised its rates", "She works for a bank", "Reeds grow along the bank"],
		].map(([title, ...lines]) => ({ title, values: { word: title, texts: lines.join("\n") } })),
		async run({ model, call }, texts, line) {
			const text = word.value.trim(), places = texts.map((each) => text && placeOf(text, each)), layers = [], count = model.num_layers + 1;
			if (!places.every(Boolean)) throw new ApiError(400, text ? `Line ${places.indexOf(null) + 1} does not have the word “${text}”.` : "Give a word that all lines have.", "word");
			for (let at = 0; at < count; at++) {
				const weights = Array.from({ length: count }, (_, index) => Number(index === at)), results = await inParts({ texts }, (part) => call("api/ExtractFeatures", { model: model.name, ...part, layers: "LAYERS_MIX", pooling: "POOLING_NONE", weights }));
				layers.push(results.map(({ tokens, vectors }, row) => mean(vectors.filter((_, token) => tokens[token].start < places[row][1] && tokens[token].end > places[row][0]).map(({ values }) => values))));
			}
			const columns = layers.map((_, at) => (at ? `layer ${at}` : "embeddings"));
			return () => {
				const at = Math.min(layer.value, model.num_layers), chosen = Math.min(line.value, texts.length) - 1, alike = matrix(layers[at]).flat();
				const byLayer = texts.flatMap((_, row) => layers.map((vectors) => cosine(vectors[chosen], vectors[row]))), least = Math.min(...alike, ...byLayer), options = { least, summary: `Full colour is 1, none ${fixed(least)}.`, rows: texts.map((each, index) => `${index + 1} ${each}`), most: 1, cell: 44, written };
				fill(screen.result, h("h2", `“${text}” at ${columns[at]}`), heatMap({ ...options, label: `Cosines at ${columns[at]}`, values: alike, columns: texts.map((_, index) => String(index + 1)) }),
					h("h2", `Compared with line ${chosen + 1}, by layer`), heatMap({ ...options, label: "Cosines by layer", values: byLayer, columns, onpick: (_, picked) => { layer.value = picked; screen.changed(); } }));
			};
		},
	};
}
