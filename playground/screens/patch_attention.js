// Part of the screen of images: where a model's heads look, as a grid of patches over the image.

import { matricesOf, matrixOf, mean, rollout } from "../maths/attention.js";
import { css, rgb, scale } from "../maths/colour.js";
import { percent } from "../maths/numbers.js";
import { h, picture, tip } from "../parts/page.js";

const MOST_VALUES = 2 ** 21; // of one answer
const MOST_PIXELS = 320; // of the drawing

export function attention(screen) {
	const element = h("section.stack", { hidden: true }, h("h2", "Attention over patches")), controls = h("div.fields");
	const view = screen.choice("view", { label: "Show", options: [["rollout", "All layers (rollout)"], ["mean", "Mean of a layer"], ["head", "One head"]], into: element });
	const layer = screen.number("layer", { label: "Layer, from 0", min: 0, max: 1, value: 0, into: controls }), head = screen.number("head", { label: "Head, from 0", min: 0, max: 1, value: 0, into: controls });
	const from = screen.add({ name: "patch", initial: 0, value: 0 }); // 0 is the class token
	let weights = null, rows = 1, columns = 1, image = null, cell = 1;

	const chosen = () => Math.min(from.value, rows * columns);
	/** The weights of the chosen patch, the class token's first. */
	const row = () => {
		const layers = Array.from({ length: weights.layers }, (_, at) => at), at = chosen();
		const matrix = view.value === "rollout" ? rollout(layers.map((each) => mean(matricesOf(weights, each))), weights.rows)
			: view.value === "mean" ? mean(matricesOf(weights, layer.value)) : matrixOf(weights, layer.value, head.value);
		return Array.from(matrix.subarray(at * weights.rows, (at + 1) * weights.rows));
	};
	const nameOf = (token) => (token ? `row ${Math.ceil(token / columns)}, column ${((token - 1) % columns) + 1}` : "the class token");
	const box = (token) => [((token - 1) % columns) * cell, Math.floor((token - 1) / columns) * cell];
	const figure = picture({
		label: "Attention over the patches", isInteractive: true, height: (full) => (cell = Math.min(full, MOST_PIXELS) / columns) * rows,
		twin: () => ({ head: ["patch", "weight"], rows: weights ? row().map((weight, token) => [nameOf(token), percent(weight)]) : [] }),
		draw: (pen, _, height, colours) => {
			if (!weights) return;
			const all = row(), [least, most] = [Math.min(...all.slice(1)), Math.max(...all.slice(1))], at = chosen();
			Object.assign(pen, { imageSmoothingEnabled: false, globalAlpha: 0.4, textAlign: "center", textBaseline: "middle", strokeStyle: css(rgb(colours.edge), 0.5) });
			pen.drawImage(image, 0, 0, cell * columns, height);
			pen.globalAlpha = 1;
			all.forEach((weight, token) => {
				if (!token) return;
				const [x, y] = box(token);
				pen.fillStyle = css(rgb(colours.contrast), 0.85 * ((weight - least) / (most - least) || 0));
				pen.fillRect(x, y, cell, cell);
				pen.strokeRect(x, y, cell, cell);
				if (cell < 44) return;
				pen.fillStyle = css(rgb(colours.paper), 0.75);
				pen.fillRect(x + cell / 2 - 22, y + cell / 2 - 9, 44, 18);
				pen.fillStyle = colours.ink;
				pen.fillText(percent(weight), x + cell / 2, y + cell / 2);
			});
			[pen.strokeStyle, pen.lineWidth] = [colours.accent, 3];
			if (at) pen.strokeRect(...box(at).map((value) => value + 2), cell - 4, cell - 4);
		},
	});
	const choose = (token) => {
		from.value = token;
		screen.changed();
	};
	const under = ({ offsetX, offsetY }) => (offsetX < cell * columns ? Math.min(rows - 1, Math.floor(offsetY / cell)) * columns + Math.floor(offsetX / cell) + 1 : 0);
	figure.canvas.addEventListener("click", (event) => choose(under(event) === chosen() ? 0 : under(event)));
	figure.canvas.addEventListener("pointermove", (event) => (weights && under(event) ? tip({ x: event.clientX, y: event.clientY }, `${nameOf(under(event))}: ${percent(row()[under(event)])}`) : tip(null)));
	figure.canvas.addEventListener("pointerleave", () => tip(null));
	figure.canvas.addEventListener("keydown", (event) => {
		const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -chosen() }[event.key], next = chosen() || !(step > 0) ? chosen() + step : 1;
		if (next >= 0 && next <= rows * columns) choose(next);
		if (step !== undefined) event.preventDefault();
	});
	let tile = 1;
	const tiles = picture({
		label: "All heads, a layer in each row", summary: "All heads, a layer in each row. A click shows one.", height: (full) => (tile = Math.min(72, full / (weights?.heads ?? 1))) * (weights?.layers ?? 0),
		draw: (pen, _width, _height, colours) => {
			for (let each = 0; weights && each < weights.layers * weights.heads; each++) {
				const [at, one] = [Math.floor(each / weights.heads), each % weights.heads], all = Array.from(matrixOf(weights, at, one)).slice(chosen() * weights.rows).slice(1, weights.rows), most = Math.max(...all);
				const [left, top, wide, tall] = [one * tile, at * tile, (tile - 6) / columns, (tile - 6) / rows];
				all.forEach((weight, patch) => {
					pen.fillStyle = css(scale({ ...colours, accent: colours.contrast })(weight / most || 0));
					pen.fillRect(left + (patch % columns) * wide, top + Math.floor(patch / columns) * tall, wide + 0.3, tall + 0.3);
				});
				const isShown = view.value === "head" && at === layer.value && one === head.value;
				[pen.strokeStyle, pen.lineWidth] = [isShown ? colours.accent : colours.line, isShown ? 3 : 1];
				pen.strokeRect(left + 0.5, top + 0.5, tile - 7, tile - 7);
			}
		},
	});
	tiles.canvas.addEventListener("click", ({ offsetX, offsetY }) => {
		if (!weights || offsetX >= tile * weights.heads) return;
		[view.value, layer.value, head.value] = ["head", Math.floor(offsetY / tile), Math.floor(offsetX / tile)];
		screen.changed();
	});
	element.append(controls, figure, tiles);
	return {
		element,
		/** Asks for all matrices, as many layers at a time as an answer holds, and shows them. @returns the labels */
		async run({ model, call }, canvas, file) {
			const { max_tokens: size, num_layers: layers, num_heads: heads } = model, perCall = Math.max(1, Math.floor(MOST_VALUES / (heads * size * size))), values = new Float32Array(layers * heads * size * size);
			let answer;
			for (let first = 0; first < layers; first += perCall) {
				answer = await call("api/AttendImage", { model: model.name, image: file, layers: [...Array(layers).keys()].slice(first, first + perCall) });
				answer.matrices.forEach((matrix) => values.set(matrix.weights, ((matrix.layer ?? 0) * heads + (matrix.head ?? 0)) * size * size));
			}
			layer.bound(layers - 1);
			head.bound(heads - 1);
			[weights, rows, columns, image] = [{ layers, heads, rows: size, columns: size, values }, answer.patch_rows, answer.patch_columns, canvas];
			[controls.hidden, head.element.hidden, element.hidden] = [view.value === "rollout", view.value !== "head", false];
			const all = row(), most = Math.max(...all.slice(1)), name = nameOf(chosen());
			figure.canvas.ariaLabel = `Attention of ${name} over the patches`;
			figure.summarize(`${name[0].toUpperCase()}${name.slice(1)} looks most at ${nameOf(all.lastIndexOf(most))}, ${percent(most)}; at the class token ${percent(all[0])}. A click or the arrow keys choose a patch.`);
			figure.redraw();
			tiles.redraw();
			return answer.labels;
		},
	};
}
