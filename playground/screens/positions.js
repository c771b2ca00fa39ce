// Positions: sines and cosines, a learned table, and turned vectors, as pictures to move through.

import { learned, sinusoids, turned } from "../maths/attending.js";
import { fixed } from "../maths/numbers.js";
import { dot, matrix, random } from "../maths/vectors.js";
import { fill, h, picture, table } from "../parts/page.js";
import { heatMap } from "../parts/heat_map.js";

const WORDS = {
	sinusoidal: "Each position is a row of sines and cosines (Vaswani et al. 2017). Two values have one wavelength; it grows from left to right. The row is added to the word's vector.",
	learned: "A table of random numbers that is trained like all other weights, as in BERT, GPT-2 and ViT. This one learns in the page to tell which positions are near.",
	rotary: "Nothing is added: pairs of values of q and k are turned by an angle that grows with the position (Su et al. 2021, as in Llama). The product of two depends only on how far apart they are.",
};

export default function build(screen) {
	screen.element.classList.add("first");
	const steps = [], draw = () => show();
	const kind = screen.choice("kind", { label: "Positions", options: [["sinusoidal", "Sinusoidal"], ["learned", "Learned"], ["rotary", "Rotary"]], onchange: draw });
	const words = h("p.soft");
	screen.input.append(words);
	const at = screen.number("at", { label: "Position", min: 0, max: 31, value: 3, isIndex: true, onchange: draw }), to = screen.number("to", { label: "Other position", min: 0, max: 31, value: 5, isIndex: true, onchange: draw });
	const size = screen.choice("size", { label: "Values of a vector", options: ["4", "8", "16", "32"], value: "16", onchange: () => { steps.length = 0; show(); } }), step = screen.number("step", { label: "Steps of learning", min: 0, max: 200, value: 200, isIndex: true, onchange: draw });

	function show() {
		const width = +size.value, many = 32, names = (count) => [...Array(count).keys()].map(String), isTurned = kind.value === "rotary";
		words.textContent = WORDS[kind.value];
		step.element.hidden = kind.value !== "learned";
		if (!steps.length) {
			const draw = random(1);
			steps.push(names(many).map(() => names(width).map(() => draw() - 0.5)));
		}
		while (kind.value === "learned" && steps.length <= step.value) steps.push(learned(steps.at(-1)));
		const ones = Array(width).fill(1).map((_, i) => 1 - (i % 2)), rows = isTurned ? names(many).map((_, place) => turned(ones, place)) : kind.value === "learned" ? steps[step.value] : sinusoids(many, width);
		const one = rows[at.value], other = rows[to.value], product = dot(one, other), products = matrix(rows, dot);
		const map = (label, values, columns, marked, summary) => {
			const made = heatMap({ label, values: values.flat(), rows: names(many), columns: names(columns), isSigned: true, cell: 16, summary });
			made.update({ marked });
			return made;
		};
		const dial = () => picture({
			label: "Pairs of values as hands", height: 84, summary: `Each hand is a pair of values. Blue: position ${at.value}; orange: ${to.value}. The angle between them depends on the distance ${to.value - at.value} alone.`,
			draw: (pen, full, _, colours) => {
				const pairs = Math.min(width / 2, Math.floor(full / 40)), each = Math.min(84, full / pairs), radius = each / 2 - 4;
				for (let i = 0; i < pairs; i++) {
					[pen.strokeStyle, pen.lineWidth] = [colours.line, 1];
					pen.beginPath();
					pen.arc((i + 0.5) * each, 42, radius, 0, 7);
					pen.stroke();
					for (const [row, colour] of [[other, colours.contrast], [one, colours.accent]]) {
						[pen.strokeStyle, pen.lineWidth] = [colour, 2];
						pen.beginPath();
						pen.moveTo((i + 0.5) * each, 42);
						pen.lineTo((i + 0.5) * each + radius * row[2 * i], 42 - radius * row[2 * i + 1]);
						pen.stroke();
					}
				}
			},
		});
		fill(screen.result, isTurned && dial(), h("div.pair", map("Values by position", rows, width, names(width).flatMap((_, i) => [at.value, to.value].map((place) => place * width + i)), `A row for each position; ${at.value} and ${to.value} have frames.`), map("Products of positions", products, many, [at.value * many + to.value], "Each position with each.")),
			table(["value", `position ${at.value}`, `position ${to.value}`], one.slice(0, 8).map((value, i) => [i, fixed(value, 2), fixed(other[i], 2)]), { caption: "Values of two positions" }),
			h("p", `Their product is ${fixed(product, 2)}${kind.value === "learned" ? "" : `, as that of any two that are ${Math.abs(to.value - at.value)} apart`}.`));
	}
	screen.onstart = show;
}
