// The call of a screen as others would make it: curl, Python, JavaScript. Pure.

/** @typedef {{method?: string, path: string, body?: any, isStream?: boolean}} Call */

const shell = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
const indented = (value, by = 4) => JSON.stringify(value, null, 2).replaceAll("\n", `\n${" ".repeat(by)}`);
const NAMED = { true: "True", false: "False", null: "None" };

/** A value as Python writes it. @param {any} value @param {number} [by] spaces before further lines */
export const python = (value, by = 4) => indented(value, by).replace(/"(?:[^"\\]|\\.)*"|\b(?:true|false|null)\b/g, (each) => NAMED[each] ?? each);

/** @param {Call} call @param {string} base @param {boolean} hasToken */
export function curl({ method, path, body, isStream }, base, hasToken) {
  const parts = [`curl ${isStream ? "-N " : ""}${method && method !== "POST" ? `-X ${method} ` : ""}${base}/${path}`];
  if (hasToken) parts.push('-H "Authorization: Bearer $TOKEN"');
  if (isStream && path.startsWith("api/")) parts.push("-H 'Accept: text/event-stream'");
  if (body !== undefined) parts.push(`-d ${shell(JSON.stringify(body))}`);
  return parts.join(" \\\n  ");
}

/** With OpenAI's library for its paths, Triton's for /v2, and requests for the others. @param {Call} call @param {string} base @param {boolean} hasToken */
export function inPython({ method, path, body, isStream }, base, hasToken) {
  const token = hasToken ? ["import os", ""] : [];
  const [, kind] = path.match(/^v1\/(completions|chat\/completions|embeddings)$/) ?? [];
  if (kind) return [...token, "from openai import OpenAI", "", `client = OpenAI(base_url="${base}/v1", api_key=${hasToken ? 'os.environ["TOKEN"]' : '"none"'})`,
    `answer = client.${kind.replace("/", ".")}.create(`, ...openai(body), ")", ...(isStream ? ["for chunk in answer:", "    print(chunk)"] : ["print(answer)"])].join("\n");
  const [, model] = path.match(/^v2\/models\/([^/]+)(?:\/versions\/[^/]+)?\/infer$/) ?? [];
  if (model && body?.inputs && !hasToken) return ["import numpy as np", "from tritonclient.http import InferenceServerClient, InferInput", "", `client = InferenceServerClient("${base.replace(/^https?:\/\//, "")}"${base.startsWith("https") ? ", ssl=True" : ""})`,
    "inputs = []", `for each in ${python(body.inputs, 0)}:`, '    tensor = InferInput(each["name"], each["shape"], each["datatype"])',
    '    kinds = {"BYTES": np.object_, "BOOL": np.bool_, "FP64": np.float64, "FP32": np.float32, "FP16": np.float16}', '    kind = kinds.get(each["datatype"]) or each["datatype"].lower()',
    '    tensor.set_data_from_numpy(np.array(each["data"], dtype=kind).reshape(each["shape"]))', "    inputs.append(tensor)", `answer = client.infer("${decodeURIComponent(model)}", inputs)`,
    'for output in answer.get_response()["outputs"]:', '    print(output["name"], answer.as_numpy(output["name"]))'].join("\n");
  const given = [`"${base}/${path}"`, ...(body === undefined ? [] : [`json=${python(body)}`]), ...headersOf(path, isStream, hasToken), ...(isStream ? ["stream=True"] : [])];
  return [...token, "import requests", "", `answer = requests.${(method ?? (body === undefined ? "GET" : "POST")).toLowerCase()}(`, ...given.map((each) => `    ${each},`), ")",
    ...(isStream ? ["for line in answer.iter_lines():", "    print(line.decode())"] : ["print(answer.json())"])].join("\n");
}

function headersOf(path, isStream, hasToken) {
  const all = [...(hasToken ? [`"Authorization": f"Bearer {os.environ['TOKEN']}"`] : []), ...(isStream && path.startsWith("api/") ? ['"Accept": "text/event-stream"'] : [])];
  return all.length ? [`headers={${all.join(", ")}}`] : [];
}

// What OpenAI's library has no argument for goes through extra_body.
const OTHERS = /^(top_k|min_p|repetition_penalty|length_penalty|use_beam_search|stop_token_ids|allowed_token_ids|ignore_eos|min_tokens|priority|return_token_ids|return_tokens_as_token_ids|prompt_logprobs|truncate_prompt_tokens|add_generation_prompt)$/;
function openai(body) {
  const own = Object.entries(body).filter(([name]) => !OTHERS.test(name)), extra = Object.entries(body).filter(([name]) => OTHERS.test(name));
  return [...own, ...(extra.length ? [["extra_body", Object.fromEntries(extra)]] : [])].map(([name, value]) => `    ${name}=${python(value)},`);
}

/** @param {Call} call @param {string} base @param {boolean} hasToken */
export function inJavaScript({ method, path, body, isStream }, base, hasToken) {
  const headers = { ...(body !== undefined && { "content-type": "application/json" }), ...(isStream && path.startsWith("api/") && { accept: "text/event-stream" }) };
  const lines = [`  method: "${method ?? (body === undefined ? "GET" : "POST")}",`];
  const written = [...Object.entries(headers).map(([name, value]) => `${JSON.stringify(name)}: ${JSON.stringify(value)}`), ...(hasToken ? ["authorization: `Bearer ${process.env.TOKEN}`"] : [])];
  if (written.length) lines.push(`  headers: { ${written.join(", ")} },`);
  if (body !== undefined) lines.push(`  body: JSON.stringify(${indented(body, 2)}),`);
  return [`const response = await fetch("${base}/${path}", {`, ...lines, "});", ...(isStream ? ["for await (const piece of response.body.pipeThrough(new TextDecoderStream())) console.log(piece);"] : ["console.log(await response.json());"])].join("\n");
}
