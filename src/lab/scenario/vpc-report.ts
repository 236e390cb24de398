import type { PingResult } from "#lab/ping";

/** One NIC of a pod, as its claim has it. */
export interface VpcNicReport {
  readonly name: string;
  readonly port: string;
  readonly address: string;
  readonly mac: string;
  readonly state: string;
  /** The reason why it has no port yet. */
  readonly reason?: string;
  readonly message?: string;
}

/** A pod of the VPC. */
export interface VpcPodReport {
  readonly name: string;
  readonly node: string;
  /** The way in which the node plugs: to the switch, or through a Linux bridge. */
  readonly plug: "direct" | "hybrid";
  readonly nics: readonly VpcNicReport[];
  /** Seconds from its creation until it was ready; `null`: it was not. */
  readonly seconds: number | null;
}

/** The member `vpc` of the report, with `isthmus lab --vpc`. */
export interface VpcReport {
  readonly hosts: readonly { readonly node: string; readonly firewall: string }[];
  /** Seconds until Neutron and its agents ran. */
  readonly startSeconds: number;
  /** The first four pods of the design document. */
  readonly pods: readonly VpcPodReport[];
  readonly pings: PingResult;
  /** `pod5`, which asks for the address of `pod3` and the port of `pod4`, while both run. */
  readonly waiting: VpcPodReport;
  /** `pod5` after both are gone. Its `seconds` count from their deletion. */
  readonly healed: VpcPodReport;
  /** The security group of `pod5`. */
  readonly group: {
    /** True if echoes were dropped while it had no rule. */
    readonly dropped: boolean;
    /** Seconds from its new rule until an echo was answered; `null`: none was. */
    readonly openSeconds: number | null;
  };
  /** Neutron after all pods are gone. */
  readonly left: {
    /** Ports of this lab. */
    readonly ports: readonly string[];
    /** The changed fields of the user's port; `null`: the port does not exist any more. */
    readonly userPort: readonly string[] | null;
  };
  readonly seconds: number;
}

/** The reasons of `pod5`, by NIC. */
export const WAITING_REASONS: readonly string[] = ["IpInUse", "PortInUse"];

/** Returns true if all pods got what they asked for, groups worked, and users' ports are as they were. */
export function vpcWorks(report: VpcReport): boolean {
  return (
    podsWork(report.pods) &&
    pingsWork(report) &&
    waitsRightly(report) &&
    podsWork([report.healed]) &&
    groupWorks(report) &&
    nothingLeft(report)
  );
}

function podsWork(pods: readonly VpcPodReport[]): boolean {
  const isReady = ({ seconds, nics }: VpcPodReport): boolean =>
    seconds !== null && nics.length > 0 && nics.every(({ state, address }) => state === "Ready" && address !== "");
  return pods.length > 0 && pods.every(isReady);
}

function pingsWork({ pings }: Pick<VpcReport, "pings">): boolean {
  return pings.sent > 0 && pings.answered === pings.sent;
}

function waitsRightly({ waiting }: Pick<VpcReport, "waiting">): boolean {
  return waiting.nics.map(({ reason }) => reason).join() === WAITING_REASONS.join();
}

function groupWorks({ group }: Pick<VpcReport, "group">): boolean {
  return group.dropped && group.openSeconds !== null;
}

function nothingLeft({ left }: Pick<VpcReport, "left">): boolean {
  return left.ports.length === 0 && left.userPort?.length === 0;
}

/** The part of the report as text for users. */
export function vpcLines(report: VpcReport, { mark }: { readonly mark: (good: boolean) => string }): string[] {
  const { hosts, startSeconds, pods, pings, waiting, healed, group, left } = report;
  const { openSeconds } = group;
  const user =
    left.userPort === null ? "is gone" : left.userPort.length === 0 ? "is as it was" : left.userPort.join(", ");
  return [
    `${mark(podsWork(pods))} Neutron with agents on ${hosts.map(({ node, firewall }) => `${node} (firewall ${firewall})`).join(" and ")} ran after ${startSeconds.toFixed(1)} s: ${pods.filter((pod) => podsWork([pod])).length} of ${pods.length} pods have their NICs`,
    ...pods.map(podLine),
    `${mark(pingsWork(report))} ${pings.answered} of ${pings.sent} pings answered between pods of the VPC`,
    ...pings.unanswered.map((pair) => `       ${pair.from} -> ${pair.to} (${pair.address}): ${pair.reason}`),
    `${mark(waitsRightly(report))} ${waiting.name} asks for an address and a port that other pods have, and waits`,
    ...waiting.nics.map(({ name, reason, message }) => `       ${name}: ${reason ?? "no reason"}: ${message ?? ""}`),
    `${mark(podsWork([healed]))} it has both when these pods are gone`,
    podLine(healed),
    `${mark(groupWorks(report))} its security group ${group.dropped ? "dropped echoes" : "let echoes in without a rule"}, and with a rule ${openSeconds === null ? "still dropped them" : `let them in after ${openSeconds.toFixed(1)} s`}`,
    `${mark(nothingLeft(report))} without its pods the lab has ${left.ports.length} ports in Neutron; the user's port ${user}`,
  ];
}

function podLine({ name, node, plug, nics, seconds }: VpcPodReport): string {
  const shown = nics.map(({ name: nic, address, mac, state }) => `${nic} ${address} ${mac} ${state}`);
  const time = seconds === null ? "not ready" : `ready after ${seconds.toFixed(1)} s`;
  return `       ${name} on ${node}, ${plug}: ${shown.join(", ") || "no NIC"}, ${time}`;
}
