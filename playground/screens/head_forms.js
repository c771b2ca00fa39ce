// The weights that are shown as a matrix, as a table and as files.

import { strongest } from "../maths/attention.js";
import { writeCsv } from "../maths/csv.js";
import { fixed } from "../maths/numbers.js";
import { download, fill, table } from "../parts/page.js";
import { heatMap } from "../parts/heat_map.js";

const MOST_ROWS = 200; // of the table
const LINE = ["query", "from", "key", "to", "weight"];

export function drawMatrix({ grid, matrix, queries, keys, title }) {
	const name = (token, index) => `${token.name} ${index}`;
	fill(grid, heatMap({ label: `Weights of ${title}`, values: matrix, rows: queries.map(name), columns: keys.map(name), summary: "Rows are queries, columns are keys.", cell: 24 }));
}

/** Cells as lines, the strongest first. */
const linesOf = (cells, { queries, keys }) => cells.toReversed().map(({ row, column, weight }) => [row, queries[row].piece, column, keys[column].piece, fixed(weight, 4)]);

export const drawTable = (shown) => fill(shown.twin, shown.twin.firstChild, table(LINE, linesOf(shown.cells.slice(-MOST_ROWS), shown), { caption: `The strongest lines of ${shown.title}` }));

export const saveCsv = (shown) => download("attention.csv", writeCsv([LINE, ...linesOf(strongest(shown.matrix, shown.keys.length, { most: Infinity }), shown)]));

export const saveJson = ({ of, queries, keys, matrix }) => download("attention.json", JSON.stringify({ ...of, queries, keys, weights: [...matrix] }));

export const savePng = ({ canvas }) => canvas.toBlob((blob) => download("attention.png", blob));
