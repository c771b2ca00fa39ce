// All heads: a small picture of each, named by what it does, and the difference to another text or model.

import { attentionOf } from "../api/attention.js";
import { models } from "../api/models.js";
import { outputOf } from "../api/partners.js";
import { matrixOf } from "../maths/attention.js";
import { scale } from "../maths/colour.js";
import { cropped } from "../maths/differences.js";
import { LABELS, labelOf, scores } from "../maths/heads.js";
import { fixed, plural } from "../maths/numbers.js";
import { write } from "../maths/permalink.js";
import { paint, shades } from "../maths/thumbnails.js";
import { announce, cursor, fill, h, picture, tip } from "../parts/page.js";

const GAP = 4, LARGEST = 104, LINE = 18, NAMED = 60, SCORED = 100; // pixels; a name is below pictures that are so wide, and its score with it where they are wider

export default function build(screen) {
	screen.element.classList.add("first");
	screen.wide();
	let first = null, second = null, isOpen = false, shown = [], most = 1, at = null, grid = {}, perLayer = 1, image = null; // heads of a layer that are shown; their pictures, until others are
	const { soon } = screen, redraw = { onchange: () => arrange() };
	const texts = h("div.fields"), views = h("div.fields");
	screen.input.append(texts);
	const text = screen.text("text", { label: "Text", rows: 2, isMain: true, into: texts, onchange: () => { target.value = ""; soon(); } }), target = screen.text("target", { label: "Output that the model reads again", rows: 2, into: texts, onchange: soon });
	const other = screen.text("other", { label: "Other text", rows: 2, into: texts, onchange: () => { otherTarget.value = ""; soon(); } }), otherTarget = screen.text("other_target", { label: "Its output", rows: 2, into: texts, onchange: soon });
	screen.action(run);
	screen.input.append(views);
	const compare = screen.choice("compare", { label: "Compare with", options: [["", "Nothing"], ["text", "A text"], ["model", "A model"]], into: views, onchange: () => { fields(); soon(); } });
	const otherModel = screen.choice("with", { label: "Other model", options: [], isMenu: true, into: views, onchange: soon });
	const shared = screen.choice("colours", { label: "Colours up to the largest", options: [["own", "of each head"], ["all", "of all"]], into: views, ...redraw });
	const labels = Object.entries(LABELS), scored = labels.slice(0, -1); // `mixed` has no score of its own
	const order = screen.choice("order", { label: "Order", isMenu: true, options: [["", "Layers"], ...scored.map(([key, words]) => [key, `Most ${words}`])], into: views, ...redraw });
	const only = screen.choice("only", { label: "Heads", isMenu: true, options: [["", "All"], ...labels], into: views, ...redraw });

	const named = (each) => `Layer ${each.layer}, head ${each.head}: ${LABELS[each.label]} ${fixed(each.score, 2)}${each.was === undefined ? "" : `, in the other ${fixed(each.was, 2)}`}`;
	const figure = picture({
		label: "Attention of all heads", isInteractive: true, draw,
		height: (width) => {
			const columns = order.value || only.value ? Math.max(1, Math.floor(width / (LARGEST + GAP))) : perLayer, left = order.value || only.value ? 0 : 28;
			const size = Math.max(12, Math.min(LARGEST, Math.floor((width - left) / columns) - GAP)), tall = size + GAP + (size >= NAMED ? LINE : 0);
			grid = { columns, left, size, tall };
			return Math.max(tall, Math.ceil(shown.length / columns) * tall);
		},
		twin: () => ({ head: ["Layer", "Head", "Does", ...scored.map(([, words]) => words), ""], rows: shown.map((each) => [each.layer, each.head, LABELS[each.label], ...scored.map(([key]) => fixed(each.scores[key], 2)),
			h("button.plain", { onclick: () => open(each) }, "Open")]) }),
	});
	const placeholder = h("p.placeholder", "Run to see all heads."), note = h("p.notice", { hidden: true });
	fill(screen.result, placeholder, note, figure);
	figure.hidden = true;

	function fields() {
		const isCross = screen.model?.has_source, isText = compare.value === "text";
		[target.element.hidden, other.element.hidden, otherTarget.element.hidden, otherModel.element.hidden] = [!isCross, !isText, !isText || !isCross, compare.value !== "model"];
	}
	screen.onexample = ({ text_pair: output = "" }) => { target.value = output; };
	screen.onmodel = (model) => {
		const same = models.of(screen.entry).filter((each) => each.name !== model.name && each.has_source === model.has_source).map((each) => each.name);
		otherModel.setOptions(same.length ? same : [["", "no other is served"]]);
		fields();
		if (isOpen || !screen.given.run) soon();
		isOpen = true;
	};

	async function run({ model, call, signal }) {
		fields();
		for (const [input, output] of model.has_source ? [[text, target], ...(compare.value === "text" ? [[other, otherTarget]] : [])] : []) output.value ||= await outputOf(model, input.value, call);
		const of = (name, source, output) => ({ model: name, text: source, ...(model.has_source && { target: output }) });
		const options = { call, signal, onpage: (part) => { if (compare.value) return; [first, second] = [part, null]; compute(); } };
		const one = await attentionOf(of(model.name, text.value, target.value), options);
		const two = compare.value === "text" ? await attentionOf(of(model.name, other.value, otherTarget.value), options) : compare.value === "model" && otherModel.value ? await attentionOf(of(otherModel.value, text.value, target.value), options) : null;
		[first, second] = [one, two];
		compute();
	}

	/** The pictures: of the heads, or of their differences to those of the other. */
	function compute() {
		const { weights, queries, keys, isCross, loaded } = first, tokens = { queries, keys, isCross }, all = [];
		for (let layer = 0; layer < weights.layers && loaded[layer]; layer++) {
			for (let head = 0; head < weights.heads; head++) {
				const matrix = matrixOf(weights, layer, head), of = scores(matrix, tokens), made = { layer, head, matrix, columns: keys.length, scores: of, ...labelOf(of) };
				if (second && layer < second.weights.layers && head < second.weights.heads) {
					const with_ = matrixOf(second.weights, layer, head), others = scores(with_, second), size = [Math.min(queries.length, second.queries.length), Math.min(keys.length, second.keys.length)];
					const [ours, theirs] = [cropped(matrix, keys.length, ...size), cropped(with_, second.keys.length, ...size)];
					Object.assign(made, { matrix: ours.map((value, cell) => value - theirs[cell]), columns: size[1], was: others[made.label] ?? labelOf(others).score });
				}
				made.most = made.matrix.reduce((so_far, value) => Math.max(so_far, Math.abs(value)), 1e-9);
				if (!second || made.was !== undefined) all.push(made);
			}
		}
		first.all = all;
		perLayer = Math.min(weights.heads, second?.weights.heads ?? Infinity);
		const counts = second && [first, second].map((each) => each.keys.length);
		note.hidden = !counts || counts[0] === counts[1];
		if (!note.hidden) note.textContent = `The texts have ${counts[0]} and ${counts[1]} tokens: only places that both have are compared.`;
		arrange();
	}

	/** The pictures in the order that is chosen. */
	function arrange() {
		if (!first?.all) return;
		shown = first.all.filter((each) => !only.value || each.label === only.value);
		if (order.value) shown.sort((a, b) => b.scores[order.value] - a.scores[order.value]);
		most = Math.max(1e-9, ...shown.map((each) => each.most));
		[at, image] = [null, null];
		[placeholder.hidden, figure.hidden] = [true, false];
		const count = labels.map(([key, words]) => [shown.filter((each) => each.label === key).length, words]).filter(([number]) => number);
		figure.summarize(`${plural(shown.length, "head")} of ${plural(first.queries.length, "token")}: ${count.map(([number, words]) => `${number} ${words}`).join(", ")}.${second ? " Blue: more here; orange: more in the other." : ""}`);
		figure.redraw();
		figure.tabulate();
	}

	function draw(pen, width, _, colours) {
		const started = performance.now(), { width: across, height } = pen.canvas, ratio = across / width, key = `${across} ${height} ${colours.paper}`, isNew = key !== image?.key;
		const box = (index) => ({ x: grid.left + (index % grid.columns) * (grid.size + GAP), y: Math.floor(index / grid.columns) * grid.tall });
		if (isNew) {
			image = Object.assign(new ImageData(across, height), { key });
			const pixels = new Uint32Array(image.data.buffer), painted = shades(scale(colours, !!second), second ? -1 : 0), side = Math.round(grid.size * ratio);
			shown.forEach((each, index) => {
				const { x, y } = box(index);
				paint(pixels, across, { left: Math.round(x * ratio), top: Math.round(y * ratio), width: side, height: side }, each.matrix, each.columns, painted, shared.value === "all" ? most : each.most, !!second);
			});
		}
		pen.putImageData(image, 0, 0);
		pen.fillStyle = colours.soft;
		pen.textBaseline = "middle";
		shown.forEach((each, index) => {
			const { x, y } = box(index), key = order.value || each.label, score = key in each.scores ? fixed(each.scores[key], 2) : "";
			if (grid.left && index % grid.columns === 0) pen.fillText(`L${each.layer}`, 0, y + grid.size / 2);
			const name = `${grid.left ? "" : `L${each.layer} H`}${each.head}${order.value ? "" : ` ${key}`}`;
			if (grid.size >= NAMED) pen.fillText(order.value || grid.size >= SCORED ? `${name} ${score}` : name, x, y + grid.size + LINE / 2);
			pen.strokeStyle = index === at ? colours.accent : colours.line;
			pen.lineWidth = index === at ? 2 : 1;
			pen.strokeRect(x + 0.5, y + 0.5, grid.size - 1, grid.size - 1);
		});
		if (isNew) performance.measure("all heads", { start: started });
	}

	cursor(figure.canvas, {
		find(x, y) {
			const column = Math.floor((x - grid.left) / (grid.size + GAP));
			return column < 0 || column >= grid.columns ? null : Math.floor(y / grid.tall) * grid.columns + column;
		},
		next([right, down], to = at + right + down * grid.columns) { return at === null ? 0 : shown[to] ? to : at; },
		show(index, isByKey) {
			const each = index === null ? null : shown[index];
			if (at === (each ? index : null)) return;
			at = each ? index : null;
			figure.redraw();
			if (!each) return tip(null);
			const area = figure.canvas.getBoundingClientRect();
			tip({ x: area.left + grid.left + (at % grid.columns) * (grid.size + GAP), y: area.top + (Math.floor(at / grid.columns) + 1) * grid.tall - 12 }, named(each));
			if (isByKey) announce(named(each));
		},
		pick: () => at !== null && open(shown[at]),
	});
	function open({ layer, head }) {
		location.hash = write("attention", { model: screen.model.name, text: text.value, ...(target.value && { target: target.value }), layer, heads: [head], run: "1" });
	}
}
