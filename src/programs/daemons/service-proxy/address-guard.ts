import { lookup } from "node:dns/promises";
import { uptime } from "node:os";
import { systemClock } from "#base/clock";
import { IpAddress, type IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import { type PassResult, repeat } from "#base/reconcile";
import type { EventSink } from "#features/service-health";
import { type AddressClaim, AddressGuard, type FamilyProxy, frontEndId, SETS } from "#features/service-proxy";
import { isKernelError } from "#kernel/errors";
import type { NftElements } from "#kernel/nft-elements";
import type { SockDiag } from "#kernel/sock-diag";
import type { Node } from "#kube/client";
import type { ServiceProxyConfig } from "../../shared/service-proxy-config/index.ts";

/** The time for which an answer of the resolver for the API server's name counts, in milliseconds; and after a failure. */
const RESOLVE_MS = 600_000;
const RETRY_MS = 10_000;

/** Judges which external addresses Services get. */
export function addressGuard(
  {
    config,
    kernel,
    sockets,
    log,
    onEvent,
  }: {
    readonly config: ServiceProxyConfig;
    readonly kernel: { readonly elements: Pick<NftElements, "list" | "names"> };
    readonly sockets: SockDiag;
    readonly log: Logger;
    readonly onEvent: EventSink;
  },
  at: { readonly proxyOf: (family: IpFamily) => FamilyProxy | undefined; readonly onChange: () => void },
): AddressGuard {
  const given = new GivenFrontEnds(kernel.elements, log);
  return new AddressGuard(
    {
      sockets,
      uptimeMs: () => uptime() * 1000,
      wasGiven: (family, claim) => given.has(at.proxyOf(family), claim),
      onLateListener: ({ service, frontEnd }) => {
        const [namespace = "", name = ""] = service.split("/");
        const fix = "let that program listen elsewhere, or take the address from the Service";
        log.warn("a socket listens where a Service has got the address; packets go to the Service", {
          ...{ service, frontEnd, fix },
        });
        const note = `A socket of the node began to listen at ${frontEnd}; connections go to the Service all the same`;
        onEvent({ about: { namespace, name }, type: "Warning", reason: "ExternalAddressListened", note });
      },
      onChange: at.onChange,
      clock: systemClock,
      log,
    },
    { mode: config.serviceAddresses, hostPorts: config.hostPorts, clusterCIDRs: config.clusterCIDRs },
  );
}

/** The sets that have an element for each front end at an address: with endpoints, and without. */
const GIVEN_SETS = [SETS.serviceIps, SETS.noEndpoints] as const;

/**
 * The Services that have got external front ends. Until the first sync of a family, Services that are not planned yet have what the kernel's table of an earlier run
 * says, which is listed once; afterwards they have what this process wants.
 */
export class GivenFrontEnds {
  readonly #elements: Pick<NftElements, "list" | "names">;
  readonly #log: Logger;
  /** The comments of the elements in {@link GIVEN_SETS}, by family and key. */
  readonly #earlier = new Map<IpFamily, ReadonlyMap<string, string>>();

  constructor(elements: Pick<NftElements, "list" | "names">, log: Logger) {
    this.#elements = elements;
    this.#log = log;
  }

  has(proxy: GivingProxy | undefined, { key, service }: Pick<AddressClaim, "key" | "service">): boolean {
    if (proxy === undefined) return false;
    if (proxy.hasSynced) this.#earlier.delete(proxy.family);
    if (proxy.hasSynced || proxy.wanted.has(service))
      return proxy.wanted.holds(service, frontEndId({ key, isNodePort: false }));
    const earlier = this.#earlier.get(proxy.family) ?? this.#list(proxy);
    this.#earlier.set(proxy.family, earlier);
    const comment = earlier.get(key);
    // A comment is cut at 127 characters, which the longest names fill.
    return comment === service || [`${service}/`, `${service}:`].some((start) => comment?.startsWith(start) === true);
  }

  /** A table that cannot be listed has given nothing. */
  #list({ family, plane: { table } }: GivingProxy): ReadonlyMap<string, string> {
    try {
      const sets = GIVEN_SETS.filter((set) => this.#elements.names(table)?.sets.includes(set) === true);
      const given = sets.flatMap((set) => this.#elements.list(table, set));
      return new Map(given.map(({ key, comment = "" }) => [key, comment]));
    } catch (error) {
      if (!isKernelError(error)) throw error;
      const what = "cannot list what an earlier run has given to Services; sockets of the node go before all of them";
      this.#log.warn(what, { family, error: error.message });
      return new Map();
    }
  }
}

type GivingProxy = Pick<FamilyProxy, "family" | "hasSynced"> & {
  readonly plane: Pick<FamilyProxy["plane"], "table">;
  readonly wanted: Pick<FamilyProxy["wanted"], "has" | "holds">;
};

/** All addresses of a Node. Pure. */
export function namedAddresses(node: Node): IpAddress[] {
  return (node.status?.addresses ?? []).flatMap(({ address }) => IpAddress.tryParse(address ?? "") ?? []);
}

/** Tells the guard where the API server of the kubeconfig is. A name is resolved now and then. */
export async function findApiServer(
  server: URL,
  guard: Pick<AddressGuard, "setApiServer">,
  { signal, log }: { readonly signal: AbortSignal; readonly log: Logger },
): Promise<void> {
  const port = Number(server.port === "" ? (server.protocol === "http:" ? 80 : 443) : server.port);
  const host = server.hostname.replace(/^\[(.*)\]$/, "$1");
  const address = IpAddress.tryParse(host);
  if (address !== undefined) return guard.setApiServer([address.toString()], port);
  const resolve = async (): Promise<PassResult> => {
    try {
      const found = await lookup(host, { all: true });
      guard.setApiServer(
        found.flatMap((one) => IpAddress.tryParse(one.address)?.toString() ?? []),
        port,
      );
      return { againMs: RESOLVE_MS };
    } catch (error) {
      // Those of the resolver have a code.
      if (!(error instanceof Error && "code" in error)) throw error;
      log.debug("cannot resolve the API server's name", { host, error: String(error) });
      return { againMs: RETRY_MS };
    }
  };
  await repeat(resolve, { signal, clock: systemClock, everyMs: RESOLVE_MS });
}
