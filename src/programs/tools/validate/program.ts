import { ConfigError, switchFlag } from "#base/config";
import { FileError } from "#base/file";
import { printable } from "#base/text";
import { readInput } from "../../shared/input/index.ts";
import { defineProgram, EXIT } from "../../shared/program/index.ts";
import { checkManifests, type ManifestFault, type ManifestFile, type ManifestReport } from "./manifests.ts";

const flags = {
  json: switchFlag("json", false, "print one JSON object"),
  strict: switchFlag("strict", false, "report an object of an unchecked kind as a fault"),
  dualStack: switchFlag(
    "dual-stack",
    false,
    "the cluster's pods have both families: warn of an Egress without destinations of both",
  ),
};

/** `isthmus validate`: the rules of the webhooks and the CRDs, without a cluster. */
export const validate = defineProgram({
  name: "validate",
  summary: "Checks AddressPools, Egresses and other objects of Coil in files, as the webhooks would.",
  words: { usage: "FILE...", max: Number.POSITIVE_INFINITY },
  flags,
  notes: [
    "A FILE is YAML or JSON with any number of documents; - is standard input. A file has at most 1 MiB.",
    "Objects are checked as if they were created now, and pools are also compared with each other: pass all pools of a cluster in one call. Other kinds are skipped and counted.",
    "Exit code: 0 without faults, 1 with faults, 2 if the command line is wrong or a file cannot be read.",
  ],
  run: async ({ values, words }) => {
    if (words.length === 0)
      throw new ConfigError("invalid-flags", ["FILE: give at least one file, or - for standard input"]);
    const files: ManifestFile[] = [];
    try {
      for (const name of new Set(words)) {
        files.push({ name, text: await readInput(name) });
      }
    } catch (error) {
      if (!(error instanceof FileError)) throw error;
      process.stderr.write(`isthmus validate: ${printable(error.message)}\n`);
      return EXIT.usage;
    }
    const report = checkManifests(files, { strict: values.strict, dualStack: values.dualStack });
    const ok = report.faults.length === 0;
    process.stdout.write(values.json ? `${JSON.stringify({ ok, ...report })}\n` : render(report));
    return ok ? EXIT.ok : EXIT.failed;
  },
});

function render({ faults, warnings, checked, skipped }: ManifestReport): string {
  const lines = [...faults.map((fault) => lineOf(fault, "")), ...warnings.map((one) => lineOf(one, "warning: "))];
  const sum = `${faults.length === 0 ? "no faults" : `${faults.length} faults`} in ${checked} objects, ${skipped} objects of other kinds skipped`;
  return `${[...lines, sum].join("\n")}\n`;
}

/** Such as `pools.yaml:7: document 2: AddressPool/default: spec.subnets[0].ipv4: Invalid value: …`; editors can open this place. */
function lineOf({ file, line, document, object, field, message }: ManifestFault, kind: string): string {
  const parts = [`${file}:${line}`, `document ${document}`, object, field].filter((part) => part !== "");
  return printable(`${parts.join(": ")}: ${kind}${message}`);
}
