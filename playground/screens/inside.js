// Inside attention: every step as numbers that are typed, or of a head of a served model.

import { attentionOf } from "../api/attention.js";
import { models } from "../api/models.js";
import { attend, eye } from "../maths/attending.js";
import { matrixOf } from "../maths/attention.js";
import { cosine, dot } from "../maths/vectors.js";
import { bars, fill, h, table, tabs } from "../parts/page.js";
import { scatter } from "../parts/scatter.js";
import { PRESETS, written } from "./inside_presets.js";

const MOST = 16; // words
const list = (vector) => `(${vector.map((value) => written(value)).join(", ")})`;
const say = (text) => h("p.mono", text);

export default function build(screen) {
	screen.element.classList.add("first");
	let edited = null, step = 0;
	const given = () => models.of({ tasks: ["attention"], fits: (model) => !model.has_source });
	const preset = screen.choice("preset", { label: "Example", isMenu: true, options: [...Object.entries(PRESETS).map(([key, { title }]) => [key, title]), ["model", "A head of a served model"]], into: screen.head, onchange: () => { edited = null; arrange(); } });
	const note = h("p.soft"), asked = h("div.stack", { hidden: true }), editors = h("div.stack"), settings = h("div.fields");
	screen.input.append(note, asked, editors, settings);
	const text = screen.text("text", { label: "Text", rows: 2, value: "The animal was tired.", into: asked }), place = h("div.fields");
	const by = screen.choice("by", { label: "Model", isMenu: true, options: given().map(({ name }) => name), into: asked });
	asked.append(place);
	const layer = screen.number("layer", { label: "Layer", min: 0, value: 0, into: place }), head = screen.number("head", { label: "Head", min: 0, value: 0, into: place });
	screen.action(read, { label: "Read this head", into: asked });
	const start = () => (PRESETS[preset.value] ?? PRESETS.apple).state;
	const state = screen.add({ name: "data", get initial() { return start(); }, get value() { return edited ?? start(); }, set value(value) { edited = value; } });
	const change = (edit) => {
		edited ??= structuredClone(start());
		edit(edited);
		screen.changed();
	};
	const set = (name) => ({ into: settings, onchange: (value) => { change((now) => { now[name] = value; }); show(); } });
	const measure = screen.choice("measure", { label: "Scores by", options: [["dot", "Dot product"], ["cosine", "Cosine"]], ...set("measure") });
	const divisor = screen.number("divisor", { label: "Divided by", step: "any", value: 1, ...set("by") }), causal = screen.toggle("causal", { label: "Only words before", ...set("isCausal") });
	const follow = screen.choice("follow", { label: "Follow the word", isMenu: true, options: [...Array(MOST).keys()].map((at) => [String(at), String(at + 1)]), into: screen.result, onchange: () => show() });
	const shown = h("div.stack");
	screen.result.append(shown);

	/** A matrix to type into. @param of finds it in the state */
	const grid = (label, names, columns, of) => h("div.scroll", { tabIndex: 0, role: "region", label }, h("table.cells", h("caption.small", label), h("thead", h("tr", h("td"), columns.map((name) => h("th", { scope: "col" }, name)))), h("tbody", of(state.value).map((row, at) => h("tr", h("th", { scope: "row" }, names[at]),
		row.map((value, to) => h("td", h("input", { type: "number", step: "any", value, label: `${label}, row ${at + 1}, column ${to + 1}`, oninput: ({ target }) => { change((now) => { of(now)[at][to] = +target.value; }); show(); } }))))))));

	/** The controls of another example, or of another number of words or heads. */
	function arrange() {
		const { title, note: words } = PRESETS[preset.value] ?? {}, { x, heads, words: names, output } = state.value, isGiven = !!heads[0].scores, size = x[0].length, isModel = !title;
		note.textContent = words ?? (given().length ? "The server gives a head's weights, not its q, k, v and W^O. The scores here are the weights' logarithms: q · k / √d but for a number in each row, which the softmax takes away." : "No model exported with its attention is served. attendant demo attention --keep makes one.");
		if (isModel) by.setOptions(given().map(({ name }) => name));
		[asked.hidden, editors.hidden, settings.hidden] = [!isModel || !given().length, isModel && !isGiven, isModel];
		shown.hidden = follow.element.hidden = isModel && !isGiven;
		if (isModel && !isGiven) return;
		const places = [...Array(size).keys()].map((at) => String(at + 1)), redo = (edit) => () => { change(edit); arrange(); };
		const many = (at) => (heads.length > 1 ? ` of head ${at + 1}` : "");
		const join = (now) => { now.output = now.heads.length > 1 ? now.heads.flatMap(() => eye(size).map((row) => row.map((value) => value / now.heads.length))) : null; };
		fill(editors, isGiven ? grid("Scores: a row for each word that looks", names, names, (now) => now.heads[0].scores) : [
			grid("Words as vectors", names.map((name, at) => h("input", { value: name, label: `Word ${at + 1}`, oninput: ({ target }) => { change((now) => { now.words[at] = target.value; }); show(); } })), places, (now) => now.x),
			h("div.row", h("button", { disabled: x.length >= MOST, onclick: redo((now) => { now.words.push("word"); now.x.push(Array(size).fill(1)); }) }, "Add a word"), h("button", { disabled: x.length < 3, onclick: redo((now) => { now.words.pop(); now.x.pop(); }) }, "Remove a word"),
				h("button", { disabled: heads.length > 2, onclick: redo((now) => { now.heads.push({ q: eye(size), k: eye(size), v: eye(size) }); join(now); }) }, "Add a head"), h("button", { disabled: heads.length < 2, onclick: redo((now) => { now.heads.pop(); join(now); }) }, "Remove a head")),
			h("details", { open: innerWidth >= 1000 }, h("summary", "Matrices"), h("div.fields", heads.flatMap((_, at) => ["q", "k", "v"].map((name) => grid(`W^${name.toUpperCase()}${many(at)}`, places, places, (now) => now.heads[at][name]))), output && grid("W^O", output.map((_, at) => String(at + 1)), places, (now) => now.output))),
		]);
		[measure.value, divisor.value, causal.value] = [state.value.measure, state.value.by, state.value.isCausal];
		show();
	}

	/** What comes out, for the word that is followed. */
	function show() {
		const now = state.value, { words, x, measure: by } = now, { answer, places, checks = [] } = PRESETS[preset.value] ?? {}, all = attend(now), row = Math.min(+follow.value, x.length - 1), word = words[row];
		follow.setOptions(words.map((name, at) => [String(at), name]));
		follow.value = String(row);
		const each = (make) => all.heads.map((head, at) => h("div.stack", all.heads.length > 1 && h("h2", `Head ${at + 1}`), make(head, now.heads[at])));
		const square = (caption, values) => table(["", ...words], values.map((line, at) => [words[at], ...line.map((value) => written(value))]), { caption });
		const products = ({ q, k, scores }) => (q ? words.map((name, to) => say(`${word} · ${name} = ${by === "cosine" ? `cos(${list(q[row])}, ${list(k[to])})` : q[row].map((value, i) => `${written(value)}×${written(k[to][i])}`).join(" + ")} = ${written(scores[row][to])}`)) : say("Given."));
		const pairs = words.flatMap((a, i) => words.slice(i + 1).map((b, j) => [`${a}, ${b}`, ...[dot, cosine, (one, other) => dot(one, other) / Math.sqrt(one.length)].map((of) => written(of(x[i], x[i + 1 + j])))]));
		const pages = [
			["Query, key, value", all.heads[0].q && [h("p", `Each word's vector, here ${word} ${list(x[row])}, is multiplied with three matrices.`), each(({ q, k, v }) => table(["", "vector", "q", "k", "v"], words.map((name, at) => [name, ...[x, q, k, v].map((rows) => list(rows[at]))]), { caption: "Query, key and value" })),
				x.length < 6 && [h("h2", "How alike the vectors are"), table(["", "dot product", "cosine", "scaled"], pairs, { caption: "Three measures" })]]],
			["Scores", [h("p", `The query of ${word} meets the key of every word.`), each((head) => [products(head), square("Scores", head.scores)])]],
			["Scaling", [h("p", `Scores are divided by ${written(now.by)}. The square root of the number of a key's values, ${written(Math.sqrt(x[0].length))} here, keeps the softmax from choosing one word alone.`), each((head) => [say(`${word}: ${head.scores[row].map((value, to) => `${written(value)}/${written(now.by)} = ${written(head.scaled[row][to])}`).join(", ")}`), square("Scaled scores", head.scaled)])]],
			["Softmax", [h("p", "e to the power of each score, divided by the row's sum: shares that sum to 1."), each(({ scaled, weights }) => [say(`${word}: ${scaled[row].map((value, to) => `e^${written(value)}/sum = ${written(weights[row][to])}`).join(", ")}`), bars(words.map((label, to) => ({ label, value: weights[row][to], text: written(weights[row][to]) })), { most: 1, label: `What ${word} looks at` }), square("Weights", weights)])]],
			["Weighted sum", [h("p", `The values, each by its weight, are added up: what ${word} becomes.`), each(({ weights, v, sums }) => [say(`${weights[row].map((value, to) => `${written(value)}×${list(v[to])}`).join(" + ")} = ${list(sums[row])}`), table(["", "before", "after"], words.map((name, at) => [name, list(x[at]), list(sums[at])]), { caption: "Sums" })])]],
			["Heads and W^O", all.heads[0].q && [h("p", now.output ? "The heads' sums stand side by side, and W^O makes one vector of them." : "One head without W^O: its sum is what comes out."), now.output && say(`${list(all.joined[row])} W^O = ${list(all.out[row])}`), table(["", "side by side", "out"], words.map((name, at) => [name, list(all.joined[at]), list(all.out[at])]), { caption: "Heads joined" })]],
		].filter(([, content]) => content);
		const point = ([px, py], label, others) => ({ x: px, y: py, label, note: list([px, py]), ...others });
		const plane = x[0].length === 2 && all.out[0].length === 2 && scatter({
			label: "Words before and after", xTitle: "first value", yTitle: "second value", summary: `Blue: before; orange: after. ${word} goes from ${list(x[row])} to ${list(all.out[row])}.`,
			points: [point(x[row], word), point(all.out[row], `${word}′`, { kind: "on", from: 0 }), ...x.flatMap((at, i) => (i === row ? [] : [point(at, words[i])])), ...(places ?? []).map(([name, ...at]) => point(at, name))],
		});
		fill(shown, plane, tabs(pages.map(([label, content], index) => ({ label, panel: h("div.stack", content), onshow: () => { step = index; } })), { label: "Steps", at: Math.min(step, pages.length - 1) }),
			answer && h("details", h("summary", "Answer"), h("p", answer)),
			checks.length > 0 && h("section.stack", h("h2", "The lecture's numbers"), table(["", "lecture", "here"], checks.map(([value, name, of]) => [name, value, written(of(all, now), value)]), { caption: "The lecture's numbers" })));
	}

	const renewed = () => preset.value === "model" && !edited && arrange();
	models.addEventListener("change", renewed);
	screen.onclose = () => models.removeEventListener("change", renewed);

	/** A head's weights as scores that give them. */
	async function read({ call, signal }) {
		const model = given().find(({ name }) => name === by.value), { queries, weights } = await attentionOf({ model: model.name, text: text.value }, { call, signal, layer: layer.value, head: head.value }), size = queries.length;
		if (size > MOST) return void text.error(`These are ${size} tokens, and the page follows at most ${MOST}: shorten the text.`);
		if (layer.value >= weights.layers || head.value >= weights.heads) return void head.error(`The model has ${weights.layers} layers of ${weights.heads} heads, counted from 0.`);
		const rows = matrixOf(weights, layer.value, head.value), names = queries.map(({ name }) => name);
		edited = { words: names, x: eye(size), heads: [{ scores: names.map((_, at) => [...rows.subarray(at * size, (at + 1) * size)].map((weight) => +Math.log(Math.max(weight, 1e-9)).toFixed(4))) }], output: null, measure: "dot", by: 1, isCausal: false };
		arrange();
	}

	screen.onstart = () => {
		if (preset.value === "model" || !edited) return arrange();
		try { arrange(); } catch { // a link of other numbers
			edited = null;
			arrange();
		}
	};
}
