// Small pieces of a result: bars, tokens, tabs, tables, a tip.

import { writeCsv } from "../maths/csv.js";
import { percent, visible } from "../maths/numbers.js";
import { copyButton, download, fill, h, newId, roving } from "./h.js";

/** Bars with a label and a value: a list, so that it reads without the picture. `isOpen`: whether all of a long label is shown; `isLong`: labels are whole sentences. */
export function bars(rows, { most = Math.max(1e-12, ...rows.map((row) => row.value)), least = 0, onpick, label, isToken, isLong } = {}) {
	const list = h("ul", { class: `bars${isLong ? " long-labels" : ""}`, label }), place = (value) => Math.min(Math.max((value - least) / (most - least), 0) || 0, 1), zero = place(0);
	rows.forEach((row, index) => {
		const end = place(row.value);
		const cells = [h("span.label", { title: row.title }, visible(row.label, isToken)), h("span.track", h("span.fill", { style: { "--share": Math.abs(end - zero), "--from": Math.min(end, zero) } })),
			h("span.value", row.text ?? percent(row.value))];
		list.append(h("li", { class: `${row.isSecond ? "second" : ""}${row.isOn ? " on" : ""}` }, onpick ? h("button", { onclick: () => onpick(row, index), "aria-expanded": row.isOpen === undefined ? null : String(row.isOpen) }, cells) : cells));
	});
	if (onpick) roving(list, () => [...list.querySelectorAll("button")]);
	return list;
}

/** A row of tokens, one stop of Tab; arrow keys go through it. `shade` is from 0 to 1; `onfocus` is called for hover, too; `isMarked` shows spaces. */
export function tokenRow(tokens, { label, onfocus, onpick, isMarked = false }) {
	const row = h("div.tokens", { role: "group", label }), make = (token, index) => h("span", {
		class: `token${onpick ? " pick" : ""}${token.isWarm ? " warm" : ""}${token.isOn ? " on" : ""}`, role: onpick ? "button" : "img", tabIndex: -1, data: { index },
		title: token.title, label: [visible(token.text, true), token.title].filter(Boolean).join(", "), style: { "--shade": token.shade ?? 0 },
	}, visible(token.text, isMarked) || "\u200a");
	const all = tokens.map(make), at = (event) => event.target.closest?.(".token");
	row.append(...all);
	for (const name of onfocus ? ["focusin", "pointerover"] : []) row.addEventListener(name, (event) => at(event) && onfocus(+at(event).dataset.index, at(event)));
	if (onfocus) row.addEventListener("pointerleave", () => onfocus(null));
	if (onpick) {
		row.addEventListener("click", (event) => at(event) && onpick(+at(event).dataset.index, at(event)));
		row.addEventListener("keydown", (event) => ["Enter", " "].includes(event.key) && !event.ctrlKey && !event.metaKey && at(event) && (event.preventDefault(), at(event).click()));
	}
	roving(row, () => [...row.children]);
	row.add = (token) => row.append(make(token, row.children.length)); // for text that streams
	return row;
}

/** Panels of which one is shown. */
export function tabs(all, { label, at = 0 } = {}) {
	const list = h("div", { role: "tablist", label }), element = h("div.tabs", list);
	const buttons = all.map((tab, index) => {
		tab.panel.id ||= newId("panel");
		tab.panel.setAttribute("role", "tabpanel");
		const button = h("button", { role: "tab", id: newId("tab"), "aria-controls": tab.panel.id, onclick: () => element.show(index) }, tab.label);
		tab.panel.setAttribute("aria-labelledby", button.id);
		element.append(tab.panel);
		return button;
	});
	list.append(...buttons);
	element.show = (chosen) => {
		buttons.forEach((button, index) => {
			button.setAttribute("aria-selected", String(index === chosen));
			button.tabIndex = index === chosen ? 0 : -1;
			all[index].panel.hidden = index !== chosen;
		});
		element.chosen = chosen;
		all[chosen].onshow?.();
	};
	roving(list, () => buttons, { onmove: (button) => button.click() });
	element.show(at);
	return element;
}

/** A table; numbers are set to the right. */
export function table(head, rows, { caption }) {
	const isNumber = head.map((_, column) => rows.length > 0 && rows.every((row) => typeof row[column] === "number" || /^[−<]?[\d.,]+( %| ms| s)?$/.test(row[column])));
	const cell = (tag) => (value, column) => h(tag, { class: isNumber[column] ? "number" : null, scope: tag === "th" ? "col" : null }, value instanceof Node ? value : visible(String(value ?? "")));
	return h("div.scroll", { tabIndex: 0, role: "region", label: caption }, h("table", h("caption.hidden", caption),
		h("thead", h("tr", head.map((text, column) => cell(text === "" ? "td" : "th")(text, column)))), h("tbody", rows.map((row) => h("tr", row.map(cell("td")))))));
}

/** Buttons that copy and save a table. */
export const tableButtons = (name, rows) => h("span.row", copyButton(() => writeCsv(rows()), "Copy"), h("button.plain", { onclick: () => download(`${name}.csv`, writeCsv(rows())) }, "Save CSV"));

const shown = h("div.tip", { role: "tooltip", hidden: true });
/** Shows a tip below an element, or at a point of the page; without content, hides it. */
export function tip(where, ...content) {
	shown.hidden = !where || !content.length;
	if (shown.hidden) return;
	if (!shown.isConnected) document.body.append(shown);
	fill(shown, ...content);
	const box = where instanceof Element ? where.getBoundingClientRect() : { left: where.x + 12, bottom: where.y + 12, top: where.y - 12 };
	const left = Math.max(8, Math.min(box.left, innerWidth - shown.offsetWidth - 8)), isBelow = box.bottom + 6 + shown.offsetHeight < innerHeight;
	shown.style.setProperty("left", `${left + scrollX}px`);
	shown.style.setProperty("top", `${(isBelow ? box.bottom + 6 : box.top - 6 - shown.offsetHeight) + scrollY}px`);
}
addEventListener("keydown", (event) => event.key === "Escape" && tip(null));
