// What stands around a generated text: its settings, the token that is looked at, the branches.

import { lineage, owner, rank, spelled, texts, written } from "../maths/branches.js";
import { fixed, percent, visible } from "../maths/numbers.js";
import { entropy } from "../maths/surprise.js";
import { bars, fill, h } from "../parts/page.js";
import { samplingControls } from "../parts/sampling_controls.js";

const LIKELIEST = 20, SHOWN = 10; // tokens that are requested at each place, and listed
/** How tokens are coloured, and what that means. */
export const COLOURS = { probability: "The stronger the colour, the less likely the token.", rank: "The stronger the colour, the lower the rank.", entropy: `The stronger the colour, the more open the choice: entropy at least, by the ${LIKELIEST} likeliest tokens.`, none: "" };

const openness = (token) => entropy(token.top.map((each) => each.logprob));

/** A token as a row shows it. */
export function tokenItem(token, colour, differs) {
	const place = rank(token), words = [percent(Math.exp(token.logprob)), place ? `rank ${place}` : `not among the ${LIKELIEST} likeliest`, token.isPicked && "chosen by you", token.isCut && "ended the text", differs && "differs"];
	const shade = { probability: -token.logprob / Math.LN2 / 14, rank: place ? Math.log(place) / Math.log(LIKELIEST) : 1, entropy: openness(token) / 8, none: 0 }[colour];
	return { text: token.text.replaceAll("\n", "↵\n"), shade: Math.min(1, shade), isWarm: colour !== "entropy", title: words.filter(Boolean).join(", ") };
}

/** Settings, and a second set to compare with. `requests(form)` gives model and `sampling_params` of each side. */
export function generationSettings(screen, onchange) {
	const element = h("section.panel.stack", { label: "Settings" }, h("h2", "Settings")), more = h("div.compact"), second = h("div.stack");
	const sampling = samplingControls(screen, element, { first: { temperature: 0.8 } });
	element.append(more);
	const length = screen.number("max_tokens", { label: "Tokens at most", min: 1, max: 512, value: 60, into: more }), seed = screen.number("seed", { label: "Seed", isBare: true, min: 0, value: 0, into: more });
	const isKept = screen.toggle("keep_seed", { label: "Keep the seed", into: more }), samples = screen.choice("n", { label: "Samples side by side", options: ["1", "2", "3", "4"], value: "1", into: more });
	const stop = screen.text("stop", { label: "Stop texts, one in a line; \\n is a line break", rows: 2, into: element });
	const compared = screen.toggle("compare", { label: "Compare with another model or other settings", into: element, onchange });
	const other = screen.choice("other_model", { label: "Second model", options: [], isMenu: true, into: second, param: "" }), otherSampling = samplingControls(screen, second, { prefix: "other_", first: { temperature: 0 } });
	const form = h("div.stack");
	element.append(second, form);
	let isReplayed = !!screen.given.run; // a permalink has the seed that it was made with
	return {
		element, form,
		get isCompared() { return compared.value; },
		update() { second.hidden = !compared.value; },
		onmodel() {
			sampling.follow(screen.model);
			const names = screen.models.map((model) => model.name), chosen = other.value || screen.given.other_model;
			other.setOptions(names);
			other.initial = screen.model.name;
			other.value = names.includes(chosen) ? chosen : other.initial;
		},
		requests(form) {
			if (!isKept.value && !isReplayed) seed.value = Math.floor(Math.random() * 2 ** 31);
			isReplayed = false;
			const common = { max_tokens: length.value, stop: stop.value.split("\n").filter(Boolean).map((each) => each.replaceAll("\\n", "\n")), logprobs: LIKELIEST, seed: seed.value, fit_max_tokens: true };
			const side = (model, { values }) => ({ model, settings: { ...values, ...common, ...form, n: values.temperature === 0 ? 1 : +samples.value } });
			return [side(screen.model.name, sampling), ...(compared.value ? [side(other.value, otherSampling)] : [])];
		},
	};
}

/** What could have stood at a place. `onpick(branch, place, token)` is called with another token. */
export function tokenPanel(onpick) {
	const element = h("section.panel.stack", { label: "Token" });
	let marked = null;
	return { element, show(where, hint) {
		marked?.classList.remove("on");
		marked = where?.element;
		const token = where && written(where.branch)[where.place];
		if (!token) return fill(element, h("h2", "Token"), h("p.soft", hint));
		marked?.classList.add("on");
		const [holder] = owner(where.branch, where.place), { temperature = 1 } = holder.settings, place = rank(token);
		const listed = place && place <= SHOWN ? token.top.slice(0, SHOWN) : [...token.top.slice(0, SHOWN), token];
		const how = token.isPicked ? "You chose it" : temperature === 0 ? "It was the likeliest" : `Chosen at temperature ${temperature}`;
		return fill(element, h("h2", "Token ", h("span.mono", visible(token.text || spelled(token.bytes), true))),
			h("p.small.soft", `${how}, from ${percent(Math.exp(token.logprob))}${place ? `, rank ${place}` : ""}. Entropy at least ${fixed(openness(token), 1)} bits.`),
			bars(listed.map((each) => ({ label: spelled(each.bytes), value: Math.exp(each.logprob), isOn: each.id === token.id, title: `id ${each.id}` })), { most: 1, label: "Likeliest tokens", isToken: true,
				onpick: (_, index) => listed[index].id !== token.id && onpick(holder, where.place, { ...listed[index], top: token.top, isPicked: true }) }),
			h("p.small.soft", "Choose another token to cut the text there and go on from it."));
	} };
}

/** The way from the prompt to a branch, and all branches. */
export function branchList(all, leaf, isOpen, onopen) {
	const link = (branch) => h("button.plain", { "aria-current": branch === leaf ? "true" : null, onclick: () => onopen(branch) },
		`${branch.parent ? `Token ${branch.keep + 1}: ` : ""}“${visible(texts(branch.tokens).join(""), true).slice(0, 24)}”`);
	const list = (parent) => {
		const children = all.filter((each) => (parent ? each.parent === parent : !all.includes(each.parent))); // the oldest may have been dropped
		return children.length ? h("ul", children.map((each) => h("li", link(each), list(each)))) : null;
	};
	return [h("ol.crumbs", h("li", "Prompt"), lineage(leaf).map((each) => h("li", link(each)))), h("details", { open: isOpen }, h("summary", `All branches (${all.length})`), h("div.branches", list(null)))];
}
