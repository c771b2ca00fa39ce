// Similarity: texts or pairs compared, words by analogy, one word in several sentences by layer.

import { inParts } from "../api/models.js";
import { css, scale } from "../maths/colour.js";
import { fixed, percent, plural, visible } from "../maths/numbers.js";
import { clustered, cosine, dot, matrix, norm } from "../maths/vectors.js";
import { bars, copyButton, fill, h, picture, tabs } from "../parts/page.js";
import { heatMap } from "../parts/heat_map.js";
import { analogy, inContext, mapOf, written } from "./word_vectors.js";

const MOST_ORDERED = 150; // texts; an order of more takes long
const MEASURES = { cosine, dot, scaled: (a, b) => dot(a, b) / Math.sqrt(a.length) };

export default function build(screen) {
	const mode = screen.choice("mode", { label: "What to compare", options: [["texts", "Texts"], ["analogy", "Words by analogy"], ["vectors", "Vectors"]] });
	const texts = screen.text("texts", { label: "Texts, one a line", rows: 6, isMain: true });
	texts.isFree = true;
	const line = screen.number("line", { label: "Compare with line", min: 1, max: 2, value: 1, isIndex: true });
	const parts = Object.fromEntries(["texts", "analogy", "context"].map((name) => [name, h("div.stack")]));
	screen.input.append(...Object.values(parts));
	const measure = screen.choice("measure", { label: "Measure", options: [["cosine", "Cosine"], ["dot", "Dot product"], ["scaled", "Scaled"]], into: parts.texts });
	const options = h("div.stack", { hidden: true });
	parts.texts.append(options);
	const isOrdered = screen.toggle("order", { label: "Put like texts side by side", into: parts.texts });
	const others = { analogy: analogy(screen, parts.analogy), context: inContext(screen, parts.context) };
	let draw = null, view = 0, embedder = null;

	const isTyped = () => mode.value === "vectors" && screen.model.task !== "features";
	const kind = () => (screen.model.task === "features" ? "context" : screen.model.has_words && mode.value === "analogy" ? "analogy" : "texts");
	const arrange = () => {
		mode.element.hidden = screen.model.task === "features";
		mode.element.querySelector("[data-value=analogy]").hidden = !screen.model.has_words;
		texts.element.querySelector("label").textContent = isTyped() ? "Vectors, one a line, such as cherry: 1, 4" : "Texts, one a line";
		texts.element.hidden = line.element.hidden = kind() === "analogy";
		embedder?.update();
		measure.element.hidden = !isTyped() && (screen.model.task !== "embedding" || embedder?.isLate);
		for (const name in parts) parts[name].hidden = name !== kind();
	};
	screen.onmodel = async (model) => {
		options.hidden = model.task !== "embedding" || (!model.prompts.length && !model.dimensions.length && String(model.embedding_kinds) === "dense");
		if (!options.hidden) embedder ??= (await import("../parts/embedding_options.js")).embeddingOptions(screen, options);
		embedder?.follow(model);
		const ofTexts = [...(model.examples?.length > 1 ? [["Examples of the model", ...model.examples.map(({ text }) => text)]] : []), ...(model.has_words ? [] : TEXTS)];
		screen.presets = model.task === "features" ? others.context.presets : [...ofTexts.map(([title, ...lines]) => ({ title, values: { mode: "texts", texts: lines.join("\n") } })), ...(model.has_words ? others.analogy.presets : []), { title: "Vectors", values: { mode: "vectors", texts: "cherry: 1, 4\norange: 0, 3\nphone: 3, 0" } }];
		draw = null;
		others.context.choose(model);
		fill(screen.result, h("p.placeholder", "Run shows what is alike."));
		setTimeout(arrange); // the permalink's values are there then
	};
	screen.onexample = arrange;
	screen.onchanged = () => {
		arrange();
		if (!screen.isRunning && !["text", "textarea"].includes(document.activeElement.type)) draw?.();
	};

	screen.action(async (tools) => {
		const { model, call } = tools, lines = texts.value.split("\n").map((each) => each.trim()).filter(Boolean);
		arrange();
		line.bound(Math.max(1, lines.length));
		if (isTyped()) {
			const names = lines.map((each) => each.replace(/\s*:[^:]*$/, "")), vectors = lines.map((each) => each.slice(each.lastIndexOf(":") + 1).split(/[\s,]+/).filter(Boolean).map(Number)), wrong = vectors.findIndex((each) => !each.length || each.length !== vectors[0].length || each.some(Number.isNaN));
			if (!lines.length || wrong >= 0) return void texts.error(lines.length ? `Line ${wrong + 1} is no vector of ${plural(vectors[0].length, "number")}.` : "Type a vector in each line.");
			draw = () => show(names, vectors, matrix(vectors, MEASURES[measure.value]), true);
		} else if (kind() !== "texts") draw = await others[kind()].run(tools, lines, line);
		else if (model.task === "pair-scoring") {
			const results = await inParts({ texts: lines.flatMap((text) => lines.map(() => text)), text_pairs: lines.flatMap(() => lines) }, (part) => call("api/ScorePairs", { model: model.name, ...part }));
			draw = () => show(lines, null, lines.map((_, row) => results.slice(row * lines.length, (row + 1) * lines.length).map(({ score }) => score)), model.score_function === "identity");
		} else {
			const embed = (fields) => inParts({ texts: lines }, (part) => call("api/Embed", { model: model.name, ...fields, ...part }));
			const { columns, rows = columns, alike, detail } = embedder ? await embedder.run(embed) : { columns: (await embed()).map(({ values }) => values) };
			draw = () => show(lines, alike ? null : columns, matrix(rows, alike ?? MEASURES[measure.value], columns), true, detail);
		}
		draw();
	});

	function show(all, vectors, alike, isNumber, detail = (index) => stripe(vectors[index])) {
		const at = Math.min(line.value, all.length) - 1, most = isNumber && (!vectors || measure.value !== "cosine") ? undefined : 1, format = isNumber ? fixed : percent;
		const order = isOrdered.value && all.length <= MOST_ORDERED ? clustered(alike) : [...all.keys()];
		const pick = (index) => {
			line.value = index + 1;
			screen.changed();
			screen.result.querySelector("[role=tabpanel]:not([hidden]) :is(button, canvas)")?.focus({ preventScroll: true });
		};
		const ranked = all.map((label, index) => ({ label, index, value: alike[at][index], text: `${label === all[at] ? "same text, " : ""}${format(alike[at][index])}` })).filter(({ index }) => index !== at).sort((a, b) => b.value - a.value);
		const same = ranked.filter(({ label }) => label === all[at]).map(({ index }) => index + 1).sort((a, b) => a - b), [next] = ranked.filter(({ label }) => label !== all[at]);
		const summary = [same.length && `Line ${at + 1} stands again as line ${same.join(", ")}.`, next && `The likest${same.length ? " other text" : ""} to line ${at + 1} is line ${next.index + 1}, ${next.text}.`].filter(Boolean).join(" ");
		const panel = (label, ...children) => ({ label, panel: h("div.stack", children) });
		const pages = [
			panel("Heat map", heatMap({ label: "How alike the texts are", values: order.flatMap((row) => order.map((column) => alike[row][column])), rows: order.map((index) => `${index + 1} ${all[index]}`), columns: order.map((index) => String(index + 1)), isSigned: isNumber, most, format, written: isNumber ? written : (value, below) => written(value, below, `${Math.round(100 * value)} %`), summary, cell: 44, onpick: (row) => pick(order[row]) })),
			panel("Ranking", h("p", h("span.soft", "Likest to "), visible(all[at])), bars(ranked.map((row) => ({ ...row, isSecond: row.value < 0 })), { most, least: Math.min(0, ...ranked.map(({ value }) => value)), onpick: ({ index }) => pick(index), label: summary })),
			...(vectors ? [panel("Map", mapOf(all, vectors, (index) => index === at, pick)), panel("Vector", h("p", visible(all[at])), ...detail(at))] : []),
		];
		const element = tabs(pages.map((page, index) => ({ ...page, onshow: () => { view = index; } })), { label: "Views", at: Math.min(view, pages.length - 1) });
		fill(screen.result, element);
	}
}

