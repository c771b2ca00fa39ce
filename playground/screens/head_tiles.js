// A tile for each head of a layer: its matrix in small, its number and what it does.

import { scale } from "../maths/colour.js";
import { LABELS } from "../maths/heads.js";
import { fixed } from "../maths/numbers.js";
import { paint, shades } from "../maths/thumbnails.js";
import { fill, h, roving } from "../parts/page.js";

const SIDE = 48; // pixels of a picture

/** `onchange(heads)` is called when a tile is switched, or isolated by a double click or the key o. */
export function headTiles({ onchange }) {
	const list = h("div.tiles", { role: "group", label: "Heads" });
	let shown = { matrices: [], columns: 1, chosen: [] };
	const all = () => shown.matrices.map((_, head) => head);
	const toggle = (head) => {
		const left = shown.chosen.includes(head) ? shown.chosen.filter((each) => each !== head) : [...shown.chosen, head].sort((a, b) => a - b);
		onchange(left.length ? left : all());
	};
	list.addEventListener("click", (event) => event.target.closest("button") && toggle(+event.target.closest("button").dataset.head));
	list.addEventListener("dblclick", (event) => event.target.closest("button") && onchange([+event.target.closest("button").dataset.head]));
	list.addEventListener("keydown", (event) => {
		if (event.ctrlKey || event.metaKey || event.altKey || !"oa".includes(event.key)) return;
		onchange(event.key === "o" ? [+event.target.dataset.head] : all());
		event.preventDefault();
	});
	return {
		element: h("div.field", h("div.row.spread", h("span.label", "Heads"), h("span.small.soft", h("kbd", "o"), " or double click: only this one, ", h("kbd", "a"), ": all")), list),
		show(matrices, columns, labels, chosen) {
			if (list.children.length !== matrices.length) {
				fill(list, matrices.map((_, head) => h("button.tile", { data: { head } }, h("canvas", { width: SIDE, height: SIDE, "aria-hidden": "true" }), h("span"))));
				roving(list, () => [...list.children]);
			}
			shown = { matrices, columns, chosen };
			[...list.children].forEach((tile, head) => {
				const { label, score } = labels[head];
				tile.ariaPressed = String(chosen.includes(head));
				tile.lastChild.textContent = `${head} ${label}`;
				tile.ariaLabel = tile.title = `Head ${head}: ${LABELS[label]}${label === "mixed" ? "" : ` ${fixed(score, 2)}`}`;
			});
		},
		draw(palette) {
			const colours = shades(scale(palette));
			[...list.children].forEach((tile, head) => {
				const matrix = shown.matrices[head], image = new ImageData(SIDE, SIDE), pixels = new Uint32Array(image.data.buffer);
				if (!matrix) return;
				paint(pixels, SIDE, { left: 0, top: 0, width: SIDE, height: SIDE }, matrix, shown.columns, colours, matrix.reduce((most, value) => Math.max(most, value), 1e-9));
				tile.firstChild.getContext("2d").putImageData(image, 0, 0);
			});
		},
	};
}
