// One prompt or two: what they make likely at their masks, as pairs and as points.

import { listed, oneToken } from "../api/vocabulary.js";
import { ORDERS, filled, pairs, times, union } from "../maths/fills.js";
import { fixed, percent, visible } from "../maths/numbers.js";
import { toUtf16 } from "../maths/offsets.js";
import { insert } from "../parts/controls.js";
import { bars, fill, h, roving, tableButtons } from "../parts/page.js";
import { scatter } from "../parts/scatter.js";

const MOST_MASKS = 16; // of a text, as the server takes it

export function maskPrompts(screen, into) {
	let mask = "", latest = null, before = null;
	const first = screen.text("first", { label: "First prompt", rows: 2, isMain: true, param: "texts[0]", into }), second = screen.text("second", { label: "Second prompt, or none", rows: 2, param: "texts[1]", into });
	let last = first;
	for (const each of [first, second]) each.input.addEventListener("focus", () => { last = each; });
	const button = (words, onclick) => h("button", { onclick }, words), set = (...texts) => { [first.value, second.value] = texts; screen.run(); };
	const inserting = button("", () => insert(last, mask)), undo = button("Take the word out", () => { undo.hidden = true; set(...before); });
	undo.hidden = true;
	into.append(h("div.row", inserting, button("Swap prompts", () => set(second.value, first.value)), undo));
	const top = screen.number("top_k", { label: "Fills of each prompt", min: 1, max: 50, value: 15, into }), only = screen.text("candidates", { label: "Only these words", rows: 1, placeholder: "oil, art, guns", into });
	const order = screen.choice("order", { label: "Order", options: [["first", "First"], ["second", "Second"], ["difference", "Difference"], ["word", "Word"]], into: null, onchange: () => show() });
	const masks = (count) => Array.from({ length: count }, (_, index) => [String(index), String(index + 1)]), which = screen.choice("mask", { label: "Mask", options: masks(MOST_MASKS), isMenu: true, into: null, onchange: () => show() });

	async function run(pen) {
		const texts = [first.value, second.value].filter((text) => text.trim()), words = listed(only.value);
		if (texts.length && !texts.some((text) => text.includes(mask))) return fill(screen.result, texts.map((text) => h("p.panel", visible(text)))) && "no mask is left";
		const { known, reasons } = await oneToken(words, pen), ask = async (choice) => (await pen.call("api/FillMask", { model: pen.model.name, texts, ...choice })).results;
		latest = { texts, notices: reasons.map((text) => h("p.notice", text)), results: [] };
		if (words.length && !known.length) return fill(screen.result, latest.notices) && "no word to compare";
		let results = await ask(known.length ? { candidates: known } : { top_k: top.value });
		// The likeliest of either prompt, looked up in both.
		if (texts.length > 1 && !known.length) results = await ask({ candidates: union(results.flatMap((result) => result.masks.map(({ fills }) => fills))) });
		latest.results = results;
		const count = Math.min(...results.map((result) => result.masks.length)), chosen = Math.min(which.value, count - 1);
		which.setOptions(masks(count));
		which.value = String(chosen);
		which.element.hidden = count < 2;
		show();
	}

	/** Puts a word into the mask that is shown, of both prompts. */
	function take(token) {
		before = [first.value, second.value];
		const whole = new Map(latest.texts.map((text, index) => {
			const { start, end } = latest.results[index].masks[which.value];
			return [text, filled(text, toUtf16(text, start), toUtf16(text, end), token)];
		}));
		undo.hidden = false;
		set(...before.map((text) => whole.get(text) ?? text));
	}

	function show() {
		if (!latest?.results.length) return;
		const [one, other] = latest.results.map((result) => result.masks[which.value].fills);
		if (!other) fill(screen.result, latest.notices, which.element, bars(one.map(({ token, score }) => ({ label: token, value: score })), { most: 1, label: "Fills", onpick: ({ label }) => take(label) }));
		else {
			const rows = pairs(one, other).sort(ORDERS[order.value]), table = [["word", "first", "second", "log ratio"], ...rows.map((row) => [row.token, Math.exp(row.first), Math.exp(row.second), row.ratio])];
			fill(screen.result, latest.notices, chart(rows, latest.texts, take), h("div.row.spread.end", order.element, which.element, tableButtons("fills", () => table)), paired(rows, take));
		}
	}

	return { run, spell: (token) => { [mask, inserting.textContent] = [token, `Insert ${token}`]; } };
}

function chart(rows, texts, take) {
	const ordered = [...rows].sort((a, b) => b.ratio - a.ratio), ends = new Set([ordered[0], ordered.at(-1)]), said = ({ token, ratio }) => `“${visible(token)}” is ${times(ratio)} in the ${ratio < 0 ? "second" : "first"} prompt`;
	const points = [...rows].sort(ORDERS.difference).map(({ token, first, second, ratio }) => ({ x: first, y: second, label: token, kind: ratio < 0 ? "on" : "", note: `${percent(Math.exp(first))} in the first, ${percent(Math.exp(second))} in the second` }));
	return scatter({ label: "Log probability of each word under both prompts", points, isSquare: true, onpick: (index) => take(points[index].label), xTitle: `log p: ${visible(texts[0])}`, yTitle: `log p: ${visible(texts[1])}`,
		summary: `${[...ends].map(said).join("; ")}. Words on the dashed line are as likely in both.` });
}

/** A row for each word, its bar of the first prompt to the left and of the second to the right. */
function paired(rows, take) {
	const most = Math.exp(Math.max(...rows.flatMap((row) => [row.first, row.second])));
	const bar = (logprob, name) => h("td", { class: `bar ${name}` }, h("span", h("span.value", percent(Math.exp(logprob))), h("span.track", h("span.fill", { style: { "--share": Math.exp(logprob) / most } }))));
	const row = ({ token, first, second, ratio }) => h("tr", bar(first, "first"), h("th", { scope: "row" }, h("button.plain", { title: "Put it into the prompts", onclick: () => take(token) }, visible(token, true))), bar(second, "second"),
		h("td.number", { title: `${times(ratio)} in the ${ratio < 0 ? "second" : "first"}` }, `${ratio > 0 ? "+" : ""}${fixed(ratio, 2)}`));
	const made = h("table.paired", h("caption.hidden", "Words under both prompts"), h("thead", h("tr", ["First", "Word", "Second", "Log ratio"].map((title) => h("th", { scope: "col" }, title)))), h("tbody", rows.map(row)));
	roving(made, () => [...made.querySelectorAll("button")]);
	return made;
}
