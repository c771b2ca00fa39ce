// A matrix in colours on a canvas.

import { css, scale } from "../maths/colour.js";
import { visible } from "../maths/visible.js";
import { cursor, picture } from "./picture.js";
import { tip } from "./shapes.js";

/** A matrix in colours, with a cursor for pointer and keys. `most` has the full colour, `least` none; `written` gives text and colour for large cells. `update({values, rows, columns, marked})` shows others, `marked` with a frame. */
export function heatMap({ label, values, rows, columns, summary, isSigned, most, format = (value) => value.toFixed(3), onhover, onpick, cell = 28, least = 0, written }) {
	let top, isTilted, marked = [];
	const measure = () => {
		[rows, columns] = [rows, columns].map((names) => names.map((name) => visible(name)));
		top = most ?? values.reduce((so_far, value) => Math.max(so_far, Math.abs(value)), 1e-12);
		isTilted = columns.some((text) => text.length > 3);
	};
	measure();
	const clip = (text, most = 14) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
	let size = cell, at = null, left = 0, above = 0, long = 14;
	const width = (pen, texts) => Math.max(0, ...texts.map((text) => pen.measureText(text).width));
	const tall = (full) => {
		const pen = figure.canvas.getContext("2d");
		pen.font = "12px system-ui, sans-serif";
		long = full > 480 ? 30 : 14;
		[left, above] = [Math.ceil(width(pen, rows.map((text) => clip(text, long)))) + 8, isTilted ? Math.ceil(width(pen, columns.map((text) => clip(text))) * 0.75) + 14 : 20];
		size = Math.max(3, Math.min(cell, (full - left - (isTilted ? Math.max(24, width(pen, [clip(columns.at(-1))]) * 0.71) : 24)) / columns.length));
		return above + size * rows.length + 2;
	};
	const draw = (pen, full, _, colours) => {
		const colour = scale(colours, isSigned);
		pen.textBaseline = "middle";
		pen.textAlign = "center";
		rows.forEach((_, row) => columns.forEach((_, column) => {
			const value = values[row * columns.length + column], share = (value - least) / (top - least), [x, y] = [left + column * size, above + row * size];
			pen.fillStyle = css(colour(share));
			pen.fillRect(x, y, size - (size > 6), size - (size > 6));
			if (size < 36 || !written) return;
			const [text, ink] = written(value, colour(share));
			pen.fillStyle = ink;
			pen.fillText(text, x + size / 2, y + size / 2);
		}));
		pen.fillStyle = colours.soft;
		const each = Math.ceil(11 / size);
		pen.textAlign = "right";
		rows.forEach((text, row) => row % each || pen.fillText(clip(text, long), left - 6, above + (row + 0.5) * size));
		pen.textAlign = isTilted ? "left" : "center";
		columns.forEach((text, column) => {
			if (column % each) return;
			pen.save();
			pen.translate(left + (column + 0.5) * size, above - 6);
			if (isTilted) pen.rotate(-Math.PI / 4);
			else pen.translate(0, -2);
			pen.fillText(clip(text), 0, 0);
			pen.restore();
		});
		[pen.strokeStyle, pen.lineWidth] = [colours.contrast, 2];
		for (const cell of marked) pen.strokeRect(left + (cell % columns.length) * size + 1, above + Math.floor(cell / columns.length) * size + 1, size - 3, size - 3);
		if (at) {
			pen.strokeStyle = colours.ink;
			pen.strokeRect(left + at[1] * size, above + at[0] * size, size - 1, size - 1);
		}
	};
	const figure = picture({ label, summary, height: tall, draw, isInteractive: true, twin: () => ({ head: ["", ...columns], rows: rows.map((text, row) => [text, ...columns.map((_, column) => format(values[row * columns.length + column]))]) }) });
	cursor(figure.canvas, {
		find(x, y) {
			const [row, column] = [Math.floor((y - above) / size), Math.floor((x - left) / size)];
			return row < 0 || column < 0 || row >= rows.length || column >= columns.length ? null : [row, column];
		},
		next: ([right, down]) => (at ? [Math.min(Math.max(at[0] + down, 0), rows.length - 1), Math.min(Math.max(at[1] + right, 0), columns.length - 1)] : [0, 0]),
		show(place) {
			at = place;
			figure.redraw();
			onhover?.(...(at ?? [null]));
			const box = figure.canvas.getBoundingClientRect();
			if (at) tip({ x: box.left + left + (at[1] + 1) * size, y: box.top + above + (at[0] + 1) * size }, `${rows[at[0]]} → ${columns[at[1]]}: ${format(values[at[0] * columns.length + at[1]])}`);
			else tip(null);
		},
		pick: () => at && onpick?.(...at),
	});
	figure.update = (next) => {
		({ values = values, rows = rows, columns = columns, marked = [] } = next);
		measure();
		figure.toggleAttribute("data-marked", marked.length > 0);
		figure.tabulate();
		if (at && (at[0] >= rows.length || at[1] >= columns.length)) at = null;
		figure.redraw();
	};
	return figure;
}
