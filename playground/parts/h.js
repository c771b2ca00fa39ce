// Elements from plain values. Text is only ever set as text: no markup is read from it.

/** An element, with the classes behind its tag (`div.row`). Then, in an object, `class`, `on...` listeners, `style` (custom properties), `data`, `label` (for screen readers) and attributes; else children. */
export function h(tag, props, ...children) {
	const [name, ...classes] = tag.split("."), element = document.createElement(name);
	if (props?.constructor !== Object) [props, children] = [{}, [props, children]];
	if (classes.length) element.className = classes.join(" ");
	if (name === "button") element.type = "button";
	for (const [name, value] of Object.entries(props)) {
		if (value === undefined || value === null) continue;
		if (name === "label") element.ariaLabel = value;
		else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
		else if (name === "class") element.className = value;
		else if (name === "style") for (const key in value) element.style.setProperty(key, value[key]);
		else if (name === "data") Object.assign(element.dataset, value);
		else if (name in element && !name.startsWith("aria") && !READ_ONLY.has(name)) element[name] = value;
		else if (value === true && !name.startsWith("aria")) element.setAttribute(name, "");
		else if (value !== false || name.startsWith("aria")) element.setAttribute(name, value);
	}
	return fill(element, children);
}

const READ_ONLY = new Set(["list", "form", "role", "for"]);
let count = 0;

/** A new id, for labels. */
export const newId = (prefix = "id") => `${prefix}-${++count}`;

/** Puts these children in place of those that are there. */
export function fill(element, ...children) {
	element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
	return element;
}

/** Arrow keys, Home and End move among `items()`; the group is one stop of Tab (roving tabindex). */
export function roving(group, items, { columns = 1, onmove } = {}) {
	group.addEventListener("focusin", (event) => {
		for (const item of items()) item.tabIndex = item === event.target ? 0 : -1;
	});
	group.addEventListener("keydown", (event) => {
		const all = items(), at = all.indexOf(document.activeElement);
		const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -at, End: all.length - 1 - at }[event.key];
		if (at < 0 || step === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
		event.preventDefault();
		const next = all[Math.min(Math.max(at + step, 0), all.length - 1)];
		next.focus();
		onmove?.(next);
	});
	items().forEach((item, index) => { item.tabIndex = index ? -1 : 0; });
}

/** Calls after `ms` without another call. */
export function debounced(call, ms) {
	let timer;
	return (...given) => {
		clearTimeout(timer);
		timer = setTimeout(call, ms, ...given);
	};
}

/** A polite sentence for screen readers. */
export const announce = (text) => { document.getElementById("announcer").textContent = text; };

export function copyButton(text, label = "Copy") {
	const button = h("button.plain", { onclick: async () => {
		await navigator.clipboard.writeText(text());
		button.textContent = "Copied";
		announce("Copied");
		setTimeout(() => { button.textContent = label; }, 1500);
	} }, label);
	return button;
}

/** Saves text, or a Blob, as a file. */
export function download(name, content) {
	const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content]));
	h("a", { href: url, download: name }).click();
	setTimeout(() => URL.revokeObjectURL(url), 1000);
}
