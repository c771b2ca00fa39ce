// What may come next, reshaped here by the settings, without a call; and how surprising a text is.

import { bytesOf, spelled, texts, tokenOf } from "../maths/branches.js";
import { fixed, percent, visible } from "../maths/numbers.js";
import { shaped } from "../maths/sampling.js";
import { surprise } from "../maths/surprise.js";
import { fill, h, roving, table, tableButtons, tokenRow } from "../parts/page.js";
import { samplingControls } from "../parts/sampling_controls.js";

const LIKELIEST = 50; // the most that the API gives
const WORST = 10;

export default function build(screen) {
	let tail = [], biases = {}, found = null;
	const view = screen.choice("view", { label: "Show", options: [["next", "Next token"], ["surprise", "Surprise of the text"]], value: "next", param: "", onchange: () => screen.run() });
	const text = screen.text("text", { label: "Text", rows: 4, isMain: true, onchange: () => { tail = []; screen.soon(); } });
	const chips = h("div.row", { role: "group", label: "Appended tokens" }), inner = h("div.stack"), settings = h("details", { open: innerWidth >= 1000 }, h("summary", "Settings"), inner);
	screen.add({ name: "tail", initial: [], get value() { return tail; }, set value(value) { tail = value; } });
	screen.add({ name: "bias", initial: {}, get value() { return biases; }, set value(value) { biases = value; } });
	screen.onexample = () => { tail = []; };
	screen.action(run);
	screen.input.append(chips, settings);
	const sampling = samplingControls(screen, inner), changed = screen.changed.bind(screen);
	screen.changed = () => { // by any control: the bars follow, and no call is made
		changed();
		show();
	};
	screen.onmodel = () => { [tail, biases, found] = [[], {}, null]; };

	async function run({ model, call }) {
		found = null;
		if (view.value === "surprise") {
			const answer = await call("api/GenerateUnary", { model: model.name, text: text.value, sampling_params: { max_tokens: 0, prompt_logprobs: 1 } });
			found = { scores: answer.prompt_logprobs };
			return show();
		}
		const { results: [{ tokens }] } = await call("api/Tokenize", { model: model.name, texts: [text.value] }), prompt = tokens.map((token) => token.id), output = tail.map(([id]) => id);
		const body = { model: model.name, ...(tail.length ? { token_ids: { ids: [...prompt, ...output] } } : { text: text.value }), sampling_params: { max_tokens: 1, temperature: 0, logprobs: LIKELIEST } };
		const { results: [{ logprobs: [first] }] } = await call("api/GenerateUnary", body), { logit, logprob, top } = tokenOf(first);
		found = { prompt, output, candidates: top.map((each) => ({ ...each, logit: each.logprob + logit - logprob })) };
		show();
	}

	function go(next) {
		tail = next;
		screen.run();
	}

	function bias(id, by) {
		const value = Math.min(100, Math.max(-100, (biases[id] ?? 0) + by));
		biases = { ...biases, [id]: value || undefined };
		screen.changed();
		screen.result.querySelector(`[data-key="${id}${by}"]`)?.focus();
	}

	function show() {
		settings.hidden = chips.hidden = view.value === "surprise";
		const undo = h("button.plain", { onclick: () => go(tail.slice(0, -1)) }, "Take back");
		fill(chips, tail.length ? [h("span.small.soft", "Appended"), tail.map(([, token]) => h("span.chip.mono", spelt({ bytes: bytesOf(token) }))), undo] : null);
		const isTaken = sampling.check();
		if (!found || !!found.scores !== (view.value === "surprise") || (!found.scores && !isTaken)) return;
		const onpick = ({ id, bytes }) => go([...tail, [id, btoa(String.fromCharCode(...bytes))]]);
		fill(screen.result, found.scores ? surpriseOf(found.scores, [...text.value].length) : nextTokens(found, sampling.values, biases, screen.model?.vocabulary_size, onpick, bias));
	}
}

const spelt = (token) => visible(spelled(token.bytes), true);

