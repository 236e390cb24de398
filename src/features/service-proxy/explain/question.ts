import { ConfigError } from "#base/config";
import { IpAddress } from "#base/ip";
import type { ObjectRef } from "#kube/client";
import type { ServicePort } from "../model/index.ts";

/** The sender: `pod:NAMESPACE/NAME`, `node`, `outside`, or an address. */
export type Source =
  | { readonly kind: "pod"; readonly ref: Required<ObjectRef> }
  | { readonly kind: "node" }
  | { readonly kind: "outside" }
  | { readonly kind: "address"; readonly address: IpAddress };

/** The destination: an address, or the cluster IP of `service:NAMESPACE/NAME`. */
export type Destination =
  | { readonly kind: "service"; readonly ref: Required<ObjectRef> }
  | { readonly kind: "address"; readonly address: IpAddress };

/** A parsed question. */
export interface Question {
  readonly source: Source;
  readonly destination: Destination;
  readonly port: number;
  readonly protocol: ServicePort["protocol"];
}

/** The words of a question, for the usage line. */
export const QUESTION_USAGE = "SOURCE DESTINATION PORT[/PROTOCOL]";

/** Pure. Throws `ConfigError` with every fault. */
export function parseQuestion(words: readonly string[]): Question {
  const [from, to, at] = words;
  if (from === undefined || to === undefined || at === undefined) {
    throw new ConfigError("invalid-flags", [
      `give ${QUESTION_USAGE}, such as: outside 10.96.0.10 53/UDP; ${words.length} of 3 words are given`,
    ]);
  }
  const faults: string[] = [];
  const source = parseSource(from);
  if (source === undefined) {
    faults.push(`source "${from}" is not one of an address, pod:NAMESPACE/NAME, node and outside`);
  }
  const destination = parseDestination(to);
  if (destination === undefined) faults.push(`destination "${to}" is neither an address nor service:NAMESPACE/NAME`);
  const target = parseTarget(at);
  if (target === undefined) {
    faults.push(`port "${at}" is not a port such as 80, 53/UDP or 80/TCP: 1 to 65535, then TCP, UDP or SCTP`);
  }
  if (source?.kind === "address" && destination?.kind === "address") {
    if (source.address.family !== destination.address.family) {
      faults.push(`${from} and ${to} are of different families: no packet can have both addresses`);
    }
  }
  if (source === undefined || destination === undefined || target === undefined || faults.length > 0) {
    throw new ConfigError("invalid-flags", faults);
  }
  return { source, destination, ...target };
}

function parseSource(text: string): Source | undefined {
  if (text === "node" || text === "outside") return { kind: text };
  const ref = parseRef("pod", text);
  if (ref !== undefined) return { kind: "pod", ref };
  const address = IpAddress.tryParse(text);
  return address === undefined ? undefined : { kind: "address", address };
}

function parseDestination(text: string): Destination | undefined {
  const ref = parseRef("service", text);
  if (ref !== undefined) return { kind: "service", ref };
  const address = IpAddress.tryParse(text);
  return address === undefined ? undefined : { kind: "address", address };
}

/** Parses `kind:NAMESPACE/NAME`. */
function parseRef(kind: "pod" | "service", text: string): Required<ObjectRef> | undefined {
  const match = /^(\w+):([a-z0-9.-]{1,253})\/([a-z0-9.-]{1,253})$/.exec(text);
  if (match?.[1] !== kind) return undefined;
  return { namespace: match[2] ?? "", name: match[3] ?? "" };
}

function parseTarget(text: string): Pick<Question, "port" | "protocol"> | undefined {
  const match = /^(\d{1,5})(?:\/(TCP|UDP|SCTP))?$/i.exec(text);
  const port = Number(match?.[1] ?? 0);
  if (port < 1 || port > 65_535) return undefined;
  const protocol = (match?.[2] ?? "TCP").toUpperCase();
  return { port, protocol: protocol === "UDP" || protocol === "SCTP" ? protocol : "TCP" };
}
