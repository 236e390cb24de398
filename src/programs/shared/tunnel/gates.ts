import { ConfigError, type Flag } from "#base/config";

/** The gate of the direction from nodes to the control plane (KEP-2025). */
export const CLUSTER_TO_MASTER = "EnableClusterToMasterTraffic";

/** The gates and their defaults. An alias is Konnectivity's name of a gate. */
const DEFAULTS: Readonly<Record<string, boolean>> = { [CLUSTER_TO_MASTER]: false };
const ALIASES: Readonly<Record<string, string>> = { NodeToMasterTraffic: CLUSTER_TO_MASTER };

export type Gates = Readonly<Record<string, boolean>>;

/** `--feature-gates=Name=true[,Name=false]` (docs/spec/tunnel.md#9.2). */
export const gatesFlag: Flag<Gates> = {
  name: "feature-gates",
  help: `feature gates, NAME=true or NAME=false: ${CLUSTER_TO_MASTER} (alpha, default false; alias NodeToMasterTraffic)`,
  placeholder: "NAME=BOOL,...",
  defaultText: undefined,
  initial: DEFAULTS,
  parse: (text, before) => ({ ...before, ...parseGates(text) }),
};

function parseGates(text: string): Gates {
  const pairs = text.split(",").filter((pair) => pair.trim() !== "");
  return Object.fromEntries(pairs.map(parseGate));
}

function parseGate(pair: string): readonly [string, boolean] {
  const at = pair.indexOf("=");
  const [name, value] = at < 0 ? ["", ""] : [pair.slice(0, at).trim(), pair.slice(at + 1).trim()];
  const gate = Object.hasOwn(ALIASES, name) ? (ALIASES[name] ?? name) : name;
  if (!Object.hasOwn(DEFAULTS, gate)) {
    const known = [...Object.keys(DEFAULTS), ...Object.keys(ALIASES)].join(", ");
    throw new ConfigError("invalid-value", [`"${pair}" names no feature gate; there are ${known}`]);
  }
  if (/^(1|t|T|true|TRUE|True)$/.test(value)) return [gate, true];
  if (/^(0|f|F|false|FALSE|False)$/.test(value)) return [gate, false];
  throw new ConfigError("invalid-value", [`"${pair}" is neither true nor false; an example is ${gate}=true`]);
}