/** The likeliest tokens after the text. `onpick(token)` is called with one that is chosen, `onbias(id, by)` for its bias. */
function nextTokens({ candidates, prompt, output }, settings, biases, size, onpick, onbias) {
	const { rows, kept, cut, beyond, certainty } = shaped(candidates, { ...settings, logit_bias: biases }, prompt, output, size), most = Math.max(...rows.map((row) => Math.max(row.probability, Math.exp(row.logprob))));
	const cells = rows.map((row) => {
		const label = spelt(row), before = Math.exp(row.logprob), step = (by, words) => h("button.plain", { label: `${words} the bias of ${label}`, data: { key: `${row.id}${by}` }, onclick: () => onbias(row.id, by) }, by > 0 ? "+" : "−");
		return [h("button.plain.mono", { title: "Append and go on", onclick: () => onpick(row) }, label || "(empty)"), row.id, fixed(row.edited, 2),
			h("div.track", { title: `${percent(before)} before the settings` }, h("span.fill", { style: { "--share": row.probability / most } }), h("span.was", { style: { "--share": before / most } })),
			...(row.isKept ? [percent(row.probability), percent(row.cumulated)] : ["–", "–"]), h("span.bias", step(-1, "Lower"), h("span", fixed(biases[row.id] ?? 0, 0)), step(1, "Raise"))];
	});
	const made = table(["Token", "Id", "Logit", "Share", "Probability", "Cumulated", "Bias"], cells, { caption: "Likeliest next tokens" });
	made.classList.add("shape");
	roving(made, () => [...made.querySelectorAll("button")], { columns: 3 });
	made.querySelectorAll("tbody tr").forEach((row, index) => { row.className = index >= kept ? "soft" : index === kept - 1 && cut ? "last" : ""; });
	const values = () => [["token", "id", "logit", "probability", "cumulated"], ...rows.map((row) => [spelled(row.bytes), row.id, row.edited, row.probability, row.cumulated])];
	return [h("div.row.spread", h("p.small.soft", limits(rows.length, kept, cut, beyond, certainty === "exact")), tableButtons("next-token", values)), made];
}

/** What the settings cut off, and what is not known. */
function limits(count, kept, cut, beyond, isExact) {
	const share = isExact ? percent(beyond) : `about ${percent(beyond)}, as their single probabilities are not known`;
	return [cut && `${cut[0].toUpperCase()}${cut.slice(1)} keeps ${kept} of ${count}${isExact ? "" : ", estimated"}.`, beyond > 0 && `The server gives the ${count} likeliest tokens; all others together have ${share}.`, "Lines mark the probability before the settings."].filter(Boolean).join(" ");
}

/** How surprising each token of a text of this number of characters is after those before it. */
function surpriseOf(scores, length) {
	const tokens = scores.map(tokenOf), all = texts(tokens), { bits, total, mean, perplexity, worst } = surprise(scores.map((each, index) => (index ? each.logprob ?? 0 : undefined)));
	const facts = [["Tokens", tokens.length], ["Bits", fixed(total, 1)], ["Bits per token", fixed(mean, 2)], ["Bits per character", fixed(total / length, 2)], ["Perplexity", fixed(perplexity, 1)]], mono = (text) => h("span.mono", text);
	const row = (index, best = tokens[index].top[0]) => [index + 1, mono(visible(all[index], true)), fixed(bits[index], 1), mono(spelt(best)), percent(Math.exp(best.logprob))];
	return [h("dl.facts", facts.map(([name, value]) => [h("dt", name), h("dd", value)])),
		tokenRow(tokens.map((_, index) => ({ text: all[index], isWarm: true, shade: Math.min(1, (bits[index] ?? 0) / 16), title: bits[index] === null ? "nothing before it" : `${fixed(bits[index], 1)} bits` })), { label: "Tokens by surprise" }),
		h("p.small.soft", "The stronger the colour, the more surprising the token."), h("h2", "Most surprising"), table(["Place", "Token", "Bits", "Likeliest instead", "Probability"], worst.slice(0, WORST).map((index) => row(index)), { caption: "Most surprising tokens" })];
}
