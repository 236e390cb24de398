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

/** Pure: the user that the API server takes a program for. */
export function accountOf(program: AccountProgram): UserInfo {
  return {
    name: `system:serviceaccount:${NAMESPACE}:${ACCOUNTS[program]}`,
    groups: ["system:serviceaccounts", `system:serviceaccounts:${NAMESPACE}`, "system:authenticated"],
  };
}
