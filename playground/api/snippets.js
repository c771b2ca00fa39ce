// The call of a screen as others would make it: curl, Python, JavaScript, gRPC. Pure.

const shell = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
const indented = (value, by = 4) => JSON.stringify(value, null, 2).replaceAll("\n", `\n${" ".repeat(by)}`);
const isEvents = ({ path, isStream }) => isStream && path.startsWith("api/");
const NAMED = { true: "True", false: "False", null: "None" };

/** A value as Python writes it. @param [by] spaces before further lines */
export const python = (value, by = 4) => indented(value, by).replace(/"(?:[^"\\]|\\.)*"|\b(?:true|false|null)\b/g, (each) => NAMED[each] ?? each);

export function curl({ method, path, body, isStream }, base, hasToken) {
	const parts = [`curl ${isStream ? "-N " : ""}${method && method !== "POST" ? `-X ${method} ` : ""}${base}/${path}`];
	if (hasToken) parts.push('-H "Authorization: Bearer $TOKEN"');
	if (isEvents({ path, isStream })) parts.push("-H 'Accept: text/event-stream'");
	if (body !== undefined) parts.push(`-d ${shell(JSON.stringify(body))}`);
	return parts.join(" \\\n  ");
}

/** With OpenAI's library for its paths, Cohere's for rankings, Triton's for /v2, and requests for the others. */
export function inPython({ method, path, body, isStream }, base, hasToken) {
	const token = hasToken ? ["import os", ""] : [];
	const [kind, alike] = ofOpenai({ path, body, isStream });
	if (kind) return [...token, "from openai import OpenAI", "", `client = OpenAI(base_url="${base}/v1", api_key=${hasToken ? 'os.environ["TOKEN"]' : '"none"'})`,
		`answer = client.${kind.replace("/", ".")}.create(`, ...openai(alike), ")", ...(alike.stream ? ["for chunk in answer:", "    print(chunk)"] : ["print(answer)"])].join("\n");
	if (path === "api/Rerank" && Object.keys(body).every((name) => COHERE.has(name))) return [...token, "import cohere", "", `client = cohere.ClientV2(base_url="${base}", api_key=${hasToken ? 'os.environ["TOKEN"]' : '"none"'})`,
		"answer = client.rerank(", ...openai(body), ")", "for each in answer.results:", "    print(each.index, each.relevance_score)"].join("\n");
	const [, model] = path.match(/^v2\/models\/([^/]+)(?:\/versions\/[^/]+)?\/infer$/) ?? [];
	if (model && body?.inputs && !hasToken) return ["import numpy as np", "from tritonclient.http import InferenceServerClient, InferInput", "from tritonclient.utils import triton_to_np_dtype", "", `client = InferenceServerClient("${base.replace(/^https?:\/\//, "")}"${base.startsWith("https") ? ", ssl=True" : ""})`,
		"inputs = []", `for each in ${python(body.inputs, 0)}:`, '    tensor = InferInput(each["name"], each["shape"], each["datatype"])',
		'    tensor.set_data_from_numpy(np.array(each["data"], dtype=triton_to_np_dtype(each["datatype"])).reshape(each["shape"]))', "    inputs.append(tensor)", `answer = client.infer("${decodeURIComponent(model)}", inputs)`,
		'for output in answer.get_response()["outputs"]:', '    print(output["name"], answer.as_numpy(output["name"]))'].join("\n");
	const given = [`"${base}/${path}"`, ...(body === undefined ? [] : [`json=${python(body)}`]), ...headersOf({ path, isStream }, hasToken), ...(isStream ? ["stream=True"] : [])];
	return [...token, "import requests", "", `answer = requests.${(method ?? (body === undefined ? "GET" : "POST")).toLowerCase()}(`, ...given.map((each) => `    ${each},`), ")",
		...(isStream ? ["for line in answer.iter_lines():", "    print(line.decode())"] : ["print(answer.json())"])].join("\n");
}

const COHERE = new Set(["model", "query", "documents", "top_n"]);

function headersOf(call, hasToken) {
	const all = [hasToken && `"Authorization": f"Bearer {os.environ['TOKEN']}"`, isEvents(call) && '"Accept": "text/event-stream"'].filter(Boolean);
	return all.length ? [`headers={${all.join(", ")}}`] : [];
}

/** The same call by OpenAI's API, where it has one: `completions`, `chat/completions` or `embeddings`, and the body. */
function ofOpenai({ path, body, isStream }) {
	const [, own] = path.match(/^v1\/(completions|chat\/completions|embeddings)$/) ?? [];
	if (own) return [own, body];
	if (path === "api/Embed" && Object.keys(body).every((name) => EMBEDDED.has(name))) return ["embeddings", { model: body.model, input: body.texts, ...(body.dimensions && { dimensions: body.dimensions }), ...(body.prompt_name && { prompt_name: body.prompt_name }) }];
	const { model, text, token_ids: tokens, conversation, sampling_params: { logprobs, stop, fit_max_tokens: _, json_schema: schema, regex, choice, lark, max_reasoning_tokens: budget, ...params } = {} } = body ?? {};
	if (!/^api\/Generate/.test(path) || params.max_tokens === 0 || params.beam_width || Object.keys(conversation ?? {}).some((name) => !["messages", "template_variables"].includes(name))) return [];
	const [kind, given] = conversation ? ["chat/completions", { messages: conversation.messages, ...(conversation.template_variables && { chat_template_kwargs: JSON.parse(conversation.template_variables) }), ...(budget !== undefined && { thinking_token_budget: budget }), ...(logprobs && { logprobs: true, top_logprobs: Math.min(20, logprobs) }) }]
		: ["completions", { prompt: tokens?.ids ?? text, ...(logprobs && { logprobs: Math.min(5, logprobs) }) }]; // the most that it takes
	return [kind, { model, ...given, ...params, ...formIn(kind, { json: schema && JSON.parse(schema), regex, choice: choice?.texts, grammar: lark }), ...(stop?.length && { stop }), ...(isStream && { stream: true }) }];
}

/** The form of the output: OpenAI's field for a schema in a chat, else vLLM's. */
function formIn(kind, forms) {
	const given = Object.fromEntries(Object.entries(forms).filter(([, value]) => value));
	if (kind === "chat/completions" && given.json) return { response_format: { type: "json_schema", json_schema: { name: "answer", schema: given.json } } };
	return Object.keys(given).length ? { structured_outputs: given } : {};
}

const EMBEDDED = new Set(["model", "texts", "dimensions", "prompt_name"]);

// What OpenAI's library has no argument for goes through extra_body.
const OTHERS = /^(top_k|min_p|repetition_penalty|length_penalty|use_beam_search|stop_token_ids|allowed_token_ids|ignore_eos|min_tokens|priority|return_token_ids|return_tokens_as_token_ids|prompt_logprobs|truncate_prompt_tokens|add_generation_prompt|prompt_name|structured_outputs|chat_template_kwargs|thinking_token_budget)$/;
function openai(body) {
	const own = Object.entries(body).filter(([name]) => !OTHERS.test(name)), extra = Object.entries(body).filter(([name]) => OTHERS.test(name));
	return [...own, ...(extra.length ? [["extra_body", Object.fromEntries(extra)]] : [])].map(([name, value]) => `    ${name}=${python(value)},`);
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
