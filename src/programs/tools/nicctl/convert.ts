import { FileError } from "#base/file";
import { printable } from "#base/text";
import { type ConvertFault, type ConvertOptions, convertManifests } from "#features/nic";
import { readInput } from "../../shared/input/index.ts";
import { EXIT } from "../../shared/program/index.ts";

/** `nicctl convert`: writes the manifests of all files to standard output, or all their faults to standard error. Returns the exit code. */
export async function convert(names: readonly string[], options: ConvertOptions): Promise<number> {
  const texts: string[] = [];
  const faults: string[] = [];
  for (const name of new Set(names)) {
    let text: string;
    try {
      text = await readInput(name);
    } catch (error) {
      if (!(error instanceof FileError)) throw error;
      process.stderr.write(`nicctl convert: ${printable(error.message)}\n`);
      return EXIT.usage;
    }
    const result = convertManifests(text, options);
    if (result.ok) texts.push(result.text);
    else faults.push(...result.faults.map((fault) => lineOf(name, fault)));
  }
  if (faults.length > 0) {
    process.stderr.write(`${faults.map(printable).join("\n")}\n`);
    return EXIT.failed;
  }
  process.stdout.write(joined(texts, options));
  return EXIT.ok;
}

/** One stream of the texts of all files. */
function joined(texts: readonly string[], { output }: ConvertOptions): string {
  if (output === "json" || texts.length === 1) return texts.join("");
  // A file need not begin with the mark of a document, nor end with a line.
  return texts
    .map((text, at) => `${at > 0 && !text.startsWith("---") ? "---\n" : ""}${text}${text.endsWith("\n") ? "" : "\n"}`)
    .join("");
}

/** Such as `in.yaml:7: document 2: Pod/nginx: spec.nics[0].ip: Invalid value: …`; editors can open this place. */
function lineOf(file: string, { line, document, object, field, message }: ConvertFault): string {
  const parts = [`${file}:${line}`, `document ${document}`, object, field].filter((part) => part !== "");
  return `${parts.join(": ")}: ${message}`;
}
