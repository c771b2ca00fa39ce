// One session of a coding agent in a folder of its own: the model calls the shell, which writes a file.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const PROGRAMS = join(dirname(fileURLToPath(import.meta.url)), "node_modules", ".bin");
const LIMIT_MS = 200_000;

export function session(program, args, { variables = {}, files = {} } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "agent-"));
  try {
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
    const env = { ...process.env, HOME: folder, PWD: folder, CODEX_HOME: folder, IS_SANDBOX: "1", ...variables };
    const ended = spawnSync(join(PROGRAMS, program), args, {
      cwd: folder,
      env,
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe"],
      timeout: LIMIT_MS,
    });
    assert.equal(ended.status, 0, `${ended.error ?? ""} ${ended.stderr.slice(-300)} ${ended.stdout.slice(-300)}`);
    assert.ok(existsSync(join(folder, "proof.txt")), `the shell was not called: ${ended.stdout.slice(-300)}`);
    assert.equal(readFileSync(join(folder, "proof.txt"), "utf8").trim(), "the tool ran");
    assert.ok(ended.stdout.includes("The file is written."), ended.stdout.slice(-300));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
