// Tensors as the Open Inference Protocol has them in binary: a JSON header, then the bytes of each, little-endian. Pure.

const KINDS = { UINT8: Uint8Array, UINT16: Uint16Array, UINT32: Uint32Array, UINT64: BigUint64Array, INT8: Int8Array, INT16: Int16Array, INT32: Int32Array, INT64: BigInt64Array, FP32: Float32Array, FP64: Float64Array, BOOL: Uint8Array };
const isBig = (datatype) => datatype.endsWith("INT64");

/** @param values flat */
export function toBytes(datatype, values) {
	if (datatype !== "BYTES") {
		const Kind = KINDS[datatype];
		if (!Kind) throw new Error(`${datatype} cannot be written here`);
		return new Uint8Array(Kind.from(values, (value) => (isBig(datatype) ? BigInt(value) : Number(value))).buffer);
	}
	return joined(values.flatMap((value) => {
		const text = new TextEncoder().encode(String(value)), length = new Uint8Array(4);
		new DataView(length.buffer).setUint32(0, text.length, true);
		return [length, text];
	}));
}

export function fromBytes(datatype, bytes) {
	if (datatype === "BYTES") {
		const all = [], view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
		for (let at = 0; at < bytes.length;) {
			const length = view.getUint32(at, true);
			all.push(new TextDecoder().decode(bytes.subarray(at + 4, at + 4 + length)));
			at += 4 + length;
		}
		return all;
	}
	const Kind = KINDS[datatype];
	if (!Kind) throw new Error(`${datatype} cannot be read here`);
	return Array.from(new Kind(bytes.slice().buffer), (value) => (datatype === "BOOL" ? !!value : isBig(datatype) ? String(value) : value));
}

/** The body of a request with all inputs in binary, and the length of its header. @param request its inputs have `data` */
export function pack({ inputs, ...others }) {
	const parts = inputs.map(({ datatype, data }) => toBytes(datatype, data));
	const listed = inputs.map(({ data: _, ...input }, index) => ({ ...input, parameters: { binary_data_size: parts[index].length } }));
	const header = new TextEncoder().encode(JSON.stringify({ ...others, inputs: listed, parameters: { binary_data_output: true } }));
	return { body: joined([header, ...parts]), length: header.length };
}

/** The answer that such bytes are, with `data` in each output. @param length of the header */
export function unpack(bytes, length) {
	const answer = JSON.parse(new TextDecoder().decode(bytes.subarray(0, length)));
	let at = length;
	for (const output of answer.outputs) {
		const size = output.parameters?.binary_data_size;
		if (size === undefined) continue;
		output.data = fromBytes(output.datatype, bytes.subarray(at, at + size));
		at += size;
	}
	return answer;
}

function joined(parts) {
	const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
	parts.reduce((at, part) => (all.set(part, at), at + part.length), 0);
	return all;
}
