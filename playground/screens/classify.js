// Classify: labels or numbers of a text, with what each word contributes, or of many texts in a table.

import { ApiError } from "../api/client.js";
import { models } from "../api/models.js";
import { fixed, percent, visible } from "../maths/numbers.js";
import { textsOf } from "../maths/pasted.js";
import { ends } from "../maths/ranking.js";
import { batches, without, words } from "../maths/words.js";
import { bars, fill, h, table, tableButtons, tip, tokenRow } from "../parts/page.js";

const MOST_TEXTS = 64; // of leaving words out: the whole text, and 63 without a word or a few
const MOST_ROWS = 1000; // of pasted texts
const LIKELY = 0.5; // from which on one of several labels is said to be right
/** How scores of a model are written, and the difference that leaving out a word makes. */
const PROBABILITIES = { format: percent, times: 100, digits: 1, unit: " points" };
const WAYS = { sigmoid: { ...PROBABILITIES, isEach: true, note: "Each label has a probability of its own: several may be right, or none." }, identity: { isNumber: true, format: fixed, times: 1, digits: 3, unit: "", note: "The model gives numbers, which may be below 0." } };
const wayOf = (model) => WAYS[model.score_function] ?? PROBABILITIES;
const scoresOf = (result) => new Map(result.labels.map(({ label, score }) => [label, score]));

export default function build(screen) {
	let latest = null, explained = "";
	const mode = screen.choice("mode", { label: "Classify", options: [["one", "One text"], ["many", "Several texts"]] });
	const one = h("div.stack.of-one"), many = h("div.stack.of-many");
	screen.input.append(one, many);
	const text = screen.text("text", { label: "Text", rows: 5, isMain: true, param: "texts[0]", into: one }), second = screen.text("text_pair", { label: "Second text", rows: 3, param: "text_pairs", into: one });
	const leaves = screen.toggle("words", { label: "What each word contributes", value: true, into: one });
	const list = screen.text("texts", { label: "Texts, one a line, or CSV with a column named text", rows: 8, into: many });
	screen.add({ name: "label", initial: "", get value() { return explained; }, set value(label) { explained = label; } });
	screen.onexample = () => { mode.value = "one"; };
	screen.onmodel = (model) => {
		second.element.hidden = !model.examples.some((each) => each.text_pair);
		if (!list.value) list.initial = list.value = model.examples.map((each) => each.text).join("\n");
		if (!model.labels.includes(explained)) explained = "";
	};

	screen.action(async ({ model, call }) => {
		const classify = async (texts) => {
			const results = [];
			for (const part of batches(texts, Math.min(MOST_TEXTS, models.mostTexts))) results.push(...(await call("api/Classify", { model: model.name, texts: part, all_scores: true, ...(second.value && mode.value === "one" && { text_pairs: part.map(() => second.value) }) })).results);
			return results;
		};
		if (mode.value === "many") {
			const all = textsOf(list.value), texts = all.slice(0, MOST_ROWS);
			if (!texts.length) throw new ApiError(400, "Give a text.", "texts");
			return tabulate(model, texts, await classify(texts), all.length);
		}
		const spans = leaves.value ? words(text.value, MOST_TEXTS - 1) : [], parts = spans.length > 1 ? spans : [];
		const [whole, ...others] = await classify([text.value, ...without(text.value, parts)]);
		latest = { model, text: text.value, whole, parts, others: others.map(scoresOf) };
		show();
	});

	function tabulate(model, texts, results, count) {
		const { isNumber, isEach, format, note } = wayOf(model), chosen = ({ labels: [first, ...others] }) => (isNumber ? [] : [isEach ? [first, ...others].filter(({ score }) => score >= LIKELY).map(({ label }) => label).join(", ") || "none" : first.label]);
		const head = ["Text", ...(isNumber ? [] : [isEach ? `Labels from ${100 * LIKELY} % on` : "Label"]), ...model.labels], rows = results.map((result, index) => [texts[index], ...chosen(result), ...model.labels.map((label) => scoresOf(result).get(label))]);
		fill(screen.result, count > rows.length && h("p.notice", `The first ${rows.length} of ${count} texts.`), rows.length ? [table(head, rows.map((row) => row.map((value) => (typeof value === "number" ? format(value) : value))), { caption: isNumber ? "Numbers of the texts" : "Labels of the texts" }), note && h("p.small.soft", note), h("div", tableButtons("labels", () => [head, ...rows]))] : h("p.placeholder", "Give a text in each line."));
	}

	function show() {
		const { text: whole, whole: { labels }, parts, others } = latest, { isNumber, format, times, digits, unit, note } = wayOf(latest.model), shown = explained || labels[0].label, full = labels.find(({ label }) => label === shown).score;
		const pick = ({ label }, index) => {
			explained = label;
			show();
			screen.changed();
			screen.result.querySelectorAll(".bars button")[index].focus();
		};
		const effects = others.map((scores) => full - scores.get(shown)), most = Math.max(isNumber ? 1e-12 : 0.01, ...effects.map(Math.abs));
		const row = parts.map(({ start, end }, index) => ({ text: whole.slice(start, end), shade: Math.abs(effects[index]) / most, isWarm: effects[index] < 0, isOn: effects[index] < 0, title: `${effects[index] < 0 ? "against" : "for"} ${shown}: ${fixed(Math.abs(times * effects[index]), digits)}${unit}` }));
		const marked = row.length > 0 && tokenRow(row, { label: `Words for and against ${shown}`, onfocus: (index, element) => (index === null ? tip(null) : tip(element, `Without “${visible(row[index].text)}”: ${format(full - effects[index])} ${shown}, ${fixed(Math.abs(times * effects[index]), digits)}${unit} ${effects[index] < 0 ? "more" : "less"}`)) });
		if (marked) [...marked.children].forEach((element, index) => element.before(visible(whole.slice(index ? parts[index - 1].end : 0, parts[index].start))));
		const ranked = row.map(({ text: word }, index) => [word, `${effects[index] > 0 ? "+" : ""}${fixed(times * effects[index], digits + 1)}`, effects[index]]).sort((a, b) => b[2] - a[2]).map(([word, points]) => [word, points]);
		fill(screen.result, bars(labels.map(({ label, score }) => ({ label, value: score, text: format(score), isSecond: score < 0, isOn: row.length > 0 && label === shown })), { ...ends(labels.map(({ score }) => score), isNumber), label: "Labels", onpick: row.length > 0 ? pick : undefined }), note && h("p.small.soft", note),
			marked && [h("h2", `Words for and against ${visible(shown)}`), h("div.panel", marked), h("p.small.soft", `Each word is left out in turn. Blue: without it the ${isNumber ? "number is lower" : "label is less likely"}. Orange and underlined: without it the ${isNumber ? "number is higher" : "label is likelier"}.`),
				h("details", h("summary", "As a table"), table(["Word", isNumber ? "Difference" : "Points of probability"], ranked, { caption: "What each word contributes" }))]);
	}
}
