import { FileError, readBounded } from "#base/file";

/** The maximum size of standard input, in bytes; the limit for files is the same. */
const MAX_INPUT_BYTES = 1 << 20;

/** The text of a file, or of standard input for the name `-`. Throws `FileError` if it cannot be read or has more than 1 MiB. */
export function readInput(name: string): Promise<string> {
  return name === "-" ? readStandardInput() : Promise.resolve().then(() => readBounded(name));
}

async function readStandardInput(): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of process.stdin as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > MAX_INPUT_BYTES) {
      throw new FileError("unreadable", `cannot read standard input: it has more than ${MAX_INPUT_BYTES} bytes`);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}
