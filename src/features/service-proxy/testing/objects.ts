/** Services and EndpointSlices as the API server has them, with defaults for fields that few tests need. */
import type { IpAddress, IpFamily } from "#base/ip";
import type { EndpointSlice, Service } from "#kube/client";
import { addressesOf, NODE, SERVICE_PORT, TARGET_PORT } from "./fixture.ts";

/** A port of a Service. */
export interface PortObject {
  readonly name: string;
  readonly port: number;
  readonly protocol?: "TCP" | "UDP" | "SCTP";
  readonly nodePort?: number;
}

/** A port of a slice. */
export interface SlicePortObject {
  readonly name: string;
  readonly port: number;
  readonly protocol?: "TCP" | "UDP" | "SCTP";
}

/** An endpoint of a slice. */
export interface EndpointObject {
  readonly addresses: readonly string[];
  readonly nodeName?: string;
  readonly conditions?: { readonly ready?: boolean; readonly serving?: boolean; readonly terminating?: boolean };
  readonly hints?: object;
}

/** The Service `ns/web` of one family, or as `spec` says. */
export function serviceObject(
  family: IpFamily,
  spec: { readonly ports?: readonly PortObject[] } & Readonly<Record<string, unknown>> = {},
  name = "web",
): Service {
  const clusterIP = String(addressesOf(family).clusterIP);
  return {
    metadata: { name, namespace: "ns", uid: name, resourceVersion: "1" },
    spec: {
      type: "ClusterIP",
      clusterIP,
      clusterIPs: [clusterIP],
      ipFamilies: [`IPv${family}`],
      ports: [{ name: "http", port: SERVICE_PORT, protocol: "TCP" }],
      ...spec,
    },
    status: {},
  } as unknown as Service;
}

/** A slice of `ns/web`, or of another Service in `ns`. */
export function sliceObject(
  family: IpFamily,
  endpoints: readonly EndpointObject[],
  {
    name = `web-${family}`,
    service = "web",
    ports = [{ name: "http", port: TARGET_PORT, protocol: "TCP" }],
  }: { readonly name?: string; readonly service?: string; readonly ports?: readonly SlicePortObject[] } = {},
): EndpointSlice {
  return {
    metadata: {
      name,
      namespace: "ns",
      uid: name,
      resourceVersion: "1",
      labels: { "kubernetes.io/service-name": service },
    },
    addressType: `IPv${family}`,
    ports,
    endpoints,
  } as unknown as EndpointSlice;
}

/** An endpoint on this node or elsewhere, ready unless `rest` says otherwise. */
export function endpointObject(
  address: IpAddress,
  where: "here" | "elsewhere",
  rest: Omit<EndpointObject, "addresses" | "nodeName"> = {},
): EndpointObject {
  return { addresses: [String(address)], nodeName: where === "here" ? NODE.name : "node-b", ...rest };
}

/** Conditions as the slice controller sets them. */
export const CONDITIONS = {
  ready: { ready: true, serving: true, terminating: false },
  unready: { ready: false, serving: false, terminating: false },
  terminating: { ready: false, serving: true, terminating: true },
  gone: { ready: false, serving: false, terminating: true },
} as const;
