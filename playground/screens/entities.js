// Entities: named spans in a text, by label and score.

import { percent, plural, visible } from "../maths/numbers.js";
import { nested } from "../maths/spans.js";
import { fill, h, table, tableButtons } from "../parts/page.js";

const STRATEGIES = [["FIRST", "Words, by their first token"], ["AVERAGE", "Words, by the mean of their tokens"], ["MAX", "Words, by their surest token"], ["SIMPLE", "Tokens, joined"], ["NONE", "Tokens, each by itself"], ["NESTED", "Tokens inside of entities"]];
const plain = (label) => label.replace(/^[BI]-/, "");

export default function build(screen) {
	let latest = null;
	const hidden = new Set();
	const text = screen.text("text", { label: "Text", rows: 6, isMain: true, param: "texts[0]" });
	const strategy = screen.choice("aggregation", { label: "Join", options: STRATEGIES, isMenu: true, onchange: () => latest && screen.run() });
	const least = screen.number("least", { label: "Least score", min: 0, max: 1, step: 0.01, value: 0, onchange: () => show() });
	screen.add({ name: "hidden", initial: [], get value() { return [...hidden]; }, set value(labels) { hidden.clear(); labels.forEach((label) => hidden.add(label)); } });

	screen.action(async ({ model, call }) => {
		const ask = (aggregation) => call("api/ClassifyTokens", { model: model.name, texts: [text.value], aggregation: `AGGREGATION_${aggregation}` });
		const isNested = strategy.value === "NESTED", inner = isNested ? (await ask("NONE")).results[0].entities : [];
		const { entities } = (await ask(isNested ? "FIRST" : strategy.value)).results[0];
		latest = { text: text.value, types: [...new Set(model.labels.filter((label) => label !== "O").map(plain))], entities: [...entities, ...inner.filter(({ start, end }) => !entities.some((outer) => outer.start === start && outer.end === end))] };
		show();
	});

	function show() {
		if (!latest) return;
		const all = latest.entities, labels = [...new Set(all.map(({ label }) => plain(label)))].sort(), hue = (label) => ({ "--hue": `${(latest.types.indexOf(plain(label)) * 137.5 + 255) % 360}` });
		const shown = all.filter(({ label, score }) => score >= least.value && !hidden.has(plain(label))).sort((a, b) => a.start - b.start || b.end - a.end);
		const legend = labels.map((label) => h("button.entity-key", { style: hue(label), "aria-pressed": String(!hidden.has(label)), onclick: () => {
			hidden.has(label) ? hidden.delete(label) : hidden.add(label);
			show();
			screen.changed();
			screen.result.querySelectorAll(".entity-key")[labels.indexOf(label)].focus();
		} }, visible(label), h("span.soft", all.filter((each) => plain(each.label) === label && each.score >= least.value).length)));
		const drawn = (pieces) => pieces.map(({ text: part, span, inner }) => (span ? h("mark.entity", { style: hue(span.label), title: `${span.label}, ${percent(span.score)}` }, drawn(inner), h("small", visible(span.label))) : visible(part)));
		const rows = shown.map(({ text: part, label, score, start, end }) => [part, label, score, start, end]), head = ["Text", "Label", "Score", "Start", "End"];
		fill(screen.result, all.length ? h("div.row", { role: "group", label: "Labels" }, legend) : h("p.placeholder", "The model finds no entity in this text."),
			h("div.tokens.panel.reading", drawn(nested(latest.text, shown))), rows.length > 0 && [h("h2", plural(rows.length, "span")), table(head, rows.map((row) => row.with(2, percent(row[2]))), { caption: "Spans" }), h("div", tableButtons("entities", () => [head, ...rows]))]);
	}
}
