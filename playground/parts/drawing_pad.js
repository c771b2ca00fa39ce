// A pad to draw on, with a pointer or the keyboard; an image may lie on it in place of a drawing.

import { extended, SIDE } from "../maths/strokes.js";
import { announce, h } from "./h.js";
import { palette } from "./palette.js";

const STEP = SIDE / 14; // of the arrow keys
const LINKED = 64; // pixels a side of an image that a link has

/** A small image as the content of a PNG file, in base64. */
function contentOf(image) {
	const { width, height } = image;
	if (Math.max(width, height) > LINKED) return "";
	const canvas = h("canvas", { width, height });
	canvas.getContext("2d").drawImage(image, 0, 0);
	return canvas.toDataURL().split(",")[1];
}

const decoded = async (file) => createImageBitmap(new Blob([Uint8Array.from(atob(file), (each) => each.charCodeAt(0))]));

/** Luma of pixels, as the server computes it. */
export const greys = (rgba) => Uint8ClampedArray.from({ length: rgba.length / 4 }, (_, at) => 0.299 * rgba[4 * at] + 0.587 * rgba[4 * at + 1] + 0.114 * rgba[4 * at + 2]);

/** A control whose value is the strokes, and what the pad offers beside. */
export function drawingPad({ label, width, onchange }) {
	const canvas = h("canvas.pad", { width: 2 * SIDE, height: 2 * SIDE, tabIndex: 0, role: "application", label, "aria-description": "Arrow keys move the pen, Space puts it down and lifts it, Backspace undoes, Delete clears." });
	const hidden = h("canvas", { width: SIDE, height: SIDE }).getContext("2d", { willReadFrequently: true }), shown = canvas.getContext("2d");
	let strokes = [], image = null, file = "", pen = null, at = [SIDE / 2, SIDE / 2];

	/** The image whole, in the middle, and the strokes. */
	const paint = (context, colour, image) => {
		const zoom = image && SIDE / Math.max(image.width, image.height);
		if (image) context.drawImage(image, (SIDE - image.width * zoom) / 2, (SIDE - image.height * zoom) / 2, image.width * zoom, image.height * zoom);
		Object.assign(context, { strokeStyle: colour, lineCap: "round", lineJoin: "round", imageSmoothingQuality: "high" });
		for (const [wide, ...points] of strokes) {
			context.lineWidth = wide;
			context.beginPath();
			// A curve through the middles between points; a single point is a dot.
			for (let index = 0; index < points.length - 2; index += 2) {
				const [x, y, nextX, nextY] = points.slice(index, index + 4);
				context.quadraticCurveTo(x, y, (x + nextX) / 2, (y + nextY) / 2);
			}
			context.lineTo(points.at(-2), points.at(-1) + 0.1);
			context.stroke();
		}
	};
	const redraw = () => {
		const colours = palette();
		shown.setTransform(2, 0, 0, 2, 0, 0);
		shown.clearRect(0, 0, SIDE, SIDE);
		paint(shown, colours.ink, image);
		if (!canvas.matches(":focus-visible")) return;
		shown.fillStyle = colours.edge;
		for (let x = STEP / 2; x < SIDE; x += STEP) for (let y = STEP / 2; y < SIDE; y += STEP) shown.fillRect(x - 0.5, y - 0.5, 1, 1);
		[shown.strokeStyle, shown.lineWidth] = [pen ? colours.accent : colours.contrast, 2];
		shown.strokeRect(at[0] - STEP / 2, at[1] - STEP / 2, STEP, STEP);
	};
	const set = (newStrokes, newImage = null, newPen = null) => {
		[strokes, image, pen, file] = [newStrokes, newImage, newPen, newImage ? contentOf(newImage) : ""];
		redraw();
		onchange();
	};
	const begin = (x, y) => {
		const stroke = [width(), Math.round(x), Math.round(y)];
		set([...strokes, stroke], null, stroke);
	};
	const go = (x, y) => {
		const longer = pen && extended(pen, x, y);
		if (longer !== pen) set([...strokes.slice(0, -1), longer], null, longer);
	};
	const place = ({ offsetX, offsetY }) => [offsetX, offsetY].map((value) => (value * SIDE) / canvas.clientWidth);
	const lift = () => {
		pen = null;
		redraw();
	};
	canvas.addEventListener("pointerdown", (event) => {
		if (event.button) return;
		canvas.setPointerCapture(event.pointerId);
		begin(...place(event));
	});
	canvas.addEventListener("pointermove", (event) => go(...place(event)));
	for (const name of ["pointerup", "pointercancel", "blur"]) canvas.addEventListener(name, lift);
	canvas.addEventListener("focus", redraw);
	canvas.addEventListener("keydown", (event) => {
		const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
		if (event.altKey || event.metaKey || event.ctrlKey) return;
		if (step) {
			at = at.map((value, axis) => Math.min(Math.max(value + step[axis] * STEP, STEP / 2), SIDE - STEP / 2));
			go(...at);
		} else if (event.key === " ") pen ? lift() : begin(...at);
		else if (event.key === "Backspace") self.undo();
		else if (event.key === "Delete") self.clear();
		else return;
		event.preventDefault();
		redraw();
		announce(`Column ${Math.ceil(at[0] / STEP)}, row ${Math.ceil(at[1] / STEP)}, pen ${pen ? "down" : "up"}`);
	});
	const self = {
		name: "drawing", initial: [], canvas, redraw,
		get value() { return strokes; },
		set value(given) { if (given.every?.((stroke) => stroke.every(Number.isFinite))) [strokes, image, pen, file] = [given, null, null, ""]; },
		/** The image that lies on the pad as another control, for links and examples: a file in base64; "" of none, and of a large one. */
		laid: {
			name: "image", initial: "",
			get value() { return file; },
			set value(given) { if (given) decoded(given).then((found) => self.lay(found), () => announce("The image cannot be read.")); },
		},
		get image() { return image; },
		get isEmpty() { return !strokes.length && !image; },
		lay: (given) => set([], given),
		undo: () => set(image ? strokes : strokes.slice(0, -1)),
		clear: () => set([]),
		/** Grey values, of the strokes light on dark, or of an image. */
		ink(laid = image) {
			hidden.fillRect(0, 0, SIDE, SIDE);
			paint(hidden, laid ? "#0000" : "#fff", laid);
			return greys(hidden.getImageData(0, 0, SIDE, SIDE).data);
		},
	};
	return self;
}
