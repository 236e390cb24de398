import { ConfigError } from "#base/config";
import { defineProgram } from "../../shared/program/index.ts";
import { convert } from "./convert.ts";
import { nicctlFlags as flags, type NicctlValues, type Output } from "./flags.ts";

interface Command {
  /** The words after the command. */
  readonly usage: string;
  readonly minWords: number;
  readonly maxWords: number;
  readonly outputs: readonly Output[];
  readonly run: (
    words: readonly string[],
    context: { readonly values: NicctlValues; readonly output: Output; readonly signal: AbortSignal },
  ) => Promise<number>;
}

/** Pods of one command line. */
const MAX_PODS = 1000;

/** Commands with a cluster load its client, and those with providers theirs; convert needs none of them. */
const COMMANDS: Readonly<Record<string, Command>> = {
  convert: {
    usage: "",
    minWords: 0,
    maxWords: 0,
    outputs: ["yaml", "json"],
    run: async (_words, { values, output }) => {
      const { filenames, to, vmRuntime = { kind: "none" } } = values;
      if (filenames.length === 0)
        throw new ConfigError("invalid-flags", ["--filename: give a file, or - for standard input"]);
      return convert(filenames, { output: output === "json" ? "json" : "yaml", to, vmRuntime });
    },
  },
  status: {
    usage: "[POD]...",
    minWords: 0,
    maxWords: MAX_PODS,
    outputs: ["text", "json"],
    run: async (words, context) => (await import("./status.ts")).status(words, context),
  },
  trace: {
    usage: "POD",
    minWords: 1,
    maxWords: 1,
    outputs: ["text", "json"],
    run: async (words, context) => (await import("./trace.ts")).trace(words, context),
  },
  "cloud-init": {
    usage: "POD",
    minWords: 1,
    maxWords: 1,
    outputs: ["yaml", "json"],
    run: async (words, context) => (await import("./cloud-init.ts")).cloudInit(words, context),
  },
  gc: {
    usage: "",
    minWords: 0,
    maxWords: 0,
    outputs: ["text", "json"],
    run: async (words, context) => (await import("./gc.ts")).collectGarbage(words, context),
  },
  doctor: {
    usage: "",
    minWords: 0,
    maxWords: 0,
    outputs: ["text", "json"],
    run: async (words, context) => (await import("./doctor.ts")).doctor(words, context),
  },
};
const NAMES = Object.keys(COMMANDS).join(", ");

/** `nicctl`: NICs of a VPC for pods, from the command line. */
export const nicctl = defineProgram({
  name: "nicctl",
  summary:
    "Shows the NICs of pods, where each of them stands, and what is wrong with a cloud; finds ports that nobody uses; converts manifests of Arktos to Kubernetes and back.",
  words: {
    usage: Object.entries(COMMANDS)
      .map(([name, { usage }]) => `${name} ${usage}`.trim())
      .join(" | "),
    max: MAX_PODS + 1,
  },
  flags,
  notes: [
    "POD is NAME or NAMESPACE/NAME.",
    "status: one line for each NIC: claim, port, addresses, node, and the reason where it is not ready.",
    "trace: the story of a pod's NICs: wish, admission, NicClaim, port, node, binding, plugging, activity, with times, and what can be done about the step at which one stands.",
    "cloud-init: the network configuration (version 2) for the guest of a virtual machine.",
    "gc: ports that nic-controller has made for this cluster and that belong to no NicClaim and no pod, by the rules of the controller: in two looks in a row, and a live one. It lists them, at most 50; with --delete it deletes them. Ports of users and of other clusters are never among them.",
    "doctor: providers and their credentials, extensions, VPCs, quota; an agent that is alive for each Node; policy, webhooks and their certificate, the controller's Lease, nic-agent of each node. What is wrong on one node tells isthmus doctor there.",
    "gc and doctor read the credentials of nic-controller: run them where those are, never on a node. No secret is printed.",
    "convert: pods, and workloads with a template of pods, get their VPC, NICs and virtual machine as annotations. Documents in which nothing is to be changed pass through byte for byte. Output in JSON is one JSON value for each document.",
    "convert checks the VPC and the NICs. With a fault it prints all faults with document and line, and no manifests. Files have at most 1 MiB.",
    "A server that gets manifests which were not converted may drop their fields silently, and the pods run outside of their VPC: label such namespaces isthmus.dev/require-vpc=true.",
    "Exit code: 0 when it is done; 1 with faults, when a named pod does not exist or has no NICs, when the doctor finds something wrong, or when API server or provider do not answer; 2 if the command line is wrong or a file cannot be read.",
  ],
  run: async ({ values, words: [name, ...words], signal }) => {
    const command = name === undefined || !Object.hasOwn(COMMANDS, name) ? undefined : COMMANDS[name];
    if (command === undefined) throw new ConfigError("invalid-flags", [commandFault(name)]);
    if (words.length < command.minWords || words.length > command.maxWords)
      throw new ConfigError("invalid-flags", [`usage: nicctl ${name} ${command.usage}`.trimEnd()]);
    const [first = "text"] = command.outputs;
    const { output = first } = values;
    if (!command.outputs.includes(output))
      throw new ConfigError("invalid-flags", [`--output: "${output}" is not one of ${command.outputs.join(", ")}`]);
    return command.run(words, { values, output, signal });
  },
});

function commandFault(word: string | undefined): string {
  return word === undefined
    ? `a command is needed: ${NAMES}`
    : `there is no command "${word}": the commands are ${NAMES}`;
}
