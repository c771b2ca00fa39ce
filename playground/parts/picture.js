// A canvas with a summary in words and a table twin, drawn anew when its size or the colours change.

import { h } from "./h.js";
import { palette } from "./palette.js";
import { table } from "./shapes.js";

const all = new Set();
const redrawAll = () => { for (const each of all) each.isConnected ? each.redraw() : each.isOld ? all.delete(each) : 0; };
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
addEventListener("theme", redrawAll);

export function picture({ label, summary = "", height, draw, twin, isInteractive }) {
	const canvas = h("canvas", { role: "img", label, tabIndex: isInteractive ? 0 : -1 }), caption = h("figcaption", summary);
	const element = h("figure.picture", canvas, caption);
	caption.hidden = !summary;
	if (twin) {
		element.tabulate = () => {
			if (!box.open) return;
			const { head, rows } = twin();
			box.replaceChildren(box.firstChild, table(head, rows, { caption: label }));
		};
		const box = h("details.small", { ontoggle: element.tabulate }, h("summary", "As a table"));
		element.append(box);
	}
	element.redraw = () => {
		const width = Math.floor(canvas.clientWidth), tall = Math.round(typeof height === "function" ? height(width) : height), ratio = devicePixelRatio || 1;
		if (!width || !tall) return;
		element.isOld = true; // it was in the page
		canvas.style.setProperty("height", `${tall}px`);
		if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(tall * ratio)) [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(tall * ratio)];
		const pen = canvas.getContext("2d");
		pen.setTransform(ratio, 0, 0, ratio, 0, 0);
		pen.clearRect(0, 0, width, tall);
		pen.font = "12px system-ui, sans-serif";
		draw(pen, width, tall, palette());
	};
	element.summarize = (text) => { caption.textContent = text; caption.hidden = !text; };
	element.canvas = canvas;
	new ResizeObserver(() => requestAnimationFrame(element.redraw)).observe(canvas);
	all.add(element);
	return element;
}

/** Moves a place on a canvas by pointer and arrow keys: `find(x, y)` gives that of a point, or null, and `next([right, down])` that of an arrow key; `show(place, isByKey)` keeps and draws it. `pick()` is called by a click and by Enter. */
export function cursor(canvas, { find, next, show, pick }) {
	canvas.addEventListener("pointermove", ({ offsetX, offsetY }) => show(find(offsetX, offsetY)));
	for (const name of ["pointerleave", "blur"]) canvas.addEventListener(name, () => show(null));
	canvas.addEventListener("click", pick);
	canvas.addEventListener("keydown", (event) => {
		const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
		if (step) show(next(step), true);
		else if (event.key === "Enter" && !event.ctrlKey && !event.metaKey) pick();
		else return;
		event.preventDefault();
	});
}
