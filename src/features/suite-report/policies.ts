import type { DaemonSet } from "#kube/client";

/** A DaemonSet that enforces NetworkPolicies. */
export interface Enforcer {
  /** The product, as `Calico`. */
  readonly name: string;
  /** `NAMESPACE/NAME` of the DaemonSet. */
  readonly daemonSet: string;
  /** The nodes on which it should run, and those on which it is ready. */
  readonly wanted: number;
  readonly ready: number;
}

/** The NetworkPolicies of a cluster, and who enforces them. */
export interface PolicyFacts {
  readonly policies: number;
  readonly enforcers: readonly Enforcer[];
  /** Nodes of k3s, which enforces in its own process, unless it is started with --disable-network-policy: the API does not show that. */
  readonly k3sNodes: number;
}

/** The enforcement of a cluster's NetworkPolicies, in words. */
export interface PolicyVerdict {
  readonly state: "ok" | "warning" | "unknown";
  readonly text: string;
}

/** Programs that enforce NetworkPolicies, by the ends of the repositories of their images. */
const ENFORCERS: readonly (readonly [name: string, ...repositories: readonly string[]])[] = [
  ["Calico", "calico/node", "calico-node"],
  ["Cilium", "cilium"],
  ["Antrea", "antrea", "antrea-ubuntu", "antrea-agent", "antrea-agent-ubuntu", "antrea-agent-ubi"],
  ["kube-router", "kube-router"],
  ["kube-network-policies", "kube-network-policies"],
  ["kindnet", "kindnetd"],
  ["Weave Net", "weave-npc"],
  ["OVN-Kubernetes", "ovn-kube", "ovn-kube-ubuntu", "ovn-kube-fedora"],
  ["Kube-OVN", "kube-ovn"],
  ["the agent of Amazon", "aws-network-policy-agent"],
  ["Azure NPM", "azure-npm"],
  ["Terway", "terway"],
];

/** The names of what {@link enforcersOf} knows. */
export const KNOWN_ENFORCERS: readonly string[] = ENFORCERS.map(([name]) => name);

/** The enforcers that a DaemonSet runs. A kube-router without its firewall is none. Pure. */
export function enforcersOf({ metadata, spec, status }: DaemonSet): readonly Enforcer[] {
  const containers = spec?.template.spec?.containers ?? [];
  const names = ENFORCERS.filter(([name, ...repositories]) =>
    containers.some(({ image = "", command = [], args = [] }) => {
      const isOff = name === "kube-router" && [...command, ...args].includes("--run-firewall=false");
      const repository = repositoryOf(image);
      return !isOff && repositories.some((end) => repository === end || repository.endsWith(`/${end}`));
    }),
  ).map(([name]) => name);
  const { desiredNumberScheduled: wanted = 0, numberReady: ready = 0 } = status ?? {};
  return names.map((name) => ({ name, daemonSet: `${metadata.namespace}/${metadata.name}`, wanted, ready }));
}

/** An image without its tag and digest; a colon before the last slash is of the registry's port. */
function repositoryOf(image: string): string {
  const [named = ""] = image.split("@", 1);
  const colon = named.indexOf(":", named.lastIndexOf("/") + 1);
  return colon < 0 ? named : named.slice(0, colon);
}

/** Judges the policies of a cluster with the suite's pod network, which enforces none. `nodes`: the number of Nodes, where it is known. Pure. */
export function judgePolicies(
  { policies, enforcers, k3sNodes }: PolicyFacts,
  nodes: number | undefined,
): PolicyVerdict {
  if (policies === 0) return { state: "ok", text: "there are none" };
  const [best] = [...enforcers].sort((a, b) => b.ready - a.ready);
  const those = policies === 1 ? "1 is there" : `${policies} are there`;
  if (best === undefined && k3sNodes > 0)
    return {
      state: "unknown",
      text: `${those}; k3s enforces them on its ${k3sNodes} nodes, unless it was started with --disable-network-policy`,
    };
  if (best === undefined)
    return {
      state: "warning",
      text: `${those}, and nobody enforces them: pods are as open as without. No DaemonSet has an image of ${KNOWN_ENFORCERS.join(", ")}`,
    };
  const of = `${best.name} (DaemonSet ${best.daemonSet})`;
  const needed = Math.max(best.wanted, nodes ?? 0);
  if (best.ready >= needed) return { state: "ok", text: `${those}, for ${of} on ${best.ready} nodes` };
  return {
    state: "warning",
    text: `${those}, and ${of} is ready on ${best.ready} of ${needed} nodes: on the others nobody enforces them`,
  };
}
