import { lookup } from "node:dns/promises";
import { uptime } from "node:os";
import { Dirty } from "#base/async";
import { systemClock } from "#base/clock";
import { IpAddress, type IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import type { EventSink } from "#features/service-health";
import { AddressGuard, ASK_MS, type FamilyProxy } from "#features/service-proxy";
import type { NftElements } from "#kernel/nft-elements";
import type { SockDiag } from "#kernel/sock-diag";
import type { Node } from "#kube/client";
import type { ServiceProxyConfig } from "../service-proxy-config/index.ts";

/** How long an answer of the resolver for the API server's name counts, in milliseconds; and after a failure. */
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
  return new AddressGuard(
    {
      sockets,
      uptimeMs: () => uptime() * 1000,
      wasGiven: (family, { key, service }) => {
        const table = at.proxyOf(family)?.plane.table;
        if (table === undefined || kernel.elements.names(table)?.sets.includes("service-ips") !== true) return false;
        const found = kernel.elements.list(table, "service-ips").find((one) => one.key === key);
        return found?.comment?.startsWith(`${service}/`) === true || found?.comment?.startsWith(`${service}:`) === true;
      },
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

/** All addresses of a Node. Pure. */
export function namedAddresses(node: Node): IpAddress[] {
  return (node.status?.addresses ?? []).flatMap(({ address }) => IpAddress.tryParse(address ?? "") ?? []);
}

/** Has all claims judged again while programs of the host start after a boot, and once afterwards. */
export async function askWhileBooting(
  guard: Pick<AddressGuard, "isBooting">,
  judgeAgain: () => void,
  { signal }: { readonly signal: AbortSignal },
): Promise<void> {
  const never = new Dirty(systemClock);
  while (guard.isBooting && !signal.aborted) {
    await never.wait({ atMostMs: ASK_MS, signal });
    if (!signal.aborted) judgeAgain();
  }
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
  const never = new Dirty(systemClock);
  while (!signal.aborted) {
    let pauseMs = RESOLVE_MS;
    try {
      const found = await lookup(host, { all: true });
      guard.setApiServer(
        found.flatMap((one) => IpAddress.tryParse(one.address)?.toString() ?? []),
        port,
      );
    } catch (error) {
      // Those of the resolver have a code.
      if (!(error instanceof Error && "code" in error)) throw error;
      pauseMs = RETRY_MS;
      log.debug("cannot resolve the API server's name", { host, error: String(error) });
    }
    await never.wait({ atMostMs: pauseMs, signal });
  }
}
