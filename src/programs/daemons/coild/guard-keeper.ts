import { ExpectedError } from "#base/errors";
import type { HealthPart } from "#base/health";
import type { IpAddress } from "#base/ip";
import { type Logger, Repeats } from "#base/log";
import type { PodNetwork, Survey } from "#features/pod-network";
import { ALLOWED_SOURCES, EXTRA_SOURCES, type GuardMode, type Refusal, type SourceGuard } from "#features/source-guard";
import { isKernelError } from "#kernel/errors";
import type { PodNotes } from "./pod-notes.ts";

/** Reason of the event of a pod whose packets are refused. */
export const SOURCE_REFUSED = "SourceRefused";

/**
 * Keeps the source guard equal to the pods' links, and reports what it refuses: the first packet of a pod for a reason is a log line and an event of the pod.
 * Packets cost no work here: the kernel remembers the first ones. Holds at most one entry for each link and reason.
 */
export class GuardKeeper {
  readonly #parts: ConstructorParameters<typeof GuardKeeper>[0];
  readonly #mode: GuardMode;
  readonly #repeats = new Repeats();
  /** Refusals that were reported. */
  #reported: ReadonlySet<string> = new Set();

  constructor(
    parts: {
      readonly guard: Pick<SourceGuard, "isDamaged" | "refusals" | "isOn">;
      readonly network: Pick<PodNetwork, "guard" | "judgesAll">;
      readonly notes: Pick<PodNotes, "add">;
      readonly health: HealthPart;
      /** Called when another program had removed or changed the tables. */
      readonly onRepaired: () => void;
      readonly log: Logger;
    },
    mode: GuardMode,
  ) {
    this.#parts = parts;
    this.#mode = mode;
  }

  /**
   * Compares the guard with a survey, and reports new refusals. A guard that cannot be written degrades its health part and is tried again by the next call: it
   * delays nothing else. Returns the number of changes.
   */
  keep(survey: Survey, addressesOf: Parameters<PodNetwork["guard"]>[1]): number {
    const { guard, network, health, log } = this.#parts;
    try {
      const damaged = guard.isDamaged();
      const changes = network.guard(survey, addressesOf);
      if (damaged) {
        this.#parts.onRepaired();
        log.warn("another program removed or changed the tables of the source guard; they were written again", {
          changes,
        });
      }
      this.#report(survey);
      this.#repeats.forget("guard");
      const limits = [
        ...(this.#mode === "count" ? ["it counts, and drops nothing (--source-guard=count)"] : []),
        ...(network.judgesAll
          ? []
          : ["links that were not guarded before wait for what the API server says of their pods"]),
      ];
      health.ok(limits.join("; "));
      return changes;
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      health.degraded(error);
      if (this.#repeats.isNew("guard", error.message))
        log.error(
          guard.isOn
            ? "the source guard cannot be compared with the pods' links; trying again"
            : "packets of pods are not checked: the kernel refuses the source guard; give it nf_tables with inet and arp, or set --source-guard=off",
          { error: error.message },
        );
      return 0;
    }
  }

  /** Returns true if another program has damaged the guard since it was compared. A kernel that does not answer is found by the next comparison. */
  isDamaged(): boolean {
    try {
      return this.#parts.guard.isDamaged();
    } catch (error) {
      if (!isKernelError(error)) throw error;
      return true;
    }
  }

  #report(survey: Survey): void {
    const links = new Map<number, { readonly hostName: string; readonly addresses: readonly IpAddress[] }>();
    for (const one of [...survey.attached, ...survey.bare, ...survey.unowned]) links.set(one.ifindex, one);
    const refusals = this.#parts.guard.refusals();
    for (const refusal of refusals) {
      if (this.#reported.has(keyOf(refusal))) continue;
      const { reason, ifindex, source } = refusal;
      const { hostName, addresses = [] } = links.get(ifindex) ?? {};
      const at = { reason, link: hostName ?? `interface ${ifindex}`, source: String(source) };
      const done = this.#mode === "on" ? "dropped" : "counted, and would be dropped with --source-guard=on";
      if (reason === "outside") {
        this.#parts.log.warn(
          `packets with the address of a pod of this node come in by a link that is not the pod's: they are ${done}`,
          at,
        );
      } else {
        this.#parts.log.warn(`packets of a pod are ${done}: their source is not the pod's`, {
          ...at,
          pod: addresses.map(String),
        });
        this.#parts.notes.add(addresses, { reason: SOURCE_REFUSED, note: noteOf(refusal, at.link, done) });
      }
    }
    this.#reported = new Set(refusals.map(keyOf));
  }
}

/** Pure: the text of the event. */
export function noteOf({ reason, source }: Pick<Refusal, "reason" | "source">, link: string, done: string): string {
  const what =
    reason === "link-local"
      ? `IPv6 link-local packets of this pod by its link ${link} are ${done}: from ${source}. A pod may use neighbour discovery and MLD with its node, from at most 8 link-local addresses.`
      : `${reason === "arp" ? "ARP packets" : "Packets"} of this pod by its link ${link} are ${done}: their source ${source} is not an address of the pod.`;
  return reason === "link-local"
    ? what
    : `${what} A pod that routes for others names such sources in its annotation ${EXTRA_SOURCES}, and the annotation ${ALLOWED_SOURCES} of its Namespace must allow them.`;
}

function keyOf({ reason, ifindex, source }: Refusal): string {
  return reason === "outside" ? `${reason} ${source}` : `${reason} ${ifindex} ${source.family}`;
}
