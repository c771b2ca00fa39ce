// Controls with a label, a value, a place for an error and one way to say that they changed.

import { h, newId, roving } from "./h.js";

/** Says in `wrong`, below an input, what is wrong; with "" takes it away. */
export const fault = (element, input, wrong) => (text) => {
	[wrong.textContent, wrong.hidden, input.ariaInvalid] = [text, !text, String(!!text)];
	element.classList.toggle("wrong", !!text);
	text ? input.setAttribute("aria-describedby", wrong.id) : input.removeAttribute("aria-describedby");
};

/** Common to all: `read` and `write` get and set the value of `input`. */
function control(name, input, { label, value, param = name, onchange, isInline, hint }, { read, write, box = input, on = "input" }) {
	const id = input.id || (input.id = newId(name)), wrong = h("span.error", { id: `${id}-error`, role: "alert", hidden: true });
	// A group of buttons has no one element that a label could be for.
	const title = input.matches("input, select, textarea") ? h("label", { htmlFor: id }, label) : h("span.label", { id: `${id}-label` }, label);
	if (title.id) input.setAttribute("aria-labelledby", title.id);
	const element = h("div", { class: `field${isInline ? " inline" : ""}` }, isInline ? [box, title] : [title, box], hint && h("span.small.soft", hint), wrong);
	const self = {
		name, element, input, param, initial: value, onchange,
		get value() { return read(); },
		set value(given) { write(given); },
		error: fault(element, input, wrong),
		focus: () => input.focus(),
	};
	box.addEventListener(on, () => {
		self.error("");
		self.onchange?.(self.value);
	});
	if (value !== undefined) write(value);
	return self;
}

/** Text of several lines (`rows`), or of one. */
export function text(name, options) {
	const { rows = 3, placeholder, isCode } = options;
	const input = h(rows > 1 ? "textarea" : "input", { rows: rows > 1 ? rows : null, placeholder, spellcheck: false, autocomplete: "off", class: isCode ? "mono" : null });
	return control(name, input, { value: "", ...options }, { read: () => input.value, write: (value) => { input.value = value; } });
}

/** Text put in place of the selection of a text control. */
export function insert(into, piece) {
	into.input.setRangeText(piece, into.input.selectionStart, into.input.selectionEnd, "end");
	into.input.dispatchEvent(new Event("input", { bubbles: true }));
	into.focus();
}

/** A number, with a slider if it has both bounds. `isIndex`: the page uses it as a place in a list, so it is a whole number within the bounds. */
export function number(name, options) {
	const { min, max, step = 1, isIndex, isBare = min === undefined || max === undefined } = options;
	const input = h("input", { type: "number", min, max, step, inputMode: "decimal" });
	const slider = isBare ? null : h("input", { type: "range", min, max, step, tabIndex: -1, "aria-hidden": "true" });
	const box = slider ? h("div.slider", slider, input) : input;
	const within = (value) => (isIndex ? Math.min(Math.max(Math.round(value), input.min), input.max) : value);
	const read = () => (input.value === "" ? options.value : within(Number(input.value)));
	const write = (value) => {
		input.value = value ?? "";
		if (slider) slider.value = value ?? options.value ?? min;
	};
	slider?.addEventListener("input", () => { input.value = slider.value; });
	if (slider) input.addEventListener("input", () => { slider.value = input.value; });
	const made = control(name, input, options, { read, write, box });
	/** Another upper bound. */
	made.bound = (most) => {
		for (const each of box.querySelectorAll("input")) each.max = most;
		if (Number(input.value) > most) made.value = most;
	};
	return made;
}

/** One of `options`: values, or pairs of value and words. Few are a row of buttons, more a menu. */
export function choice(name, given) {
	const pairs = given.options.map((each) => (Array.isArray(each) ? each : [each, String(each)]));
	if (given.isMenu ?? pairs.length > 5) {
		const input = h("select", pairs.map(([value, words]) => h("option", { value }, words)));
		const made = control(name, input, { value: pairs[0]?.[0], ...given }, { read: () => input.value, write: (value) => { input.value = value; } });
		made.setOptions = (list) => input.replaceChildren(...list.map((each) => h("option", { value: [].concat(each)[0] }, [].concat(each).at(-1))));
		return made;
	}
	const group = h("div", { role: "radiogroup", class: "segments" });
	const buttons = pairs.map(([value, words]) => h("button", { role: "radio", data: { value }, onclick: () => {
		write(value);
		group.dispatchEvent(new Event("input"));
	} }, words));
	group.append(...buttons);
	const read = () => buttons.find((button) => button.ariaChecked === "true")?.dataset.value;
	const write = (value) => buttons.forEach((button) => {
		const isChosen = button.dataset.value === String(value);
		button.ariaChecked = String(isChosen);
		button.tabIndex = isChosen ? 0 : -1;
	});
	roving(group, () => buttons, { onmove: (button) => button.click() });
	return control(name, group, { value: pairs[0][0], ...given }, { read, write });
}

/** On or off. */
export function toggle(name, options) {
	const input = h("input", { type: "checkbox" });
	return control(name, input, { value: false, isInline: true, ...options }, { read: () => input.checked, write: (value) => { input.checked = value === true || value === "true"; } });
}
