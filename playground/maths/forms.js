// Forms of outputs: what can be seen to be wrong with one before it is sent, and with an output of it.

/** What is wrong with a form; "" of one that only the server can judge. @param kind of SamplingParams */
export function faultOf(kind, text) {
	if (!kind) return "";
	if (!text.trim()) return "Write the form that the output shall have.";
	if (kind === "json_schema") {
		const [schema, fault] = parsed(text);
		return fault ? `This is no JSON: ${fault}` : isObject(schema) ? "" : "A schema is an object, in braces.";
	}
	if (kind === "regex" && /\(\?<?[=!]/.test(text)) return "Look-around cannot be kept to: leave out (?=, (?!, (?<= and (?<!.";
	return "";
}

/** What an output lacks of its form, as far as this page can see; "" of one that lacks nothing. */
export function lackOf(kind, form, output) {
	if (kind === "choice") return listed(form).includes(output) ? "" : "it is none of the texts";
	if (kind === "regex") {
		try { return new RegExp(`^(?:${form})$`, "su").test(output) ? "" : "the expression does not match all of it"; } catch { return ""; } // written otherwise than the browser reads them
	}
	if (kind !== "json_schema") return "";
	const [value, fault] = parsed(output);
	return fault ? `it is no JSON: ${fault}` : missing(parsed(form)[0], value, "");
}

/** The texts of a choice, one a line. */
export const listed = (text) => text.split("\n").filter(Boolean);

/** The value of JSON, and why there is none. */
function parsed(text) {
	try { return [JSON.parse(text), ""]; } catch (error) { return [undefined, error.message]; }
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** The first required key that a value lacks, at any depth that properties and items lead to. */
function missing(schema, value, path) {
	if (!isObject(schema)) return "";
	if (Array.isArray(value)) return value.map((each, index) => missing(schema.items, each, `${path}[${index}]`)).find(Boolean) ?? "";
	if (!isObject(value)) return schema.type === "object" ? `${path || "it"} is no object` : "";
	const key = (schema.required ?? []).find((each) => !Object.hasOwn(value, each));
	if (key !== undefined) return `${path || "it"} has no “${key}”`;
	return Object.entries(schema.properties ?? {}).map(([name, inner]) => (Object.hasOwn(value, name) ? missing(inner, value[name], path ? `${path}.${name}` : name) : "")).find(Boolean) ?? "";
}
