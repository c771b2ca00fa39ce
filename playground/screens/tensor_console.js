// A form made from a model's metadata, which sends any tensors.

import { ApiError } from "../api/client.js";
import { plural } from "../maths/numbers.js";
import * as controls from "../parts/controls.js";
import { fill, h, table } from "../parts/page.js";
import { heatMap } from "../parts/heat_map.js";

const MOST_SHOWN = 512, MOST_SIDE = 128;

export function tensorConsole(screen, path, metadata, config, model) {
	const isOptional = (name) => config?.input?.find((input) => input.name === name)?.optional, result = h("div.stack");
	const inputs = metadata.inputs.map(({ name, datatype, shape }) => {
		const title = `${name} (${datatype}${isOptional(name) ? ", optional" : ""})`, isText = datatype === "BYTES" && !isOptional(name);
		return { name, datatype, shape: controls.text(`${name}-shape`, { label: `Shape of ${name}`, rows: 1, value: shape.map((size) => (size < 0 ? 1 : size)).join(", ") }),
			data: controls.text(`${name}-data`, { label: title, rows: 2, isCode: true, value: isText ? JSON.stringify([model?.example ?? "text"]) : "", placeholder: isOptional(name) ? "Left out" : "[1, 2, 3]" }) };
	});

	/** Says at a field of an input what is wrong there. @returns for the whole form */
	function fault(input, field, text) {
		input[field].error(text);
		input[field].focus();
		return new ApiError(400, `${input.name} is not as the model takes it.`);
	}

	function read(input) {
		const { name, datatype } = input, shape = input.shape.value.split(",").map((size) => (size.trim() ? Number(size) : NaN));
		let data;
		try {
			data = JSON.parse(input.data.value).flat(Infinity);
		} catch { throw fault(input, "data", "Expected a list as JSON has it."); }
		if (!shape.every((size) => Number.isInteger(size) && size >= 0)) throw fault(input, "shape", "Expected whole numbers with commas between them.");
		const room = shape.reduce((product, size) => product * size, 1);
		if (room !== data.length) throw fault(input, "shape", `The shape has room for ${plural(room, "value")}, and the data ${data.length === 1 ? "is" : "are"} ${data.length}.`);
		return { name, datatype, shape, data };
	}

	async function send({ call }) {
		for (const { shape, data } of inputs) [shape, data].forEach((field) => field.error(""));
		const body = { inputs: inputs.filter(({ data }) => data.value.trim()).map(read) };
		try {
			fill(result, (await call(path, body)).outputs.map(output));
		} catch (error) {
			const about = inputs.find(({ name }) => error.message.includes(`'${name}'`));
			throw about ? fault(about, /shape|dimension|batch size/.test(error.message) ? "shape" : "data", error.message.replace(/^\[request id: .*?\] | NOTE: .*/g, "")) : error;
		}
	}

	const line = h("div"), panel = h("div.stack", inputs.map(({ shape, data }) => h("div.fields", data.element, shape.element)), line, result);
	screen.action(send, { label: "Send", into: line });
	screen.runButton.type = "button";
	screen.runButton.addEventListener("click", () => screen.run());
	return panel;
}

function output({ name, datatype, shape, data }) {
	const text = JSON.stringify(data.slice(0, MOST_SHOWN)), columns = shape.at(-1), rows = data.length / columns, isMap = rows > 1 && columns > 1 && rows <= MOST_SIDE && columns <= MOST_SIDE && datatype.startsWith("FP");
	const numbers = (size) => Array.from({ length: size }, (_, index) => String(index));
	return h("section.stack", table(["Output", "Type", "Shape", "Values"], [[name, datatype, `[${shape.join(", ")}]`, data.length]], { caption: name }),
		isMap ? heatMap({ label: name, values: data.map(Number), rows: numbers(rows), columns: numbers(columns), isSigned: true, cell: 20 }) : null,
		h("pre.code", { tabIndex: 0, label: `Values of ${name}` }, data.length > MOST_SHOWN ? `${text.slice(0, -1)}, … ${data.length - MOST_SHOWN} more]` : text));
}
