import { flagOf, type SuiteCommand } from "../programs.ts";
import { type FaultCheck, judged } from "./faults.ts";
import type { CniFile, NodeFacts } from "./node-facts.ts";

/** Plugins of the suite, and the daemons that serve them. */
export const DAEMONS: Readonly<Record<string, { readonly program: string; readonly socket: string }>> = {
  coil: { program: "coild", socket: "/run/coild.sock" },
  "vpc-neutron": { program: "nic-agent", socket: "/run/isthmus/vpc.sock" },
  "vpc-alcor": { program: "nic-agent", socket: "/run/isthmus/vpc.sock" },
};

/** Plugins that call the network of others, which their configuration need not show. */
const META_PLUGINS: ReadonlySet<string> = new Set(["multus", "multus-shim"]);

const NOT_MOUNTED =
  "is not mounted in this pod: run isthmus doctor on the node, or mount the node's folder at this path";

/** Returns true if a configuration names a plugin of the suite. */
export const isOurs = ({ plugins }: CniFile): boolean => plugins.some(({ type }) => Object.hasOwn(DAEMONS, type));

/** The process of a program on this node; `undefined` if none runs. */
export const runs = ({ processes }: NodeFacts, program: string): SuiteCommand | undefined =>
  processes.find((one) => one.program === program);

/** Returns true if pods of this node get their network from the suite: by a daemon that runs, or by the configuration. */
export function hasPodNetwork(facts: Pick<NodeFacts, "processes" | "cni">): boolean {
  const isRun = facts.processes.some(({ program }) => program === "coild" || program === "nic-agent");
  return isRun || ("value" in facts.cni && facts.cni.value.some(isOurs));
}

/** The runtime uses the first configuration, which must be the suite's. */
export function cniOrder(facts: NodeFacts): readonly FaultCheck[] {
  if (!hasPodNetwork(facts)) return [];
  const { ok, wrong, warning, unknown } = judged("cni-order", facts.cniDir);
  const install = "run coil-installer with CNI_NETCONF";
  if (facts.notMounted.includes(facts.cniDir)) return [unknown(NOT_MOUNTED)];
  if ("fault" in facts.cni) return [warning(`cannot be read: ${facts.cni.fault}`, install)];
  const [first] = facts.cni.value;
  const own = facts.cni.value.find(isOurs);
  if (own === undefined) {
    const now = first === undefined ? "" : `; the runtime uses ${first.file} (${typesOf(first)})`;
    return [wrong(`no configuration names a plugin of the suite: pods get no network of it${now}`, install)];
  }
  if (own.fault !== undefined) return [wrong(`${own.file} cannot be used: ${own.fault}`, install)];
  if (first === undefined || first === own) return [ok(`${own.file} is the first configuration`)];
  if (first.plugins.some(({ type }) => META_PLUGINS.has(type)))
    return [unknown(`${first.file} comes first and is of Multus, which calls what its clusterNetwork names`)];
  const other = `${facts.cniDir}/${first.file}`;
  const text = `${first.file} comes before ${own.file}, so the runtime uses it, and new pods get its network`;
  return [wrong(text, `mv ${other} ${other}.disabled`)];
}

const typesOf = ({ plugins }: CniFile): string => plugins.map(({ type }) => type).join(", ") || "no plugin";

/** CNI executables can be run. */
export function executables(facts: NodeFacts): readonly FaultCheck[] {
  const { executables: found, notMounted, cniBinDir } = facts;
  if (notMounted.includes(cniBinDir) && hasPodNetwork(facts))
    return [judged("cni-executable", cniBinDir).unknown(NOT_MOUNTED)];
  return found.map(({ path, fault }) => {
    const { ok, wrong } = judged("cni-executable", path);
    if (fault === undefined) return ok("can be run");
    const name = path.slice(path.lastIndexOf("/") + 1);
    const isOwn = Object.hasOwn(DAEMONS, name.replace(/-standalone$/, ""));
    return wrong(fault, isOwn ? "run coil-installer" : `install the CNI plugin ${name} into the folder`);
  });
}

/** Daemons answer on the sockets that CNI configurations name. */
export function sockets({ sockets: found, processes }: NodeFacts): readonly FaultCheck[] {
  return found.map(({ program, path, fault }) => {
    const { ok, wrong } = judged("daemon-socket", `${program} at ${path}`);
    if (fault === undefined) return ok("answers");
    const other = processes.find((one) => one.program === program);
    const own = other === undefined ? undefined : flagOf(other.flags, "socket");
    if (own !== undefined && own !== path)
      return wrong(
        `does not answer: ${program} listens at ${own}`,
        `start it with --socket=${path}, or change socket in the CNI configuration`,
      );
    if (other !== undefined)
      return wrong(`runs and does not answer: ${fault}`, `look at the log of ${program}, and restart it`);
    return wrong(`does not answer, and does not run here: ${fault}`, `start ${program}, and look at its log`);
  });
}
