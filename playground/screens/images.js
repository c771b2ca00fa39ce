// Images: drawn, opened, dropped or pasted; what the model sees, labels, and attention over patches.

import { ApiError } from "../api/client.js";
import { percent, plural } from "../maths/numbers.js";
import { seen, SIDE } from "../maths/strokes.js";
import { drawingPad, greys } from "../parts/drawing_pad.js";
import { announce, bars, fill, h, table, tableButtons } from "../parts/page.js";
import { attention } from "./patch_attention.js";

const BETWEEN_MS = 100; // runs while one draws
const MOST_ROWS = 50; // of the table
const SMALL = 64; // pixels a side; larger images are no drawings, and are not fitted, nor are those of the model's own size

export default function build(screen) {
	const width = screen.number("pen", { label: "Pen width", min: 4, max: 60, value: 26, isIndex: true, into: null });
	const pad = screen.add(drawingPad({ label: "Drawing pad", width: () => width.value, onchange: () => screen.changed() }));
	screen.add(pad.laid);
	const file = h("input", { type: "file", accept: "image/*", multiple: true, hidden: true, label: "Images to open", onchange: () => open(file.files) });
	const button = (label, onclick) => h("button", { onclick }, label);
	screen.input.append(pad.canvas, h("div.row", button("Undo", pad.undo), button("Clear", pad.clear), button("Open", () => file.click()), button("Add to table", () => keep("drawing", pad.image)), file),
		h("p.small.soft", "Images can be opened, dropped or pasted. Arrow keys move the pen, Space puts it down and lifts it."), width.element);
	const isFitted = screen.toggle("fit", { label: "Centre and scale as MNIST does", value: true }), isInverted = screen.toggle("invert", { label: "Invert light and dark" });
	const looked = attention(screen), picture = h("div.stack"), result = h("div.stack"), kept = h("div.stack");
	fill(screen.result, h("div.sight", picture, result), looked.element, kept);
	let timer = 0, last = 0, waiting = [], rows = [], said = "";
	screen.isLive = true;

	/** Runs at once, or as soon as the time between runs has passed; the latest run wins. */
	screen.onchanged = () => {
		clearTimeout(timer);
		timer = setTimeout(() => {
			last = performance.now();
			screen.run();
		}, Math.max(0, last + BETWEEN_MS - performance.now()));
	};

	/** The pixels that the model takes. */
	function sight(image) {
		const { image_width: columns, image_height: tall, image_channels: channels } = screen.model, canvas = h("canvas.pixels", { role: "img", label: "What the model sees", width: columns, height: tall }), pen = canvas.getContext("2d");
		const turned = (value) => (isInverted.value ? 255 - value : value), isGrey = !image || channels === 1;
		let pixels;
		if (image && !(isGrey && isFitted.value && Math.max(columns, tall) <= SMALL && (image.width !== columns || image.height !== tall))) {
			pen.imageSmoothingQuality = "high";
			pen.drawImage(image, 0, 0, columns, tall);
			pixels = pen.getImageData(0, 0, columns, tall);
			const grey = isGrey && greys(pixels.data);
			pixels.data.forEach((value, at) => { if (at % 4 < 3) pixels.data[at] = turned(grey ? grey[at >> 2] : value); });
		} else {
			pixels = pen.createImageData(columns, tall);
			// An image is turned before it is fitted, so that its background is dark then; a drawing is light on dark already.
			seen(pad.ink(image).map(image ? turned : (value) => value), SIDE, columns, tall, isFitted.value).forEach((value, at) => pixels.data.set([...Array(3).fill(image ? value : turned(value)), 255], 4 * at));
		}
		pen.putImageData(pixels, 0, 0);
		return canvas;
	}

	/** Several images go into the table, the last one onto the pad. */
	async function open(files) {
		const images = await Promise.all([...files].map(async (each) => ({ name: each.name, image: await createImageBitmap(each).catch(() => null) }))), good = images.filter(({ image }) => image);
		file.value = "";
		if (!good.length) return screen.wrong(new ApiError(0, "This browser cannot read these files as images."));
		if (good.length > 1) for (const { name, image } of good) keep(name, image);
		pad.lay(good.at(-1).image);
	}
	function keep(name, image) {
		if (!image && pad.isEmpty) return announce("The pad is empty.");
		if (rows.length + waiting.length >= MOST_ROWS) return announce(`The table has at most ${MOST_ROWS} rows.`);
		waiting.push({ name, canvas: sight(image) });
		screen.changed();
	}
	const paste = ({ clipboardData: { files } }) => files.length && open(files);
	document.addEventListener("paste", paste);
	screen.onclose = () => {
		document.removeEventListener("paste", paste);
		clearTimeout(timer);
	};
	screen.input.addEventListener("dragover", (event) => event.preventDefault());
	screen.input.addEventListener("drop", (event) => {
		event.preventDefault();
		open(event.dataTransfer.files);
	});

	screen.onmodel = (model) => {
		const drawn = model.labels.join("") === "0123456789" ? DIGITS.map((points, digit) => ({ title: `A drawn ${digit}`, values: { drawing: [[26, ...points]] } })) : [];
		screen.presets = [...drawn, ...model.examples.filter(({ image }) => image).map(({ text, image }) => ({ title: `Image: ${text}`, values: { image } }))];
		isFitted.element.hidden = Math.max(model.image_height, model.image_width) > SMALL;
		looked.element.hidden = true;
		setTimeout(() => screen.changed()); // with the permalink's values
	};

	const encoded = (canvas) => canvas.toDataURL("image/png").split(",")[1];
	const labelsOf = async ({ model, call }, images) => {
		if (model.task === "image-classification") return (await call("api/ClassifyImage", { model: model.name, images, all_scores: true })).results.map(({ labels }) => labels);
		const all = [];
		for (const image of images) all.push((await call("api/AttendImage", { model: model.name, image, layers: [0], heads: [0] })).labels);
		return all;
	};
	screen.action(async (tools) => {
		const { model } = tools, adding = [...waiting];
		pad.redraw();
		if (adding.length) {
			const labels = await labelsOf(tools, adding.map(({ canvas }) => encoded(canvas)));
			rows.push(...adding.map((each, index) => ({ ...each, labels: labels[index] })));
			waiting = waiting.slice(adding.length);
			tabulate();
		}
		if (pad.isEmpty) {
			looked.element.hidden = true;
			fill(picture);
			fill(result, h("p.placeholder", "Draw on the pad, or open an image."));
			return "";
		}
		const canvas = sight(pad.image), labels = model.task === "image-attention" ? await looked.run(tools, canvas, encoded(canvas)) : (await labelsOf(tools, [encoded(canvas)]))[0], best = labels[0].label;
		fill(picture, h("h2", "What the model sees"), canvas, h("p.small.soft", `${canvas.width} × ${canvas.height}, ${model.image_channels === 1 ? "grey" : "colour"}`));
		if (best !== said) announce(`Most likely: ${said = best}`);
		// Few labels keep their places, so that bars do not jump while one draws.
		const listed = labels.length > 12 ? labels.slice(0, 10) : [...labels].sort((a, b) => model.labels.indexOf(a.label) - model.labels.indexOf(b.label));
		fill(result, h("h2", `Most likely: ${best}`), bars(listed.map(({ label, score }) => ({ label, value: score, isOn: label === best })), { most: 1, label: "Labels" }));
	}, { label: "Classify" });

	function tabulate() {
		const head = ["Image", "Label", "Probability", "Second", "Probability"], cells = ({ labels: [best, second] }, write) => [best.label, write(best.score), ...(second ? [second.label, write(second.score)] : ["", ""])];
		const empty = h("button.plain", { onclick: () => { rows = []; fill(kept); } }, "Empty the table");
		fill(kept, h("div.row.spread", h("h2", plural(rows.length, "image")), h("span.row", empty, tableButtons("images", () => [head, ...rows.map((row) => [row.name, ...cells(row, Number)])]))),
			table(head, rows.map((row) => [h("span.row", row.canvas, row.name), ...cells(row, percent)]), { caption: "Labels of several images" }));
	}
}

/** Written digits: x and y of each point of the stroke. */
const DIGITS = [
	[140, 50, 95, 70, 75, 120, 75, 165, 95, 215, 140, 232, 185, 215, 205, 165, 205, 120, 185, 70, 140, 50], [110, 85, 145, 55, 145, 230], [85, 95, 100, 65, 140, 50, 180, 65, 192, 100, 175, 140, 85, 228, 200, 228],
	[85, 70, 140, 50, 185, 75, 180, 115, 135, 135, 185, 155, 195, 200, 145, 230, 85, 210], [165, 230, 165, 50, 75, 170, 210, 170], [190, 55, 95, 55, 88, 130, 140, 115, 190, 140, 195, 190, 150, 228, 85, 210],
	[175, 50, 115, 90, 85, 160, 95, 210, 140, 230, 185, 205, 185, 160, 140, 140, 95, 165], [80, 55, 200, 55, 130, 230],
	[140, 135, 90, 105, 100, 62, 140, 48, 180, 62, 190, 105, 140, 135, 88, 175, 95, 220, 140, 232, 185, 220, 192, 175, 140, 135], [190, 95, 150, 130, 100, 120, 88, 85, 115, 50, 165, 52, 190, 95, 180, 170, 150, 230],
];
