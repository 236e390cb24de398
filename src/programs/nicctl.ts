import { ConfigError, choiceFlag, type Flag, listFlag, parsedFlag } from "#base/config";
import { CONVERT_TO, type VmRuntime } from "#features/nic";
import { convert } from "./nicctl/convert.ts";
import { defineProgram } from "./program/index.ts";

/** A flag with a name of one letter, as kubectl has it. */
function short<T>(letter: string, flag: Flag<T>): Flag<T> {
  return { ...flag, aliases: [letter], help: `${flag.help}; short: -${letter}` };
}

function parseRuntime(text: string): VmRuntime {
  if (text === "virtlet") return { kind: "virtlet" };
  const [, name] = /^class:([a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?)$/.exec(text) ?? [];
  if (name !== undefined) return { kind: "class", name };
  throw new ConfigError("invalid-value", [
    `"${text}" is neither virtlet nor class:NAME with the name of a RuntimeClass`,
  ]);
}

const flags = {
  filenames: short("f", listFlag("filename", "convert: a file with manifests; - is standard input", "FILE")),
  output: short("o", choiceFlag("output", ["yaml", "json"], "yaml", "convert: the form of the output")),
  to: choiceFlag(
    "to",
    CONVERT_TO,
    "kubernetes",
    "convert: the manifests that are made: for a Kubernetes API server, or with the fields of Arktos",
  ),
  vmRuntime: parsedFlag(
    "vm-runtime",
    parseRuntime,
    "convert: how pods with virtual machines find their runtime: by Virtlet's annotation and image names, or by a RuntimeClass. Default: they get neither",
    "virtlet|class:NAME",
  ),
};

/** `nicctl`: NICs of a VPC for pods, from the command line. */
export const nicctl = defineProgram({
  name: "nicctl",
  summary:
    "Converts manifests of Arktos, whose pods have a VPC and NICs, to manifests that a Kubernetes API server accepts, and back.",
  words: { usage: "convert", max: 1 },
  flags,
  notes: [
    "convert: pods, and workloads with a template of pods, get their VPC, NICs and virtual machine as annotations. Documents in which nothing is to be changed pass through byte for byte. Output in JSON is one JSON value for each document.",
    "convert checks the VPC and the NICs. With a fault it prints all faults with document and line, and no manifests. Files have at most 1 MiB.",
    "A server that gets manifests which were not converted may drop their fields silently, and the pods run outside of their VPC: label such namespaces isthmus.dev/require-vpc=true.",
    "Exit code: 0 when it converted, 1 with faults, 2 if the command line is wrong or a file cannot be read.",
  ],
  run: async ({ values, words }) => {
    if (words[0] !== "convert") throw new ConfigError("invalid-flags", [commandFault(words[0])]);
    const { filenames, output, to, vmRuntime = { kind: "none" } } = values;
    if (filenames.length === 0)
      throw new ConfigError("invalid-flags", ["--filename: give a file, or - for standard input"]);
    return convert(filenames, { output, to, vmRuntime });
  },
});

function commandFault(word: string | undefined): string {
  return word === undefined ? "a command is needed: convert" : `there is no command "${word}": the command is convert`;
}
