import {
  ConfigError,
  choiceFlag,
  durationFlag,
  type Flag,
  type FlagValues,
  listFlag,
  optionalFlag,
  parsedFlag,
  stringFlag,
  switchFlag,
} from "#base/config";
import { CONVERT_TO, type VmRuntime } from "#features/nic";
import { kubeFlags } from "../../shared/daemon/index.ts";

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

const OUTPUTS = ["text", "yaml", "json"] as const;
/** The forms of output. */
export type Output = (typeof OUTPUTS)[number];

function parseOutput(text: string): Output {
  const found = OUTPUTS.find((one) => one === text);
  if (found === undefined) throw new ConfigError("invalid-value", [`"${text}" is not one of ${OUTPUTS.join(", ")}`]);
  return found;
}

/** The flags of `nicctl`. */
export const nicctlFlags = {
  filenames: short("f", listFlag("filename", "convert: a file with manifests; - is standard input", "FILE")),
  output: short(
    "o",
    parsedFlag(
      "output",
      parseOutput,
      "the form of the output. convert and cloud-init: yaml (default) or json; the others: text (default) or json",
      OUTPUTS.join("|"),
    ),
  ),
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
  namespace: short(
    "n",
    optionalFlag(
      "namespace",
      "the namespace of pods that are named without one, default: default; status without a pod shows only those of this namespace",
      "NAME",
    ),
  ),
  credentials: stringFlag(
    "credentials",
    "/etc/isthmus/clouds.yaml",
    "gc, doctor: the credentials of the providers, as nic-controller has them",
    "PATH",
  ),
  clusterId: optionalFlag(
    "cluster-id",
    "gc: the id of this cluster, as nic-controller has it; default: that of the NicClaims",
    "ID",
  ),
  minAge: durationFlag("min-age", "15m", "gc: a port is left alone until it has this age"),
  delete: switchFlag("delete", false, "gc: delete the ports, and do not only list them"),
  ...kubeFlags,
};

/** The values of the flags of `nicctl`. */
export type NicctlValues = FlagValues<typeof nicctlFlags>;
