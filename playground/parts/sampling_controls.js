// Controls of how tokens are chosen, by the names of the API.

import { choice } from "./controls.js";
import { h } from "./h.js";

// The last pair is what the API takes, where that is more than the slider has.
const FIELDS = {
	temperature: ["Temperature", { min: 0, max: 2, step: 0.05 }, 1, [0, 100]],
	top_p: ["Top-p", { min: 0.01, max: 1, step: 0.01 }, 1, [0.0001, 1]],
	top_k: ["Top-k, 0 for all", { min: 0, max: 100 }, 0, [0, 4294967295]],
	min_p: ["Min-p", { min: 0, max: 1, step: 0.01 }, 0],
	repetition_penalty: ["Repetition penalty", { min: 0.5, max: 2, step: 0.05 }, 1, [0.01, 100]],
	presence_penalty: ["Presence penalty", { min: -2, max: 2, step: 0.1 }, 0],
	frequency_penalty: ["Frequency penalty", { min: -2, max: 2, step: 0.1 }, 0],
};
const PRESETS = { likeliest: { temperature: 0 }, balanced: { temperature: 0.8, top_p: 0.95 }, free: { temperature: 1 }, custom: {} };

/** `follow(model)` puts the model's own defaults where nothing was changed; `values` are those that are not off, or for which a model has a default of its own, as `sampling_params` of the API has them */
export function samplingControls(screen, into, { prefix = "", first = {} } = {}) {
	const box = h("div.compact");
	const presets = choice(`${prefix}preset`, { label: "Preset", options: [["likeliest", "Likeliest"], ["balanced", "Balanced"], ["free", "Free"], ["custom", "Custom"]], value: "custom" });
	const all = Object.entries(FIELDS).map(([name, [label, range, off]]) => screen.number(prefix + name, { label, ...range, value: first[name] ?? off, param: name, into: box, onchange: () => mark() }));
	const mark = () => { presets.value = Object.keys(PRESETS).find((key) => key !== "custom" && all.every(({ param, value }) => value === (PRESETS[key][param] ?? FIELDS[param][2]))) ?? "custom"; };
	presets.onchange = (key) => {
		if (key !== "custom") for (const each of all) each.value = PRESETS[key][each.param] ?? FIELDS[each.param][2];
		screen.changed();
	};
	const words = h("p.small.soft"), own = h("div.row", { hidden: true }, words, h("button.plain", { onclick: () => { begin(); mark(); screen.changed(); } }, "Use them"));
	into.append(presets.element, own, box);
	const begin = () => { for (const each of all) each.value = each.initial; };
	const follow = ({ sampling_defaults: defaults = {} }) => {
		const named = Object.keys(FIELDS).filter((param) => param in defaults).map((param) => [param, defaults[param]]), isUntouched = all.every(({ value, initial }) => value === initial);
		for (const each of all) each.initial = (named.length ? defaults : first)[each.param] ?? FIELDS[each.param][2];
		if (isUntouched) begin();
		own.hidden = !named.length;
		words.textContent = `The model's own settings: ${named.map(([param, value]) => `${FIELDS[param][0].split(",")[0].toLowerCase()} ${value}`).join(", ")}.`;
		mark();
	};
	setTimeout(mark); // after the permalink's values
	/** Whether the API would take all values; those that it would not are said at their controls. */
	const check = () => all.map((each) => {
		const [, { min, max }, , [least, most] = [min, max]] = FIELDS[each.param], isTaken = each.value >= least && each.value <= most;
		each.error(isTaken ? "" : `Expected ${least} to ${most}.`);
		return isTaken;
	}).every(Boolean);
	const isNamed = (param) => param === "temperature" || screen.models.some((model) => param in (model.sampling_defaults ?? {}));
	return { check, follow, get values() { return Object.fromEntries(all.filter(({ param, value }) => value !== FIELDS[param][2] || isNamed(param)).map(({ param, value }) => [param, value])); } };
}
