// The form that a generated text is held to: a JSON schema, a regular expression, one of several texts, or a grammar.

import { ApiError } from "../api/client.js";
import { faultOf, lackOf, listed } from "../maths/forms.js";
import { h } from "./h.js";

const KINDS = { json_schema: "JSON schema", regex: "Regular expression", choice: "One of several", lark: "Grammar" };
const HINTS = { json_schema: "A JSON schema", regex: "An expression that all of the output matches", choice: "Texts, one a line", lark: "A grammar in llguidance's dialect of Lark, from start on" };
const FIRST = {
	json_schema: JSON.stringify({ type: "object", properties: { name: { type: "string", maxLength: 20 }, age: { type: "integer" } }, required: ["name", "age"], additionalProperties: false }, null, 2),
	regex: "[A-Z][a-z]{1,12}( [a-z]{1,12}){0,5}\\.", choice: "yes\nno", lark: 'start: "(" start ")" | "x"',
};

/** The form in what was sent. */
const formOf = (settings) => {
	const kind = Object.keys(KINDS).find((each) => each in settings) ?? "";
	return [kind, kind === "choice" ? settings.choice.texts.join("\n") : settings[kind]];
};

/** A box for it. `fields()` are those of `sampling_params`, or throws what is wrong; `free(params)` takes them out; `verdict(settings, text, isCut)` says whether a text has its form. */
export function outputForm(screen, into) {
	const box = h("div.stack"), written = h("div.stack");
	into.append(box);
	const kind = screen.choice("form", { label: "Form of the output", options: [["", "Any text"], ...Object.entries(KINDS)], isMenu: true, value: "", into: box, onchange: () => begin() });
	box.append(written);
	const text = screen.text("form_text", { label: "Form", rows: 6, isCode: true, into: written, onchange: () => update() });
	const label = written.querySelector("label"), note = h("p.small.soft", "The form is that of a whole output: what goes on from a token is free.");
	written.append(note);
	const begin = () => {
		if (kind.value && (!text.value || Object.values(FIRST).includes(text.value))) text.value = FIRST[kind.value];
		update();
	};
	const update = () => {
		written.hidden = !kind.value;
		text.param = kind.value;
		label.textContent = HINTS[kind.value] ?? "";
		text.error(faultOf(kind.value, text.value)); // of keywords the server decides
	};
	update();
	return {
		/** Shows the box for a model that can be held to forms, of those that it can. */
		follow({ grammar_kinds: kinds = [] }) {
			box.hidden = !kinds.length;
			const chosen = kind.value;
			kind.setOptions([["", "Any text"], ...kinds.map((each) => [each, KINDS[each] ?? each])]);
			kind.value = kinds.includes(chosen) ? chosen : "";
			update();
		},
		update,
		fields() {
			if (box.hidden || !kind.value) return {};
			const fault = faultOf(kind.value, text.value);
			if (fault) throw new ApiError(400, fault, kind.value);
			return { [kind.value]: kind.value === "choice" ? { texts: listed(text.value) } : text.value };
		},
		free(params) { for (const each of Object.keys(KINDS)) delete params[each]; },
		verdict(settings, output, isCut) {
			const [of, form] = formOf(settings), lack = of && lackOf(of, form, output);
			if (!of) return "";
			if (lack) return isCut ? `The output is cut before it has its form: ${lack}.` : `The output does not have its form: ${lack}.`;
			return of === "json_schema" ? "The output is JSON, with all keys that the schema requires." : of === "lark" ? "The server held the output to the grammar." : "The output has its form.";
		},
	};
}
