// Comma-separated values (RFC 4180) of a table.

// A spreadsheet would run a text that begins like this: model text is not to be trusted there, either.
const FORMULA = /^[=+@\t\r]|^-(?![\d.])/;

export const writeCsv = (rows) => rows.map((row) => row.map((value) => {
	const text = typeof value === "string" && FORMULA.test(value) ? `'${value}` : String(value ?? "");
	return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}).join(",") + "\n").join("");
