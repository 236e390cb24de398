import type { Cidr } from "#base/ip";
import { type Pattern, parsePattern } from "./pattern.ts";

/** One rule of `--agent-identity` (docs/spec/tunnel.md#10.1): who it is for, and what they may claim. */
export interface AgentRule {
  /** For logs and metrics. */
  readonly name: string;
  /** All patterns that are given must match; at least one of certificate and token has one. */
  readonly certificate:
    | {
        readonly commonName: Pattern | undefined;
        readonly organization: Pattern | undefined;
        readonly dnsName: Pattern | undefined;
        readonly uri: Pattern | undefined;
      }
    | undefined;
  readonly token: { readonly node: Pattern | undefined; readonly pod: Pattern | undefined } | undefined;
  /** Templates of agentIDs; absent: any. Those of different identities are different agents in any case. */
  readonly agentIDs: readonly string[] | undefined;
  /** Templates of hosts in canonical form. */
  readonly hosts: readonly string[];
  /** Ranges whose addresses may be claimed. */
  readonly addresses: readonly Cidr[];
  /** True if the addresses may be claimed that belong to the Node of the name that `{name}` stands for. */
  readonly nodeAddresses: boolean;
  /** Ranges of which parts may be claimed. */
  readonly cidrs: readonly Cidr[];
  /** True if agents may get dials to hosts that they have not claimed: by `default`, and with `default-route=true` by `defaultRoute`. */
  readonly anyHost: boolean;
  /** Without certificates, or tokens, the rule is left out; other rules are a fault then. */
  readonly isOptional: boolean;
}

/** The rules that have names of their own. */
export const READY_RULES = ["kubelet", "node-addresses"] as const;
export type ReadyRule = (typeof READY_RULES)[number];

export function readyRules(ready: ReadyRule): readonly AgentRule[] {
  switch (ready) {
    case "kubelet":
      return [KUBELET];
    case "node-addresses":
      return [
        { ...KUBELET, name: ready, nodeAddresses: true, isOptional: true },
        { ...NODE_TOKEN, name: `${ready}-token`, nodeAddresses: true, isOptional: true },
      ];
  }
}

/**
 * Certificates that Kubernetes signs for kubelets. Both fields must be right: the cluster's authority signs other clients too, and whoever may choose
 * the common name of one of these is not therefore in the organisation.
 */
const KUBELET: AgentRule = {
  name: "kubelet",
  certificate: {
    commonName: known("system:node:{name}"),
    organization: known("system:nodes"),
    dnsName: undefined,
    uri: undefined,
  },
  token: undefined,
  agentIDs: undefined,
  hosts: ["{name}"],
  addresses: [],
  nodeAddresses: false,
  cidrs: [],
  anyHost: true,
  isOptional: false,
};

/** Tokens of pods, whose node the API server names: of the service account of the server's flags. */
const NODE_TOKEN: AgentRule = {
  ...KUBELET,
  certificate: undefined,
  token: { node: known("{name}"), pod: undefined },
};

function known(text: string): Pattern {
  const pattern = parsePattern(text);
  if ("fault" in pattern) throw new Error(`${text}: ${pattern.fault}`);
  return pattern;
}
