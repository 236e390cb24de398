import type { UserInfo } from "#lab/api-server";

/** The namespace of the programs' accounts. */
const NAMESPACE = "kube-system";

/** The service account of each program that has one in its manifest. */
const ACCOUNTS = {
  coild: "coild",
  "coil-router": "coil-router",
  "coil-ipam-controller": "coil-ipam-controller",
  "coil-egress-controller": "coil-egress-controller",
  "service-proxy": "isthmus-service-proxy",
  "nic-controller": "nic-controller",
  "nic-agent": "nic-agent",
} as const;

/** A program of a lab that speaks with the API server as an account of its own. */
export type AccountProgram = keyof typeof ACCOUNTS;

/** All of them. */
export const ACCOUNT_PROGRAMS = Object.keys(ACCOUNTS) as readonly AccountProgram[];

/** Those that run on each node, each with a token of its own. */
const OF_NODES: readonly AccountProgram[] = ["coild", "coil-router", "service-proxy", "nic-agent"];

/** An account's program, and the node whose token it has; `undefined` for one that runs once. */
interface PlacedAccount {
  readonly program: AccountProgram;
  readonly node: string | undefined;
}

/** Pure: the programs with accounts, those of nodes once for each node. */
export function accountsOn(nodes: readonly string[]): readonly PlacedAccount[] {
  return ACCOUNT_PROGRAMS.flatMap((program): readonly PlacedAccount[] =>
    OF_NODES.includes(program) ? nodes.map((node) => ({ program, node })) : [{ program, node: undefined }],
  );
}

/** Pure: the user that the API server takes a program for, as by a token that the node's kubelet has projected into its pod. */
export function accountOf(program: AccountProgram, node?: string): UserInfo {
  return {
    name: `system:serviceaccount:${NAMESPACE}:${ACCOUNTS[program]}`,
    groups: ["system:serviceaccounts", `system:serviceaccounts:${NAMESPACE}`, "system:authenticated"],
    ...(node === undefined ? {} : { extra: { "authentication.kubernetes.io/node-name": [node] } }),
  };
}
