// Attention heads: lines between tokens, a matrix, and what changes when a token is masked.

import { attentionOf } from "../api/attention.js";
import { models } from "../api/models.js";
import { largest, matricesOf, mean, rollout, strongest, without } from "../maths/attention.js";
import { labelOf, scores } from "../maths/heads.js";
import { slice } from "../maths/offsets.js";
import { announce, bars, fill, h, tabs } from "../parts/page.js";
import { headLines } from "./head_lines.js";
import { headTiles } from "./head_tiles.js";

const OTHERS = { tasks: ["text-classification", "fill-mask", "embedding"], fits: (model) => !model.has_words };

export default function build(screen) {
	screen.element.classList.add("first");
	let attention = null, isOpen = false, hovered = null, matrix = null, cells = [], listed = 0;
	const { soon } = screen, state = (name, initial) => screen.add({ name, initial, value: initial });
	const chosen = state("heads", []), frozen = state("frozen", null), masked = state("masked", null);
	const edited = () => { [frozen.value, masked.value] = [null, null]; soon(); };
	const text = screen.text("text", { label: "Text", isMain: true, onchange: () => { target.value = ""; edited(); } }), target = screen.text("target", { label: "Output that the model reads again", rows: 2, onchange: edited });
	screen.action(async ({ model, call, signal }) => {
		if (model.has_source && !target.value) target.value = await (await import("../api/partners.js")).outputOf(model, text.value, call);
		const of = { model: model.name, text: text.value, ...(model.has_source && { target: target.value }) };
		after.hidden = !masked.value;
		if (masked.value) {
			const { masked: withMask } = await import("./predictions.js"), { text: other, words, change } = await withMask(of, masked.value, by.value, signal);
			of.text = other;
			fill(after, h("div.row.spread", words, h("button", { onclick: () => { masked.value = null; screen.run(); } }, "Take the mask away")), change);
		}
		attention = await attentionOf(of, { call, signal, layer: layer.value, head: chosen.value[0] ?? 0, onpage: (part) => {
			if (part === attention) return;
			attention = part;
			reset();
		} });
		update();
	});

	const view = { onchange: () => update() };
	const layer = screen.number("layer", { label: "Layer", min: 0, max: 1, value: 0, isIndex: true, ...view });
	const tiles = headTiles({ onchange: (heads) => { chosen.value = heads.length === attention?.weights.heads ? [] : heads; screen.changed(); update(); } });
	screen.input.append(tiles.element);
	const box = h("div.fields"), row = h("div.row"), more = h("div.stack");
	screen.input.append(h("details", { open: innerWidth >= 1000 }, h("summary", "Heads together, lines and masks"), more));
	const joined = screen.choice("joined", { label: "Heads together", options: [["mean", "Mean"], ["largest", "Largest"], ["rollout", "Rollout up to this layer"]], into: more, ...view });
	more.append(box, row);
	const kind = screen.choice("lines", { label: "Lines", options: [["share", "Share of each row"], ["least", "From a weight"]], into: box, ...view });
	const limit = screen.number("limit", { label: "Share or weight", min: 0, max: 1, step: 0.01, value: 0.5, into: box, ...view });
	const hidden = screen.toggle("hide", { label: "Hide special tokens", into: row, ...view }), scaled = screen.toggle("scaled", { label: "Scale the rest to 1", value: true, into: row, ...view });
	const others = models.of(OTHERS).map((model) => model.name);
	const by = screen.choice("by", { label: "Answer before and after a mask, by", isMenu: true, into: more, options: others.length ? others : [["", "no classifier, masked model or embedder is served"]], onchange: () => masked.value && screen.run() });
	const after = h("div.panel.stack", { hidden: true, label: "Change by the mask" });

	const places = () => attention && { query: attention.queries, key: attention.keys };
	const at = () => { const place = frozen.value ?? hovered; return attention && place && place.index < places()[place.side].length ? place : null; };
	const lines = headLines({
		onhover: (place) => { hovered = place; if (!frozen.value) show(); },
		onpick: (place) => { frozen.value = frozen.value?.side === place.side && frozen.value.index === place.index ? null : place; hovered = place; screen.changed(); show(); },
		onkey: (key, place) => {
			if (key === "m") mask(place);
			else if (key === "ArrowLeft" || key === "ArrowRight") step(key);
			else return false;
			return true;
		},
		ondraw: tiles.draw,
	});
	const hint = h("p.small.soft"), side = h("aside.stack", { label: "Weights" }), grid = h("div"), twin = h("details.small", { ontoggle: () => tables() }, h("summary", "As a table"));
	const save = (label, form) => h("button.plain", { onclick: () => use(form) }, label);
	const strip = tabs([
		{ label: "Lines", panel: h("div.stack", hint, h("div.heads-lines", lines.element, side), twin), onshow: () => attention && show() },
		{ label: "Matrix", panel: grid, onshow: () => use("drawMatrix") },
	], { label: "Form" });
	const saves = h("div.row", save("Save PNG", "savePng"), save("Save CSV", "saveCsv"), save("Save JSON", "saveJson"));
	const placeholder = h("p.placeholder", "Run to see where each head looks."), shown = h("div.stack", { hidden: true }, strip, saves);
	fill(screen.result, placeholder, after, shown);

	screen.onmodel = (model) => {
		target.element.hidden = !model.has_source;
		layer.bound(model.num_layers - 1);
		if (isOpen) [chosen.value, frozen.value, masked.value] = [[], null, null];
		if (isOpen || !screen.given.run) soon();
		isOpen = true;
	};
	screen.onexample = ({ text_pair: output = "" }) => { [frozen.value, masked.value, target.value] = [null, null, output]; };
	screen.element.addEventListener("keydown", (event) => {
		if (!event.target.closest("input, textarea, select, [role=radio], [role=tab], .tile, canvas, .scroll") && !event.ctrlKey && !event.metaKey && !event.altKey && step(event.key)) event.preventDefault();
	});
	function reset() {
		[placeholder.hidden, shown.hidden, cells] = [true, false, []]; // those of other tokens
		chosen.value = chosen.value.filter((each) => each < attention.weights.heads);
		lines.tokens(attention.queries, attention.keys);
		listed = Math.min(10, Math.max(attention.queries.length, attention.keys.length));
		side.style.setProperty("--rows", listed);
		joined.element.querySelector("[data-value=rollout]").disabled = attention.isCross;
		update();
	}

	function step(key) {
		const by = { ArrowLeft: -1, ArrowRight: 1 }[key], next = layer.value + by;
		if (!by || !attention || next < 0 || next >= attention.weights.layers) return false;
		layer.value = next;
		screen.changed();
		update();
		announce(`Layer ${next}`);
		return true;
	}

	/** Masks a token of the text, or takes the mask away from where it is. */
	function mask({ side: of, index }) {
		const token = places()[of][index];
		if (token.isSpecial || (attention.isCross && of === "query")) return;
		masked.value = masked.value ? null : { start: token.start, end: token.end, text: slice(text.value, token.start, token.end) };
		screen.run();
	}
	function update() {
		if (!attention || !attention.loaded[layer.value]) return;
		const { weights, queries, keys, isCross } = attention, heads = chosen.value.length ? chosen.value : Array.from({ length: weights.heads }, (_, head) => head);
		const all = matricesOf(weights, layer.value), own = matricesOf(weights, layer.value, heads);
		const before = () => Array.from({ length: layer.value + 1 }, (_, each) => mean(matricesOf(weights, each, heads)));
		const whole = joined.value === "rollout" && !isCross && attention.loaded.every(Boolean) ? rollout(before(), keys.length) : joined.value === "largest" ? largest(own) : mean(own);
		const out = (tokens) => tokens.map((token) => hidden.value && token.isSpecial);
		matrix = without(whole, isCross ? out(queries).fill(false) : out(queries), out(keys), hidden.value && scaled.value);
		cells = strongest(matrix, keys.length, kind.value === "share" ? { share: limit.value } : { threshold: Math.max(limit.value, 1e-9) });
		tiles.show(all, keys.length, all.map((each) => labelOf(scores(each, { queries, keys, isCross }))), heads);
		const few = `${cells.length} lines of ${queries.length} tokens`;
		lines.canvas.ariaLabel = `Layer ${layer.value}: ${few}`;
		fill(hint, `${few}. Point at a token to see its weights; click to keep it; `, h("kbd", "m"), " masks it; ", h("kbd", "←"), " ", h("kbd", "→"), " change the layer.");
		show();
		if (strip.chosen === 1) use("drawMatrix");
	}

	/** The lines, and the weights of the token that is pointed at, or the largest. */
	function show() {
		const place = at(), { queries, keys } = attention, isQuery = place?.side === "query", others = isQuery ? keys : queries, size = keys.length;
		lines.show(cells, place, !!frozen.value);
		const weights = place ? others.map((token, index) => ({ label: token.name, value: matrix[isQuery ? place.index * size + index : index * size + place.index], isSecond: !isQuery }))
			: cells.map(({ row, column, weight }) => ({ label: `${queries[row].name} → ${keys[column].name}`, value: weight }));
		fill(side, h("h2", place ? [places()[place.side][place.index].name, h("span.soft", isQuery ? " looks at" : " is looked at by")] : "Strongest lines"),
			bars(weights.sort((a, b) => b.value - a.value).slice(0, listed), { most: 1, label: "Weights" }));
		tables();
	}

	/** Forms that are loaded on demand. */
	const use = async (form) => attention && (await import("./head_forms.js"))[form]({ matrix, grid, canvas: strip.chosen ? grid.querySelector("canvas") : lines.canvas, twin, queries: attention.queries, keys: attention.keys, title: `layer ${layer.value}`,
		cells: cells.filter((cell) => !at() || (at().side === "query" ? cell.row : cell.column) === at().index), of: { model: screen.model.name, layer: layer.value, heads: chosen.value, joined: joined.value } });
	function tables() { if (twin.open) use("drawTable"); }
}
