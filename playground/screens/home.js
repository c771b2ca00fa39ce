// Home: three living things, what is being built, and the lectures.

import { events, json } from "../api/client.js";
import { models } from "../api/models.js";
import { attend } from "../maths/attending.js";
import { percent } from "../maths/numbers.js";
import { builds } from "../parts/builds.js";
import { go, LECTURES } from "../parts/course.js";
import { bars, fill, h, tokenRow } from "../parts/page.js";
import { PRESETS } from "./inside_presets.js";

const START = "The import statement", WORDS = "The animal did not cross the street because it was too tired.";
const TEXTS = ["A cat sat on the mat.", "The kitten is asleep on the rug.", "Stocks fell sharply on Monday.", "Investors sold their shares."];

export default function build(screen) {
	const ending = new AbortController(), { signal } = ending, first = (task) => models.of({ tasks: [task], fits: (model) => !model.has_source && !model.has_words })[0];
	screen.wide();
	screen.drawer.parentElement.hidden = true;
	const panel = (title, link, words) => {
		const content = h("div.stack"), element = h("section.panel.stack", { label: title }, h("h2", h("a", { href: `#/${link}` }, title)), h("p.soft", words), content);
		return { element, content };
	};
	const parts = [panel("A sentence that completes", "generate", "A model guesses one token after the other."), panel("A word that attends", "inside", "Point at a word: the shades are its weights."), panel("Texts that find each other", "similarity", "Choose a text: the others come in the order of their likeness.")];
	const shown = {};

	async function complete(model, into) {
		const output = h("span"), again = h("button", { onclick: write }, "Again"), line = h("p.tokens", START, output);
		fill(into, line, h("div", again));
		async function write() {
			[output.textContent, again.disabled] = ["", true];
			try {
				for await (const { text = "" } of events("api/Generate", { body: { model: model.name, text: START, sampling_params: { max_tokens: 32, temperature: 0.7 } }, signal })) output.textContent += text;
			} finally { again.disabled = false; }
		}
		await write();
	}

	async function look(model, into) {
		let names = PRESETS.sentence.state.words, [{ weights }] = attend(PRESETS.sentence.state).heads;
		if (model) {
			const { queries, matrices: [{ weights: values }] } = await json("api/Attend", { body: { model: model.name, text: WORDS, layers: [model.num_layers - 1], heads: [0] }, signal });
			names = queries.map(({ piece }) => piece);
			weights = names.map((_, row) => values.slice(row * names.length, (row + 1) * names.length));
		}
		const said = h("p.small.soft"), show = (at) => {
			const most = Math.max(...weights[at]);
			for (const [to, each] of [...row.children].entries()) each.style.setProperty("--shade", weights[at][to] / most);
			said.textContent = `${names[at]} looks most at ${names[weights[at].indexOf(most)]}, ${percent(most)}.`;
		};
		const row = tokenRow(names.map((text) => ({ text })), { label: "Words", onfocus: (at) => at !== null && show(at) });
		row.classList.add("apart");
		fill(into, row, said);
		show(Math.max(0, names.indexOf("it")));
	}

	async function find(model, into) {
		const { rows } = await json("api/Similarity", { body: { model: model.name, texts: TEXTS }, signal });
		const show = (at) => fill(into, h("p", TEXTS[at]), bars(TEXTS.map((label, to) => ({ label, to, value: rows[at].values[to], text: rows[at].values[to].toFixed(2) })).filter(({ to }) => to !== at).sort((a, b) => b.value - a.value), { most: 1, isLong: true, label: "The others", onpick: ({ to }) => show(to) }));
		show(0);
	}

	const lives = [["text-generation", complete, "gpt"], ["attention", look], ["embedding", find, "minilm"]];
	/** Lets each part live with the model that is served for it now. */
	function refresh() {
		lives.forEach(([task, live, demo], at) => {
			const model = first(task), into = parts[at].content;
			if (shown[task] === (model?.name ?? "")) return;
			shown[task] = model?.name ?? "";
			if (!model && demo) fill(into, h("p.soft", "No model for it is served yet."), builds(demo));
			else live(model, into).catch((error) => error.name !== "AbortError" && into.append(h("p.notice", { role: "alert" }, error.message)));
		});
	}
	models.addEventListener("change", refresh);
	screen.onclose = () => {
		ending.abort();
		models.removeEventListener("change", refresh);
	};
	fill(screen.input, builds(), h("div.pair", parts.map(({ element }) => element)), h("h2", "The lectures, step by step"),
		h("ol.fields", LECTURES.map(([title, steps], at) => h("li", h("button.plain", { onclick: () => go(at, 0) }, `${at + 1} ${title}`), h("span.soft", ` ${steps.length} steps`)))));
	screen.onstart = refresh;
}
