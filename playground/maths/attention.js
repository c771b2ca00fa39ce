// Attention weights: matrices of queries by keys, for each layer and head, and what is made of them.

/** One head's matrix: a view of the weights. */
export function matrixOf({ heads, rows, columns, values }, layer, head) {
	const size = rows * columns, start = (layer * heads + head) * size;
	return values.subarray(start, start + size);
}

/** The matrices of some heads of a layer. Without `heads`, of all. */
export const matricesOf = (weights, layer, heads = Array.from({ length: weights.heads }, (_, head) => head)) => heads.map((head) => matrixOf(weights, layer, head));

export function mean(matrices) {
	const sum = new Float32Array(matrices[0].length);
	for (const each of matrices) for (let i = 0; i < sum.length; i++) sum[i] += each[i];
	return sum.map((value) => value / matrices.length);
}

/** The largest of each cell. */
export function largest(matrices) {
	const most = matrices[0].slice();
	for (const each of matrices) for (let i = 0; i < most.length; i++) if (each[i] > most[i]) most[i] = each[i];
	return most;
}

/** Attention rollout (Abnar and Zuidema, 2020): what comes through all layers, half of each token being its residual. */
export function rollout(layers, size) {
	let rolled = new Float32Array(size * size);
	for (let i = 0; i < size; i++) rolled[i * size + i] = 1;
	for (const layer of layers) {
		const next = rolled.map((value) => value / 2); // the residual's half
		for (let row = 0; row < size; row++) {
			for (let middle = 0; middle < size; middle++) {
				const weight = layer[row * size + middle] / 2;
				if (weight) for (let column = 0; column < size; column++) next[row * size + column] += weight * rolled[middle * size + column];
			}
		}
		rolled = next;
	}
	return rolled;
}

/** The matrix without hidden queries and keys, and what remains of a row scaled to 1 on request. */
export function without(matrix, hiddenRows, hiddenColumns, isScaled) {
	const columns = hiddenColumns.length, kept = Float32Array.from(matrix);
	for (let row = 0; row < hiddenRows.length; row++) {
		let sum = 0;
		for (let i = row * columns, column = 0; column < columns; column++, i++) {
			if (hiddenRows[row] || hiddenColumns[column]) kept[i] = 0;
			sum += kept[i];
		}
		if (isScaled && sum > 0) for (let i = row * columns; i < (row + 1) * columns; i++) kept[i] /= sum;
	}
	return kept;
}

/** The cells that are drawn as lines, the strongest last: from a threshold, or the strongest of each row up to a share of it. */
export function strongest(matrix, columns, { threshold = 0, share, most = 4000 }) {
	const kept = [];
	for (let row = 0; row * columns < matrix.length; row++) {
		const cells = [];
		let sum = 0;
		for (let column = 0; column < columns; column++) {
			const weight = matrix[row * columns + column];
			sum += weight;
			if (weight > 0 && (share !== undefined || weight >= threshold)) cells.push({ row, column, weight });
		}
		if (share !== undefined) {
			cells.sort((a, b) => b.weight - a.weight);
			let reached = 0, count = 0;
			while (count < cells.length && reached < share * sum - 1e-6) reached += cells[count++].weight;
			cells.length = count;
		}
		kept.push(...cells);
	}
	return kept.sort((a, b) => a.weight - b.weight).slice(-most);
}

/** Layers that are asked for together, so that no answer has more values than the limit, those with `first` before the others. */
export function pages(layers, perLayer, limit, first = 0) {
	const number = Math.ceil(layers / Math.max(1, Math.floor(limit / perLayer))), size = Math.ceil(layers / number);
	const made = Array.from({ length: number }, (_, page) => Array.from({ length: Math.min(size, layers - page * size) }, (_, at) => page * size + at)).filter((page) => page.length);
	return made.sort((a, b) => b.includes(first) - a.includes(first));
}
