// Texts out of pasted lines, or of comma- or tab-separated values (RFC 4180).

/** @returns rows; quoted fields may have commas and line breaks */
export function parseCsv(text, comma = ",") {
	const rows = [[]];
	let field = "", isQuoted = false;
	const end = () => { rows.at(-1).push(field); field = ""; };
	for (let at = 0; at < text.length; at++) {
		const each = text[at];
		if (isQuoted) {
			if (each !== '"') field += each;
			else if (text[at + 1] === '"') field += text[++at];
			else isQuoted = false;
		} else if (each === '"' && !field) isQuoted = true;
		else if (each === comma) end();
		else if (each === "\n") { end(); rows.push([]); }
		else if (each !== "\r") field += each;
	}
	end();
	return rows.filter((row) => row.some((value) => value.trim()));
}

/** A text for each row: the column named `text` where the first line names columns, the first of quoted fields, else the line. */
export function textsOf(pasted) {
	const rows = parseCsv(pasted, pasted.includes("\t") ? "\t" : ","), column = rows[0]?.findIndex((name) => /^(text|sentence|message)$/i.test(name.trim())) ?? -1;
	if (column >= 0) return rows.slice(1).map((row) => row[column] ?? "").filter((value) => value.trim());
	return /^\s*"/.test(pasted) ? rows.map((row) => row[0]) : pasted.split(/\r?\n/).filter((line) => line.trim());
}
