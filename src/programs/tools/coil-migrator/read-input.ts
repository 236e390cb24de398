import { open } from "node:fs/promises";
import type { Readable } from "node:stream";
import { addAbortSignal } from "node:stream";
import { ConfigError } from "#base/config";
import { describeError } from "#base/errors";

/** An export has a few hundred bytes for each pod; a larger file is not an export. */
const MAX_INPUT_BYTES = 256 << 20;

/** The text of a file, or of standard input for `-`. Throws `ConfigError`. */
export async function readInput(path: string, signal: AbortSignal): Promise<string> {
  try {
    if (path === "-") return await readAll(process.stdin, "standard input", signal);
    await using file = await open(path, "r");
    return await readAll(file.createReadStream(), path, signal);
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof ConfigError || !(error instanceof Error && "syscall" in error)) throw error;
    throw new ConfigError("invalid-flags", [`--input-file: cannot read ${path}: ${describeError(error)}`]);
  }
}

/** The answer to a question: the first line of standard input, or an empty text if there is none. */
export async function askLine(question: string, signal: AbortSignal): Promise<string> {
  process.stderr.write(question);
  let text = "";
  for await (const chunk of addAbortSignal(signal, process.stdin.setEncoding("utf8"))) {
    text += String(chunk);
    if (text.includes("\n") || text.length > 100) break;
  }
  return text.split("\n")[0] ?? "";
}

async function readAll(stream: Readable, name: string, signal: AbortSignal): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of addAbortSignal(signal, stream)) {
    const bytes = Buffer.from(chunk as Uint8Array);
    chunks.push(bytes);
    length += bytes.length;
    if (length > MAX_INPUT_BYTES)
      throw new ConfigError("invalid-flags", [`--input-file: ${name} has more than ${MAX_INPUT_BYTES} bytes`]);
  }
  return Buffer.concat(chunks).toString("utf8");
}
