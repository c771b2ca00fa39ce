// Points with names that do not cover one another; a cursor for pointer and keys.

import { fixed } from "../maths/numbers.js";
import { placed, ticks } from "../maths/places.js";
import { visible } from "../maths/visible.js";
import { cursor, picture } from "./picture.js";
import { tip } from "./shapes.js";

const [LEFT, TOP, RIGHT, BOTTOM] = [60, 12, 12, 44];
const digits = (range) => (range > 5 ? 0 : range > 0.5 ? 1 : 2);

/**
 * Earlier points are named first where room is short. `isSquare`: both numbers are of one kind, on equal axes with their diagonal.
 * @param {{label: string, summary?: string, points: {x: number, y: number, label: string, note: string, kind?: string}[], xTitle: string, yTitle: string, isSquare?: boolean,
 * onpick?: (index: number) => void, twin?: () => {head: string[], rows: any[][]}}} options points of the kind "on" are in the contrast colour
 */
export function scatter({ label, summary, points, xTitle, yTitle, isSquare, onpick, twin }) {
	const range = (values) => {
		const [low, high] = [Math.min(...values), Math.max(...values)], margin = (high - low) * 0.06 || 1;
		return [low - margin, high + margin];
	};
	const xs = points.map((point) => point.x), ys = points.map((point) => point.y), both = [...xs, ...ys];
	const [[left, right], [low, high]] = isSquare ? [range(both), range(both)] : [range(xs), range(ys)];
	let at = null, spots = [];
	const draw = (context, width, height, colours) => {
		const area = { x: LEFT, y: TOP, width: width - LEFT - RIGHT, height: height - TOP - BOTTOM };
		const x = (value) => LEFT + (value - left) / (right - left) * area.width, y = (value) => TOP + area.height - (value - low) / (high - low) * area.height;
		const line = (...ends) => { context.beginPath(); context.moveTo(ends[0], ends[1]); context.lineTo(ends[2], ends[3]); context.stroke(); };
		context.strokeStyle = colours.line;
		context.fillStyle = colours.soft;
		context.textBaseline = "middle";
		context.textAlign = "center";
		for (const value of ticks(left, right, Math.max(4, width / 90))) {
			line(x(value), TOP, x(value), TOP + area.height);
			context.fillText(fixed(value, digits(right - left)), x(value), TOP + area.height + 12);
		}
		context.textAlign = "right";
		for (const value of ticks(low, high, Math.max(4, height / 70))) {
			line(LEFT, y(value), LEFT + area.width, y(value));
			context.fillText(fixed(value, digits(high - low)), LEFT - 6, y(value));
		}
		if (isSquare) {
			context.strokeStyle = colours.edge;
			context.setLineDash([4, 4]);
			line(x(low), y(low), x(high), y(high));
			context.setLineDash([]);
		}
		context.textAlign = "center";
		context.fillText(xTitle, LEFT + area.width / 2, height - 8, area.width);
		context.save();
		context.translate(8, TOP + area.height / 2);
		context.rotate(-Math.PI / 2);
		context.fillText(yTitle, 0, 0, area.height);
		context.restore();
		spots = points.map((point) => ({ x: x(point.x), y: y(point.y), width: context.measureText(visible(point.label, true)).width, height: 14 }));
		points.forEach((point, index) => {
			context.fillStyle = point.kind === "on" ? colours.contrast : colours.accent;
			context.beginPath();
			context.arc(spots[index].x, spots[index].y, index === at ? 5 : 3, 0, 7);
			context.fill();
		});
		context.fillStyle = colours.ink;
		context.textAlign = "left";
		placed(spots, area).forEach((corner, index) => corner && context.fillText(visible(points[index].label, true), corner.x, corner.y + 7));
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
