import { IpAddress, type IpFamily } from "#base/ip";
import { findObject, isKubeError, type KubeApi, type ObjectRef, type Pod, resources } from "#kube/client";
import { fitShape } from "#kube/shape";
import { SHAPES } from "../inputs/index.ts";
import type { Packet } from "../trace/index.ts";
import type { NodePlan } from "./cluster.ts";
import { ExplainError } from "./errors.ts";
import type { Destination, Question, Source } from "./question.ts";

/** Addresses for documentation (RFC 5737, RFC 3849): neither a pod nor the node has them. */
const OUTSIDE: Readonly<Record<IpFamily, readonly string[]>> = {
  4: ["192.0.2.1", "198.51.100.1", "203.0.113.1"],
  6: ["2001:db8::1", "2001:db8:1::1", "2001:db8:2::1"],
};

/** Stands for any interface but a pod's: no name of an interface is empty. */
const OTHER_LINK = "";

/** The fields of a pod that are read. */
export type Sender = Pick<Pod, "spec" | "status">;

/** Reads the pod that the question names; `undefined`: the question names no pod. Rejects with `ExplainError` and `KubeError`. */
export async function readPod(
  api: KubeApi,
  source: Source,
  options: { readonly signal: AbortSignal },
): Promise<Sender | undefined> {
  if (source.kind !== "pod") return undefined;
  try {
    const pod = await findObject(api, resources.pods, source.ref, options);
    if (pod !== undefined) return pod;
  } catch (error) {
    if (!isKubeError(error, "forbidden")) throw error;
    return await endpointOf(api, source.ref, options, error.message);
  }
  throw new ExplainError("no-such-object", `there is no pod ${source.ref.namespace}/${source.ref.name}`);
}

/** Finds the pod in the EndpointSlices, which name the pods of Services: a proxy's credentials do not allow reading pods. */
async function endpointOf(
  api: KubeApi,
  { namespace = "", name }: ObjectRef,
  options: { readonly signal: AbortSignal },
  why: string,
): Promise<Sender> {
  const { items } = await api.listAll(resources.endpointSlices, { ...options, namespace });
  const endpoints = items
    .filter((slice) => fitShape(slice, SHAPES.endpointslices.shape) === undefined)
    .flatMap(({ endpoints: all }) => all ?? [])
    .filter(({ targetRef }) => targetRef?.kind === "Pod" && targetRef.name === name);
  const [first] = endpoints;
  if (first !== undefined) {
    const podIPs = endpoints.flatMap(({ addresses }) => addresses.slice(0, 1)).map((ip) => ({ ip }));
    return { spec: { nodeName: first.nodeName ?? "", containers: [] }, status: { podIPs } };
  }
  throw new ExplainError(
    "not-permitted",
    `pod ${namespace}/${name} may not be read with these credentials, and no EndpointSlice lists it: pass its address instead, or --kubeconfig with a user who may read pods (${why})`,
  );
}

/** Destination of the packet: the address, or the Service's cluster IP of the sender's family, or else the Service's first cluster IP. */
export async function readDestination(
  api: KubeApi,
  destination: Destination,
  source: Source,
  options: { readonly signal: AbortSignal },
): Promise<IpAddress> {
  if (destination.kind === "address") return destination.address;
  const { ref } = destination;
  const name = `${ref.namespace}/${ref.name}`;
  // The Service is listed because a proxy's credentials do not allow `get`.
  const selection = { namespace: ref.namespace, fieldSelector: `metadata.name=${ref.name}` };
  const [service] = (await api.listAll(resources.services, { ...selection, ...options })).items;
  if (service === undefined) throw new ExplainError("no-such-object", `there is no Service ${name}`);
  const { clusterIP = "", clusterIPs = [] } = service.spec ?? {};
  const addresses = [...clusterIPs, clusterIP].flatMap((text) => IpAddress.tryParse(text) ?? []);
  const family = source.kind === "address" ? source.address.family : addresses[0]?.family;
  const address = addresses.find((one) => one.family === family);
  if (address !== undefined) return address;
  const of = source.kind === "address" ? ` of IPv${source.address.family}` : "";
  const has =
    clusterIP === "None"
      ? "the Service is headless"
      : addresses.length === 0
        ? "no cluster IP is set"
        : `its cluster IPs are ${addresses}`;
  throw new ExplainError("no-address", `Service ${name} has no cluster IP${of}: ${has}`);
}

