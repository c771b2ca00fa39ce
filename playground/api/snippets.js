// The call of a screen as others would make it: curl, Python, JavaScript, gRPC. Pure.

const shell = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
const indented = (value, by = 4) => JSON.stringify(value, null, 2).replaceAll("\n", `\n${" ".repeat(by)}`);
const isEvents = ({ path, isStream }) => isStream && path.startsWith("api/");
const NAMED = { true: "True", false: "False", null: "None" };

/** A value as Python writes it. */
export const python = (value, by = 4) => indented(value, by).replace(/"(?:[^"\\]|\\.)*"|\b(?:true|false|null)\b/g, (each) => NAMED[each] ?? each);

export function curl({ method, path, body, isStream }, base, hasToken) {
	const parts = [`curl ${isStream ? "-N " : ""}${method && method !== "POST" ? `-X ${method} ` : ""}${base}/${path}`];
	if (hasToken) parts.push('-H "Authorization: Bearer $TOKEN"');
	if (isEvents({ path, isStream })) parts.push("-H 'Accept: text/event-stream'");
	if (body !== undefined) parts.push(`-d ${shell(JSON.stringify(body))}`);
	return parts.join(" \\\n  ");
}

export function inPython({ method, path, body, isStream }, base, hasToken) {
	const token = hasToken ? ["import os", ""] : [];
	const given = [`"${base}/${path}"`, ...(body === undefined ? [] : [`json=${python(body)}`]), ...headersOf({ path, isStream }, hasToken), ...(isStream ? ["stream=True"] : [])];
	return [...token, "import requests", "", `answer = requests.${(method ?? (body === undefined ? "GET" : "POST")).toLowerCase()}(`, ...given.map((each) => `    ${each},`), ")",
		...(isStream ? ["for line in answer.iter_lines():", "    print(line.decode())"] : ["print(answer.json())"])].join("\n");
}

function headersOf(call, hasToken) {
	const all = [hasToken && `"Authorization": f"Bearer {os.environ['TOKEN']}"`, isEvents(call) && '"Accept": "text/event-stream"'].filter(Boolean);
	return all.length ? [`headers={${all.join(", ")}}`] : [];
}

export function inJavaScript({ method, path, body, isStream }, base, hasToken) {
	const headers = { ...(body !== undefined && { "content-type": "application/json" }), ...(isEvents({ path, isStream }) && { accept: "text/event-stream" }) };
	const lines = [`  method: "${method ?? (body === undefined ? "GET" : "POST")}",`];
	const written = [...Object.entries(headers).map(([name, value]) => `${JSON.stringify(name)}: ${JSON.stringify(value)}`), ...(hasToken ? ["authorization: `Bearer ${process.env.TOKEN}`"] : [])];
	if (written.length) lines.push(`  headers: { ${written.join(", ")} },`);
	if (body !== undefined) lines.push(`  body: JSON.stringify(${indented(body, 2)}),`);
	return [`const response = await fetch("${base}/${path}", {`, ...lines, "});", ...(isStream ? ["for await (const piece of response.body.pipeThrough(new TextDecoderStream())) console.log(piece);"] : ["console.log(await response.json());"])].join("\n");
}

// The services of the typed API, by their methods.
const SERVICES = { Generation: /^Generate/, Reading: /^(FillMask|ClassifyTokens|Answer)$/, Feature: /^(ExtractFeatures|Similarity|Attend)$/, Vision: /Image$/, Text: /./ };

/** By grpcurl, which learns the messages from the server. */
export function inGrpc({ path, body }, base, hasToken) {
	const [, method] = path.match(/^api\/([A-Z]\w+)$/) ?? [], { protocol, hostname } = new URL(base);
	if (!method) return "This call has another form over gRPC: the documentation of the protocol has it.";
	const parts = [`grpcurl${protocol === "http:" ? " -plaintext" : ""}`, ...(hasToken ? ['-H "Authorization: Bearer $TOKEN"'] : []), `-d ${shell(JSON.stringify(body ?? {}))}`];
	const service = Object.keys(SERVICES).find((name) => SERVICES[name].test(method));
	return `# 8001 is the port of gRPC, unless --grpc-port is another one.\n${[...parts, `${hostname}:8001 attendant.v1.${service}Service/${method}`].join(" \\\n  ")}`;
}