/** The values of a vector as colours, row by row, and what it measures. */
function stripe(values) {
	const most = Math.max(...values.map(Math.abs)), rows = Math.min(8, Math.ceil(values.length / 64)), perRow = Math.ceil(values.length / rows);
	return [picture({
		label: "Values of the vector", height: 24 * rows, summary: `Orange is below zero, blue above; full colour is ${fixed(most)}.`, twin: () => ({ head: ["index", "value"], rows: values.map((value, index) => [index, fixed(value, 5)]) }),
		draw: (pen, width, _, colours) => values.forEach((value, index) => {
			pen.fillStyle = css(scale(colours, true)(value / most));
			pen.fillRect((index % perRow) * width / perRow, Math.floor(index / perRow) * 24, width / perRow + 0.5, 22);
		}),
	}), h("div.row.spread", h("span.soft", `${plural(values.length, "value")}, length ${fixed(norm(values))}`), copyButton(() => JSON.stringify(values), "Copy vector"))];
}

const TEXTS = [
	["Two subjects", "A cat sat on the mat.", "The kitten is asleep on the rug.", "Stocks fell sharply on Monday.", "The market lost two per cent today.", "A dog barked at the postman.", "Investors sold their shares."],
	["Said differently", "How do I reset my password?", "I forgot my login.", "What does delivery cost?", "Is shipping free?"],
	["A word left out", "The film was good.", "The film was not good.", "The film was bad.", "It was a great film."],
	["Four languages", "Good morning", "Guten Morgen", "Bonjour", "Buenos días", "Good night", "Gute Nacht"],
];
