// Points with names that do not cover one another; a cursor for pointer and keys.

import { fixed, visible } from "../maths/numbers.js";
import { placed, ticks } from "../maths/places.js";
import { cursor, picture } from "./picture.js";
import { tip } from "./shapes.js";

const [LEFT, TOP, RIGHT, BOTTOM] = [60, 12, 12, 44];
const digits = (range) => (range > 5 ? 0 : range > 0.5 ? 1 : 2);

/** Earlier points are named first where room is short. `isSquare`: both numbers are of one kind, on equal axes with their diagonal. Points of the kind "on" are in the contrast colour, with a line from the point `from`. */
export function scatter({ label, summary, points, xTitle, yTitle, isSquare, onpick, twin }) {
	const range = (values) => {
		const [low, high] = [Math.min(...values), Math.max(...values)], margin = (high - low) * 0.06 || 1;
		return [low - margin, high + margin];
	};
	const xs = points.map((point) => point.x), ys = points.map((point) => point.y), both = [...xs, ...ys];
	const [[left, right], [low, high]] = isSquare ? [range(both), range(both)] : [range(xs), range(ys)];
	let at = null, spots = [];
	const draw = (pen, width, height, colours) => {
		const area = { x: LEFT, y: TOP, width: width - LEFT - RIGHT, height: height - TOP - BOTTOM };
		const x = (value) => LEFT + (value - left) / (right - left) * area.width, y = (value) => TOP + area.height - (value - low) / (high - low) * area.height;
		const line = (...ends) => { pen.beginPath(); pen.moveTo(ends[0], ends[1]); pen.lineTo(ends[2], ends[3]); pen.stroke(); };
		pen.strokeStyle = colours.line;
		pen.fillStyle = colours.soft;
		pen.textBaseline = "middle";
		pen.textAlign = "center";
		for (const value of ticks(left, right, Math.max(4, width / 90))) {
			line(x(value), TOP, x(value), TOP + area.height);
			pen.fillText(fixed(value, digits(right - left)), x(value), TOP + area.height + 12);
		}
		pen.textAlign = "right";
		for (const value of ticks(low, high, Math.max(4, height / 70))) {
			line(LEFT, y(value), LEFT + area.width, y(value));
			pen.fillText(fixed(value, digits(high - low)), LEFT - 6, y(value));
		}
		if (isSquare) {
			pen.strokeStyle = colours.edge;
			pen.setLineDash([4, 4]);
			line(x(low), y(low), x(high), y(high));
			pen.setLineDash([]);
		}
		pen.textAlign = "center";
		pen.fillText(xTitle, LEFT + area.width / 2, height - 8, area.width);
		pen.save();
		pen.translate(8, TOP + area.height / 2);
		pen.rotate(-Math.PI / 2);
		pen.fillText(yTitle, 0, 0, area.height);
		pen.restore();
		spots = points.map((point) => ({ x: x(point.x), y: y(point.y), width: pen.measureText(visible(point.label, true)).width, height: 14 }));
		points.forEach((point, index) => {
			pen.strokeStyle = colours.contrast;
			if (point.from !== undefined) line(spots[point.from].x, spots[point.from].y, spots[index].x, spots[index].y);
			pen.fillStyle = point.kind === "on" ? colours.contrast : colours.accent;
			pen.beginPath();
			pen.arc(spots[index].x, spots[index].y, index === at ? 5 : 3, 0, 7);
			pen.fill();
		});
		pen.fillStyle = colours.ink;
		pen.textAlign = "left";
		placed(spots, area).forEach((corner, index) => corner && pen.fillText(visible(points[index].label, true), corner.x, corner.y + 7));
	};
	const figure = picture({ label, summary, height: (width) => Math.min(width, 440), draw, twin: twin ?? (() => ({ head: ["", xTitle, yTitle], rows: points.map((point) => [point.label, fixed(point.x), fixed(point.y)]) })), isInteractive: true });
	const order = points.map((_, index) => index).sort((a, b) => points[a].x - points[b].x);
	cursor(figure.canvas, {
		find(x, y) {
			const far = (index) => Math.hypot(spots[index].x - x, spots[index].y - y), nearest = order.reduce((best, index) => (far(index) < far(best) ? index : best), 0);
			return spots.length && far(nearest) < 24 ? nearest : null;
		},
		next: ([right, down]) => order[Math.min(Math.max((at === null ? down - right : order.indexOf(at)) + right - down, 0), order.length - 1)],
		show(index) {
			at = index;
			figure.redraw();
			const box = figure.canvas.getBoundingClientRect();
			if (at === null) tip(null);
			else tip({ x: box.left + spots[at].x, y: box.top + spots[at].y }, `${visible(points[at].label, true)}\n${points[at].note}`);
		},
		pick: () => at !== null && onpick?.(at),
	});
	return figure;
}
