import { printable } from "#base/text";
import type { Pod } from "#kube/client";
import type { NicClaim, NicStatus } from "#kube/nic";
import type { AuditedWish } from "../audit/rules.ts";

/** One NIC of a pod, as a table shows it. Texts that are not known are empty. */
export interface NicRow {
  readonly namespace: string;
  readonly pod: string;
  readonly nic: string;
  /** The state of the NIC; `NoClaim` without one. */
  readonly state: NicStatus["state"] | "NoClaim";
  /** The phase of the claim. */
  readonly phase: string;
  readonly port: string;
  /** With prefix lengths. */
  readonly addresses: readonly string[];
  readonly node: string;
  readonly reason: string;
  readonly message: string;
}

/** The input of {@link nicRows}. */
export interface NicRowsInput {
  readonly pods: readonly Pod[];
  readonly claims: readonly NicClaim[];
  readonly wishOf: (pod: Pod) => AuditedWish;
}

/** The NICs of all pods that ask for some or have a NicClaim, by namespace, pod and place in the pod. Pure. */
export function nicRows({ pods, claims, wishOf }: NicRowsInput): readonly NicRow[] {
  const byUid = new Map(pods.map((pod) => [pod.metadata.uid, pod]));
  const claimed = new Set(claims.map(({ metadata }) => metadata.name));
  const rows = [
    ...claims.flatMap((claim) => claimRows(claim, byUid.get(claim.metadata.name))),
    ...pods.filter(({ metadata }) => !claimed.has(metadata.uid)).flatMap((pod) => unclaimedRows(pod, wishOf(pod))),
  ];
  const key = ({ namespace, pod }: NicRow): string => `${namespace}/${pod}`;
  // The order within a pod stays.
  return rows.sort((one, other) => (key(one) < key(other) ? -1 : key(one) > key(other) ? 1 : 0));
}

function claimRows(claim: NicClaim, pod: Pod | undefined): NicRow[] {
  const { spec, status, metadata } = claim;
  return spec.nics.map(({ name }): NicRow => {
    const nic: NicStatus = status?.nics?.find((one) => one.name === name) ?? { name, state: "Unknown" };
    const gone = pod === undefined ? { reason: "PodGone", message: "the pod does not exist any more" } : {};
    return {
      namespace: metadata.namespace ?? "",
      pod: spec.podName,
      nic: name,
      state: nic.state,
      phase: status?.phase ?? "",
      port: nic.portID ?? "",
      addresses: (nic.ips ?? []).map(({ ip, prefixLength }) => `${ip}/${prefixLength}`),
      node: status?.nodeName ?? pod?.spec?.nodeName ?? "",
      reason: nic.reason ?? "",
      message: nic.message ?? "",
      ...gone,
    };
  });
}

function unclaimedRows(pod: Pod, wish: AuditedWish): NicRow[] {
  if (wish.kind === "none" || pod.status?.phase === "Succeeded" || pod.status?.phase === "Failed") return [];
  const row = (nic: string, reason: string, message: string): NicRow => ({
    namespace: pod.metadata.namespace ?? "",
    pod: pod.metadata.name,
    nic,
    state: "NoClaim",
    phase: "",
    port: "",
    addresses: [],
    node: pod.spec?.nodeName ?? "",
    reason,
    message,
  });
  switch (wish.kind) {
    case "host-network":
      return [row("", "HostNetworkIgnored", "the pod has the network of its node")];
    case "faulty":
      return [row("", "InvalidNics", wish.faults.map(({ field, message }) => `${field}: ${message}`).join("; "))];
    case "wanted":
      return wish.nics.map(({ name }) =>
        row(name, "", "nic-controller has not made a NicClaim yet: see the pod's events"),
      );
  }
}

/** A table with a head, its columns as wide as their longest cell. Pure. */
export function tableText(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [head, ...rows].map((cells) => cells.map((cell) => (cell === "" ? "-" : printable(cell))));
  const widths = head.map((_, at) => Math.max(...lines.map((cells) => cells[at]?.length ?? 0)));
  return `${lines
    .map((cells) =>
      cells
        .map((cell, at) => cell.padEnd(widths[at] ?? 0))
        .join("  ")
        .trimEnd(),
    )
    .join("\n")}\n`;
}

/** The rows for people. Pure. */
export function nicRowsText(rows: readonly NicRow[]): string {
  if (rows.length === 0) return "no pod has NICs of a VPC\n";
  return tableText(
    ["NAMESPACE", "POD", "NIC", "STATE", "CLAIM", "PORT", "ADDRESSES", "NODE", "REASON"],
    rows.map(({ namespace, pod, nic, state, phase, port, addresses, node, reason, message }) => [
      ...[namespace, pod, nic, state, phase, port, addresses.join(","), node],
      [reason, message].filter((one) => one !== "").join(": "),
    ]),
  );
}
