import type { IpFamily } from "#base/ip";
import type { EndpointSlice } from "#kube/client";
import { type Endpoint, flatText, type Protocol, packed, SharedTexts } from "../model/index.ts";
import { lenientAddress } from "./address.ts";
import { portNumber, protocolOf } from "./service.ts";

/** Label that names the Service of a slice. */
export const SERVICE_NAME_LABEL = "kubernetes.io/service-name";
/** Time of the change that led to this state of the slice (docs/spec/service-proxy.md#1.7). */
export const TRIGGER_TIME_ANNOTATION = "endpoints.kubernetes.io/last-change-trigger-time";

/** The fields of an EndpointSlice that are kept; repeated texts are shared. */
export interface SliceView {
  readonly metadata: {
    readonly name: string;
    readonly namespace: string;
    readonly uid: string;
    readonly resourceVersion: string;
  };
  /** `namespace/name`. */
  readonly service: string;
  readonly family: IpFamily;
  readonly ports: readonly { readonly name: string; readonly protocol: Protocol; readonly port: number }[];
  readonly endpoints: readonly EndpointView[];
  /** Milliseconds since the epoch. */
  readonly triggeredAt?: number;
}

/** One endpoint of a slice. */
export interface EndpointView {
  readonly address: string;
  readonly ready: boolean;
  readonly serving: boolean;
  readonly terminating: boolean;
  readonly nodeName: string;
  readonly zoneHints: readonly string[];
  readonly nodeHints: readonly string[];
}

const NONE: readonly string[] = [];
/** Shared names of nodes, zones and ports. */
const NAMES = new SharedTexts();

interface Hints {
  readonly forZones?: readonly { readonly name: string }[];
  readonly forNodes?: readonly { readonly name: string }[];
}

/** Reads the fields that are kept; `undefined` for a slice without a Service, and for a slice of host names. Pure. */
export function sliceView(slice: EndpointSlice): SliceView | undefined {
  const { metadata, addressType, ports, endpoints } = slice;
  const service = metadata.labels?.[SERVICE_NAME_LABEL];
  const namespace = metadata.namespace ?? "";
  if (service === undefined || service === "" || (addressType !== "IPv4" && addressType !== "IPv6")) return undefined;
  const triggeredAt = Date.parse(metadata.annotations?.[TRIGGER_TIME_ANNOTATION] ?? "");
  return {
    metadata: { name: metadata.name, namespace, uid: metadata.uid, resourceVersion: metadata.resourceVersion },
    service: flatText(namespace, "/", service),
    family: addressType === "IPv4" ? 4 : 6,
    ports: packed(
      (ports ?? []).flatMap(({ name, protocol, port }) => {
        const [number, kind] = [portNumber(port), protocolOf(protocol)];
        return name === undefined || name === null || number === undefined || kind === undefined
          ? []
          : [{ name: NAMES.get(name), protocol: kind, port: number }];
      }),
    ),
    endpoints: packed((endpoints ?? []).flatMap(endpointView)),
    ...(Number.isNaN(triggeredAt) ? {} : { triggeredAt }),
  };
}

function endpointView(endpoint: EndpointSlice["endpoints"][number]): EndpointView[] {
  const [address] = endpoint.addresses ?? [];
  if (address === undefined) return [];
  const hints = (endpoint.hints ?? {}) as Hints;
  return [
    {
      address,
      ready: endpoint.conditions?.ready ?? true,
      serving: endpoint.conditions?.serving ?? true,
      terminating: endpoint.conditions?.terminating ?? false,
      nodeName: NAMES.get(endpoint.nodeName ?? ""),
      zoneHints: hints.forZones?.map(({ name }) => NAMES.get(name)) ?? NONE,
      nodeHints: hints.forNodes?.map(({ name }) => NAMES.get(name)) ?? NONE,
    },
  ];
}

/**
 * The endpoints of a service port from all slices of its Service. Each address and port is there once, regardless of the order of the
 * slices. A terminating endpoint never replaces one that is not (docs/spec/service-proxy.md#2.1); see {@link usefulness}. Pure.
 */
export function endpointsOf(
  slices: Iterable<SliceView>,
  port: { readonly portName: string; readonly protocol: Protocol },
  nodeName: string,
): Endpoint[] {
  const found = new Map<string, Endpoint>();
  for (const slice of slices) {
    for (const target of slice.ports) {
      if (target.name !== port.portName || target.protocol !== port.protocol) continue;
      for (const view of slice.endpoints) {
        const endpoint = endpointOf(view, slice.family, target.port, nodeName);
        if (endpoint === undefined) continue;
        const key = `${endpoint.address} ${target.port}`;
        const known = found.get(key);
        if (known === undefined || usefulness(endpoint) > usefulness(known)) found.set(key, endpoint);
      }
    }
  }
  return [...found.values()];
}

/** Ranks endpoints of the same address, for example when a new pod has got the address of an old one: higher for the better target. */
function usefulness({ terminating, ready, serving, isLocal }: Endpoint): number {
  return (terminating ? 0 : 8) + (ready ? 4 : 0) + (serving ? 2 : 0) + (isLocal ? 1 : 0);
}

function endpointOf(view: EndpointView, family: IpFamily, port: number, nodeName: string): Endpoint | undefined {
  const address = lenientAddress(view.address, family);
  if (address === undefined) return undefined;
  const { ready, serving, terminating, zoneHints, nodeHints } = view;
  return {
    address,
    port,
    ready,
    serving,
    terminating,
    isLocal: view.nodeName === nodeName && nodeName !== "",
    zoneHints,
    nodeHints,
  };
}