/** The packet of a question, with notes. */
export interface QuestionPacket {
  readonly packet: Packet;
  /** `pod default/web-1`, for people. */
  readonly from: string;
  readonly notes: readonly string[];
}

/** Makes the packet of a question. `pod`: the pod that the question names. Throws `ExplainError`. Pure. */
export function packetOf(
  { source, port, protocol }: Question,
  destination: IpAddress,
  plan: NodePlan,
  { nodeName, pod }: { readonly nodeName: string; readonly pod: Sender | undefined },
): QuestionPacket {
  const target = { destination, port, protocol };
  const [primary] = plan.addresses;
  const own = (from: string, address: IpAddress): QuestionPacket => ({
    packet: { source: address, ...target },
    from,
    notes: [],
  });
  const lacks = (what: string): ExplainError =>
    new ExplainError(
      "no-address",
      `${what} has no IPv${plan.family} address, but ${destination} is an IPv${plan.family} address`,
    );
  switch (source.kind) {
    case "node":
      if (primary === undefined) throw lacks(`Node ${nodeName}`);
      return own(`node ${nodeName}`, primary);
    case "outside": {
      const address = outsideAddress(plan);
      const notes = [
        `outside stands for ${address}; if the Service has source ranges, pass the client's address instead`,
      ];
      return { packet: { source: address, inputInterface: OTHER_LINK, ...target }, from: "outside", notes };
    }
    case "address": {
      const { address } = source;
      if (plan.addresses.some((one) => one.equals(address))) return own(`node ${nodeName}`, address);
      return { packet: { source: address, inputInterface: OTHER_LINK, ...target }, from: "an address", notes: [] };
    }
    case "pod": {
      const name = `pod ${source.ref.namespace}/${source.ref.name}`;
      const address = podAddress(pod, plan.family);
      if (address === undefined) throw lacks(name);
      const at = pod?.spec?.nodeName ?? "";
      const isNodes = pod?.spec?.hostNetwork === true || plan.addresses.some((one) => one.equals(address));
      if (at === nodeName && isNodes) return own(`${name} in the node's network`, address);
      const packet = { source: address, inputInterface: at === nodeName ? podLink(plan) : OTHER_LINK, ...target };
      const elsewhere = `the pod is on node ${at}, and that node translates its packets first; the result shows how node ${nodeName} would handle such a packet`;
      return { packet, from: name, notes: at === nodeName ? [] : [elsewhere] };
    }
  }
}

function podAddress(pod: Sender | undefined, family: IpFamily): IpAddress | undefined {
  const { podIPs = [], podIP = "" } = pod?.status ?? {};
  const texts = [...podIPs.flatMap(({ ip }) => ip ?? []), podIP];
  return texts.flatMap((text) => IpAddress.tryParse(text) ?? []).find((address) => address.family === family);
}

/** Interface of a pod of this node, for detectors that recognize pods by their interface. */
function podLink({ options: { detector } }: NodePlan): string {
  if (detector?.kind === "interface") return detector.name;
  return detector?.kind === "interface-prefix" ? detector.prefix : OTHER_LINK;
}

function outsideAddress({ family, options: { detector }, addresses, context }: NodePlan): IpAddress {
  const taken = (address: IpAddress): boolean =>
    (detector?.kind === "source" && detector.cidr.contains(address)) ||
    context.serviceCIDRs.some((cidr) => cidr.contains(address)) ||
    addresses.some((one) => one.equals(address));
  const address = OUTSIDE[family].map((text) => IpAddress.parse(text)).find((one) => !taken(one));
  if (address !== undefined) return address;
  throw new ExplainError(
    "no-address",
    "every example address for outside belongs to the cluster: pass the client's address instead",
  );
}
