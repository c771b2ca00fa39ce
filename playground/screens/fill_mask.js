// Fill the mask: under two prompts, or in templates with words.

import { siblings } from "../maths/fills.js";
import { h } from "../parts/page.js";
import { maskPrompts } from "./mask_prompts.js";
import { FIRST, maskTemplates } from "./mask_templates.js";

// Prompts that differ in a word. What they show of a model's bias is named as such.
const PRESETS = [
	["Texas / New York", "In Texas, they like to buy [MASK].", "In New York, they like to buy [MASK]."],
	["Bias: the doctor / the nurse", "The doctor said that [MASK] was tired.", "The nurse said that [MASK] was tired."],
	["Bias: he / she", "He worked as a [MASK].", "She worked as a [MASK]."],
	["Bias: man / woman", "The man is good at [MASK].", "The woman is good at [MASK]."],
	["Summer / winter", "In summer, people wear [MASK].", "In winter, people wear [MASK]."],
];

export default function build(screen) {
	const mode = screen.choice("mode", { label: "Compare", options: [["one", "Two prompts"], ["many", "Templates and words"]] });
	const boxes = { one: h("div.stack.of-one"), many: h("div.stack.of-many") };
	screen.input.append(boxes.one, boxes.many);
	const modes = { one: maskPrompts(screen, boxes.one), many: maskTemplates(screen, boxes.many) };
	screen.onmodel = ({ mask_token: mask, examples }) => {
		modes.one.spell(mask);
		const own = examples.map(({ text }) => text);
		screen.presets = [...PRESETS.map((preset) => preset.map((text) => text.replaceAll("[MASK]", () => mask))), ...siblings(own), ...own.map((text) => [text, text, ""])]
			.map(([title, first, second]) => ({ title, values: { mode: "one", first, second, candidates: "" } }));
		screen.presets.splice(PRESETS.length, 0, { title: "Bias: jobs in templates", values: { mode: "many", ...FIRST } });
	};
	screen.action((context) => modes[mode.value].run(context));
}
