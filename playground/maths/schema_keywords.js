// Keywords of JSON schema that the server holds no output to, and what the value of each other one has to be; tests/playground/test_schema_keywords.py compares them with the server.

export const REFUSED = "not if then else contains minContains maxContains uniqueItems propertyNames dependencies dependentRequired dependentSchemas unevaluatedItems unevaluatedProperties $dynamicRef $dynamicAnchor $recursiveRef $recursiveAnchor x-guidance".split(" ");
export const TYPES = "string number integer boolean object array null".split(" ");
const DEEPEST = 96, MOST = 3; // schemas within schemas, and marks that are shown

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value), isText = (value) => typeof value === "string";
const isNumber = (value) => typeof value === "number", isSchema = (value) => isObject(value) || typeof value === "boolean";
const isList = (of, least = 0) => (value) => Array.isArray(value) && value.length >= least && value.every(of);
const SCHEMA = ["a schema", isSchema], SCHEMAS = ["a list of schemas", isList(isSchema)], SOME = ["schemas, at least one", isList(isSchema, 1)];
const NAMED = ["an object of schemas", (value) => isObject(value) && Object.values(value).every(isSchema)], TEXT = ["a text", isText], NUMBER = ["a number", isNumber];
const COUNT = ["a whole number from 0", (value) => Number.isInteger(value) && value >= 0], BOUND = ["a number", (value) => isNumber(value) || typeof value === "boolean"]; // true in draft 4
const isType = (value) => TYPES.includes(value);

/** In words, and as a test. */
export const EXPECTED = {
	type: [`one of ${TYPES.join(", ")}, or a list`, (value) => isType(value) || isList(isType, 1)(value)], format: TEXT, // one that is not known is an annotation
	pattern: TEXT, $ref: TEXT, enum: ["values, at least one", isList(() => true, 1)], required: ["a list of texts", isList(isText)],
	properties: NAMED, patternProperties: NAMED, additionalProperties: SCHEMA, additionalItems: SCHEMA, allOf: SCHEMAS, anyOf: SOME, oneOf: SOME, prefixItems: SCHEMAS,
	items: ["a schema or a list of schemas", (value) => isSchema(value) || isList(isSchema)(value)],
	minimum: NUMBER, maximum: NUMBER, multipleOf: NUMBER, exclusiveMinimum: BOUND, exclusiveMaximum: BOUND,
	minLength: COUNT, maxLength: COUNT, minItems: COUNT, maxItems: COUNT, minProperties: COUNT, maxProperties: COUNT,
};

/** What the server does not take in a schema, with lines and places. @param text an object in JSON @returns "" where nothing is seen */
export function schemaMarks(text) {
	const lines = linesOf(text), marks = [];
	for (const [keyword, value, path] of keywordsOf(JSON.parse(text), [])) {
		const where = `Line ${lines.get(JSON.stringify([...path, keyword]))}: “${[...path, keyword].join(".")}”`;
		if (REFUSED.includes(keyword)) marks.push(`${where} is nothing that outputs can be held to.`);
		else if (Object.hasOwn(EXPECTED, keyword) && !EXPECTED[keyword][1](value)) marks.push(`${where} is ${JSON.stringify(value).slice(0, 40)}, expected ${EXPECTED[keyword][0]}.`);
	}
	return [...marks.slice(0, MOST), ...(marks.length > MOST ? [`And ${marks.length - MOST} more.`] : [])].join("\n");
}

/** Keyword, value and path in a schema and all within it. */
function* keywordsOf(schema, path) {
	if (!isObject(schema) || path.length > DEEPEST) return;
	for (const [keyword, value] of Object.entries(schema)) {
		if (keyword !== "format" || [schema.type ?? "string"].flat().includes("string")) yield [keyword, value, path]; // of numbers no format is read
		const words = Object.hasOwn(EXPECTED, keyword) ? EXPECTED[keyword][0] : "", inner = [...path, keyword], isListed = Array.isArray(value);
		const isNamed = words === NAMED[0] || keyword === "$defs" || keyword === "definitions";
		if (isListed ? words.includes("schemas") : isNamed && isObject(value)) for (const [name, each] of Object.entries(value)) yield* keywordsOf(each, [...inner, isListed ? Number(name) : name]);
		else if (words.startsWith(SCHEMA[0])) yield* keywordsOf(value, inner);
	}
}

/** The line of each key, by its path. */
function linesOf(text) {
	const lines = new Map(), stack = [];
	let line = 1;
	for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],\n]/g)) {
		const top = stack.at(-1);
		if (token === "\n") line += 1;
		else if ("{[".includes(token)) stack.push({ at: token === "{" ? null : 0 });
		else if ("}]".includes(token)) stack.pop();
		else if (token === ",") top.at = typeof top.at === "number" ? top.at + 1 : null;
		else if (top?.at === null) {
			top.at = JSON.parse(token);
			if (stack.length <= DEEPEST + 1) lines.set(JSON.stringify(stack.map(({ at }) => at)), line);
		}
	}
	return lines;
}
