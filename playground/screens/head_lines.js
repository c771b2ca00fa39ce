// Two columns of tokens with lines between them, wider and darker the more weight they carry.

import { css, rgb } from "../maths/colour.js";
import { fill, h, picture, roving } from "../parts/page.js";

const LINE = 24; // pixels of a token

/** `tokens(queries, keys)` fills the columns, and `show(cells, place, isFrozen)` draws. A place is `{side: "query"|"key", index}`; `onkey(key, place)` says whether it took a key. */
export function headLines({ onhover, onpick, onkey, ondraw }) {
	let cells = [], at = null, count = 1;
	const isAt = ({ row, column }) => at && (at.side === "query" ? row : column) === at.index;
	const draw = (pen, width, _, colours) => {
		const colour = rgb(at?.side === "key" ? colours.contrast : colours.accent);
		for (const isLit of at ? [false, true] : [false]) {
			for (const cell of cells) {
				if (isAt(cell) !== isLit && at) continue;
				const [from, to] = [(cell.row + 0.5) * LINE, (cell.column + 0.5) * LINE];
				pen.strokeStyle = at && !isLit ? css(rgb(colours.soft), 0.1) : css(colour, 0.15 + 0.85 * Math.min(1, cell.weight));
				pen.lineWidth = 0.75 + 4 * Math.min(1, cell.weight);
				pen.beginPath();
				pen.moveTo(0, from);
				pen.bezierCurveTo(width / 2, from, width / 2, to, width, to);
				pen.stroke();
			}
		}
		ondraw(colours);
	};
	const figure = picture({ label: "Lines of attention", height: () => count * LINE, draw });
	const column = (side, label) => {
		const list = h("div", { class: `column ${side}`, role: "group", label }), place = (event) => event.target.closest("button") && { side, index: +event.target.closest("button").dataset.index };
		for (const name of ["pointerover", "focusin"]) list.addEventListener(name, (event) => place(event) && onhover(place(event), event.target.closest("button")));
		for (const name of ["pointerleave", "focusout"]) list.addEventListener(name, () => onhover(null));
		list.addEventListener("click", (event) => place(event) && onpick(place(event)));
		list.addEventListener("keydown", (event) => {
			if (event.ctrlKey || event.metaKey || event.altKey || !place(event) || !onkey(event.key, place(event))) return;
			event.preventDefault();
			event.stopImmediatePropagation();
		});
		return list;
	};
	const sides = { query: column("query", "Queries, from which attention goes"), key: column("key", "Keys, to which attention goes") };
	const button = (token, index) => h("button", { "aria-pressed": "false", class: token.isSpecial ? "soft" : null, data: { index } }, token.name);
	return {
		element: h("div.lines", sides.query, figure, sides.key),
		canvas: figure.canvas,
		tokens(queries, keys) {
			[[sides.query, queries], [sides.key, keys]].forEach(([list, tokens]) => {
				const focused = list.contains(document.activeElement) ? document.activeElement.dataset.index : null;
				fill(list, tokens.map(button));
				roving(list, () => [...list.children]);
				if (focused) list.children[Math.min(focused, tokens.length - 1)]?.focus();
			});
			count = Math.max(queries.length, keys.length);
		},
		show(shown, place, isFrozen) {
			[cells, at] = [shown, place];
			for (const [side, list] of Object.entries(sides)) [...list.children].forEach((each, index) => {
				const isOn = at?.side === side && at.index === index;
				each.classList.toggle("on", isOn || (!!at && at.side !== side && cells.some((cell) => isAt(cell) && (side === "query" ? cell.row : cell.column) === index)));
				each.ariaPressed = String(isOn && isFrozen);
			});
			figure.redraw();
		},
	};
}
