import { applyHost, planHost } from "./host.ts";
import { carriesIpv6, ipv6MtuText } from "./ipv6-mtu.ts";
import type { Parts } from "./parts.ts";
import type { Uplinks } from "./uplinks.ts";

/** Collaborators of a {@link HostSetUp}. */
export interface HostSetUpDeps {
  readonly uplinks: Uplinks;
  /** Called with the keys of the host's settings that are about to be changed. */
  readonly beforeSettings: ((keys: readonly string[]) => void) | undefined;
  /** Returns true if the host's IPv6 forwarding was off before this or an earlier process turned it on. */
  readonly forwardsForUs: () => boolean;
}

/** The settings and rules that the host needs for pods, and the MTU that its uplinks allow. */
export class HostSetUp {
  readonly #parts: Pick<Parts, "host" | "options" | "log" | "complained">;
  readonly #deps: HostSetUpDeps;
  /** The MTU of pods, and the uplink that it is of, unless it is set. */
  #mtu: { readonly bytes: number; readonly uplink: string | undefined } | undefined;

  constructor(parts: Pick<Parts, "host" | "options" | "log" | "complained">, deps: HostSetUpDeps) {
    this.#parts = parts;
    this.#deps = deps;
  }

  /** The MTU of pods that start now, in bytes; `undefined` before the first run, and without an uplink. */
  get mtuBytes(): number | undefined {
    return this.#mtu?.bytes;
  }

  /**
   * Sets forwarding and the rule of the pods' table. If this kernel refuses a step, that is logged once. Idempotent. Returns the number of
   * steps that were needed.
   */
  run(): number {
    const advertised = { uplinks: this.#deps.uplinks.all, forwardsForUs: this.#deps.forwardsForUs() };
    const plan = planHost(this.#parts.host, this.#parts.options, advertised);
    const settings = plan.flatMap((step) => (step.kind === "sysctl" ? step.key : []));
    if (settings.length > 0) this.#deps.beforeSettings?.(settings);
    const failures = applyHost(this.#parts.host, plan);
    for (const failure of failures) {
      const complaint = `${failure.step} ${failure.error}`;
      if (this.#parts.complained.has(complaint)) continue;
      this.#parts.complained.add(complaint);
      this.#parts.log.warn("the network set-up of the host is incomplete", {
        step: failure.step,
        error: failure.error,
      });
    }
    this.#mtu = this.#mtuOfPods();
    this.#complainOfMtu();
    return plan.length - failures.length;
  }

  #mtuOfPods(): { readonly bytes: number; readonly uplink: string | undefined } | undefined {
    if (this.#parts.options.mtuBytes !== undefined) return { bytes: this.#parts.options.mtuBytes, uplink: undefined };
    const uplink = this.#deps.uplinks.narrowest(this.#parts.host.links.list());
    return uplink === undefined ? undefined : { bytes: uplink.mtu, uplink: uplink.name };
  }

  /** Logs once that pods get no IPv6 addresses by the MTU, and again after an MTU that carries IPv6. */
  #complainOfMtu(): void {
    const why = this.ipv6Fault();
    if (why === undefined) this.#parts.complained.delete("ipv6-mtu");
    if (why === undefined || this.#parts.complained.has("ipv6-mtu")) return;
    this.#parts.complained.add("ipv6-mtu");
    this.#parts.log.warn("pods that start now get no IPv6 addresses, and pods of pools with IPv6 alone do not start", {
      why,
    });
  }

  /** Returns why a pod that starts now gets no IPv6 address, as a sentence; `undefined` if it gets one. `mtuBytes`: an MTU that its configuration sets. */
  ipv6Fault(mtuBytes?: number): string | undefined {
    const { bytes, uplink } = mtuBytes === undefined ? (this.#mtu ?? {}) : { bytes: mtuBytes, uplink: undefined };
    return bytes === undefined || carriesIpv6(bytes) ? undefined : ipv6MtuText(bytes, uplink);
  }
}
