// Rerank: documents in the order of how well each answers a query, by a model that scores pairs.

import { ApiError } from "../api/client.js";
import { models } from "../api/models.js";
import { fixed, percent, plural } from "../maths/numbers.js";
import { textsOf } from "../maths/pasted.js";
import { ends, merged } from "../maths/ranking.js";
import { batches } from "../maths/words.js";
import { bars, fill, h, table, tableButtons } from "../parts/page.js";

const MOST_DOCUMENTS = 1000;
const RAW = { own: undefined, probability: false, logit: true };

export default function build(screen) {
	let latest = null, open = new Set();
	const query = screen.text("query", { label: "Query", rows: 2, isMain: true });
	const list = screen.text("documents", { label: "Documents, one a line, or CSV with a column named text", rows: 9 });
	const count = screen.number("top_n", { label: "Documents shown, 0 for all", min: 0, isBare: true, value: 0 });
	const kind = screen.choice("scores", { label: "Scores", options: [["own", "The model's"], ["probability", "Probabilities"], ["logit", "Logits"]], param: "raw_scores" });
	const isCut = screen.toggle("truncate", { label: "Cut documents that are too long" });

	screen.onmodel = (model) => {
		const pairs = (model.examples ?? []).filter((each) => each.text_pair);
		const own = pairs.length > 1 ? [{ title: "Examples of the model", values: { query: pairs[0].text, documents: pairs.map((each) => each.text_pair).join("\n") } }] : [];
		screen.presets = [...own, ...QUERIES.map(([title, text, ...documents]) => ({ title, values: { query: text, documents: documents.join("\n") } }))];
		latest = null;
		fill(screen.result, h("p.placeholder", "Run puts the documents in order."));
	};

	screen.action(async ({ model, call }) => {
		const all = textsOf(list.value), documents = all.slice(0, MOST_DOCUMENTS), raw = RAW[kind.value], parts = [];
		if (!documents.length) throw new ApiError(400, "Give a document.", "documents");
		const body = { model: model.name, query: query.value, ...(count.value > 0 && { top_n: count.value }), ...(raw !== undefined && { raw_scores: raw }), ...(isCut.value && { truncate: true }) };
		for (const part of batches(documents, models.mostTexts)) parts.push((await call("api/Rerank", { ...body, documents: part })).results);
		const isNumber = kind.value === "logit" || (kind.value === "own" && model.score_function === "identity");
		[latest, open] = [{ documents, isNumber, numGiven: all.length, results: merged(parts, models.mostTexts, count.value) }, new Set()];
		show();
	});

	function show() {
		const { documents, results, isNumber, numGiven } = latest, format = isNumber ? fixed : percent;
		const pick = (_, at) => {
			if (!open.delete(at)) open.add(at);
			show();
			screen.result.querySelectorAll(".bars button")[at].focus();
		};
		const rows = results.map(({ index, score, is_truncated: wasCut }, at) => ({ label: `${at + 1}. ${documents[index]}`, value: score, text: `${format(score)}${wasCut ? ", cut" : ""}`, isSecond: score < 0, isOpen: open.has(at) }));
		const head = ["Rank", "Document", "Score", "Tokens", "Cut", "Text"], cells = results.map((each, at) => [at + 1, each.index + 1, each.score, each.num_tokens, each.is_truncated ? "yes" : "no", documents[each.index]]);
		fill(screen.result, numGiven > documents.length && h("p.notice", `The first ${documents.length} of ${numGiven} documents.`),
			bars(rows, { ...ends(results.map(({ score }) => score), isNumber), label: "Documents, best first", onpick: pick, isLong: true }),
			h("p.small.soft", `${results.length < documents.length ? `The best ${results.length} of ${plural(documents.length, "document")}. ` : ""}${isNumber ? "A score is a number, the higher the better; bars begin at 0." : "Each score is by itself, from 0 to 100 %: they do not add up."} Choose a document to read all of it.`),
			h("details", h("summary", "As a table"), table(head, cells.map((row) => row.map((value, column) => (column === 2 ? format(value) : value))), { caption: "Documents, best first" }), h("div", tableButtons("ranking", () => [head, ...cells]))));
	}
}

const QUERIES = [
	["Which one answers", "How long does a refund take?", "Refunds are paid within five working days.", "You can return goods within thirty days.", "Our shop opens at nine o'clock.", "The money is sent back to the card that was charged.", "Delivery takes two to four days."],
	["Same words, another subject", "python memory leak", "A reference cycle keeps objects alive in a Python program.", "The python is a snake that can swallow a goat.", "How to find a leak in a water pipe.", "tracemalloc shows where a program's memory was allocated.", "Human memory fades with age."],
	["Another language", "Where can I renew my passport?", "Reisepässe werden im Bürgeramt verlängert.", "La biblioteca abre a las diez.", "Passports are renewed at the town hall.", "Un visa se demande au consulat."],
];
