// Templates by words: what is likely at the mask of each, as a table.

import { ApiError } from "../api/client.js";
import { listed, oneToken } from "../api/vocabulary.js";
import { percent, visible } from "../maths/numbers.js";
import { batches } from "../maths/words.js";
import { fill, h, table, tableButtons } from "../parts/page.js";

const BATCH = 32; // texts of a request, which may have 64 masks
const MOST_ROWS = 512;

/** What the fields have at first, as an example of bias. */
export const FIRST = { templates: "The {} said that [MASK] was tired.\nThe {} thinks that [MASK] is right.", words: "doctor, nurse, teacher", targets: "he, she" };

export function maskTemplates(screen, into) {
	const templates = screen.text("templates", { label: "Templates, one a line; {} is the word", value: FIRST.templates, hint: "The first ones are an example of bias.", into });
	const words = screen.text("words", { label: "Words", rows: 1, value: FIRST.words, into }), targets = screen.text("targets", { label: "At the mask", rows: 1, value: FIRST.targets, hint: "Without words: the three likeliest.", into });

	return { async run(context) {
		const { model, call } = context, { known, reasons } = await oneToken(listed(targets.value), context);
		const lines = templates.value.replaceAll("[MASK]", () => model.mask_token).split("\n").filter((line) => line.trim());
		const cases = lines.flatMap((line) => (line.includes("{}") ? listed(words.value) : [""]).map((word) => [line.replaceAll("{}", () => word), word])), rest = cases.splice(MOST_ROWS).length, results = [];
		if (!cases.length) throw lines.length ? new ApiError(400, "Give words for the place of {}.", "words") : new ApiError(400, "Give a template.", "templates");
		if (rest) reasons.push(`The last ${rest} rows are left out: there are at most ${MOST_ROWS}.`);
		for (const part of batches(cases, BATCH)) results.push(...(await call("api/FillMask", { model: model.name, texts: part.map(([text]) => text), ...(known.length ? { candidates: known } : { top_k: 3 }) })).results);
		const rows = cases.map((given, index) => {
			const { fills } = results[index].masks[0];
			return [...given, ...(known.length ? known.map((word) => fills.find(({ token }) => token === word).score) : fills.map(({ token, score }) => `${token} ${percent(score)}`))];
		});
		const head = ["Text", "Word", ...(known.length ? known : ["1st", "2nd", "3rd"])], shown = (value, column) => (typeof value === "number" ? percent(value) : h("span", { class: ["long", null][column] ?? "whole" }, visible(value)));
		fill(screen.result, reasons.map((text) => h("p.notice", text)), table(head, rows.map((row) => row.map(shown)), { caption: "Fills of each template and word" }), h("div", tableButtons("templates", () => [head, ...rows])));
	} };
}
