import type { AbortOptions } from "#base/async";
import type { IpAddress } from "#base/ip";
import { type KubeApi, resources } from "#kube/client";
import { coilResources, routerEgress } from "#kube/coil";
import { type Regarding, regarding } from "#kube/events";
import type { EgressRef } from "../access/index.ts";
import { accessPod, holderOf } from "../client/index.ts";
import { listRefused, ROUTER_TABLE } from "../guard/index.ts";
import type { ClientPlace, ClientPlaces } from "./client-places.ts";
import { type ClientPod, clientPod } from "./client-pods.ts";
import type { ClientSources } from "./client-sources.ts";
import type { FilterOpeners } from "./open-filter.ts";
import type { NodeRouter, RefusedFlowsParts } from "./refused-flows.ts";

/** The maximum number of refused clients that are read of one router. */
const MAX_REFUSED = 256;
/** The time in which the API server must answer, milliseconds. */
const ANSWER_MS = 5000;

/** The routers of Egresses on this node, and the pods that are their clients, as {@link RefusedFlowsParts} has them. Holds the places of the node's routers. */
export function nodeRouters(parts: {
  readonly api: Pick<KubeApi, "listAll">;
  readonly sources: Pick<ClientSources, "known" | "egresses">;
  readonly places: Pick<ClientPlaces, "of" | "open">;
  /** The pods of this node. */
  readonly pods: () => Iterable<ClientPod>;
  /** The pods of this node whose status has an address. */
  readonly podsAt: (address: string) => readonly ClientPod[];
  readonly openElements: FilterOpeners["openElements"];
}): Pick<RefusedFlowsParts, "routers" | "egress" | "clientOf"> {
  const { api, sources, places, openElements } = parts;
  /** The places of the routers of the last call, by UID: finding one reads all namespaces of the machine. */
  let found = new Map<string, ClientPlace>();
  const refused = async (uid: string, options: AbortOptions): ReturnType<NodeRouter["refused"]> => {
    const place = found.get(uid);
    using netns = place === undefined ? undefined : places.open(place);
    if (netns === undefined) {
      // It has ended meanwhile.
      found.delete(uid);
      return [];
    }
    using elements = openElements(netns);
    return await listRefused(elements, ROUTER_TABLE, { ...options, limit: MAX_REFUSED });
  };
  const isClient = (pod: ClientPod, { namespace, name }: EgressRef): boolean =>
    sources.known
      .usesOf(accessPod(pod))
      .some(({ egress, use }) => use.kind === "client" && egress.namespace === namespace && egress.name === name);
  const podsElsewhere = async (address: IpAddress, options: AbortOptions): Promise<readonly ClientPod[]> => {
    // No field of a Pod that can be selected has its further addresses.
    const fieldSelector = `status.podIP=${address}`;
    const { items } = await api.listAll(resources.pods, { ...options, fieldSelector, timeoutMs: ANSWER_MS });
    return items.map(clientPod).filter(({ hasNetwork }) => hasNetwork);
  };
  return {
    routers: () => {
      const before = found;
      found = new Map();
      return [...parts.pods()].flatMap((pod): NodeRouter[] => {
        const name = routerEgress(pod.labels);
        if (name === undefined || !pod.hasNetwork) return [];
        const { uid, name: podName } = pod.metadata;
        const place = before.get(uid) ?? places.of(pod);
        if (place === undefined) return [];
        found.set(uid, place);
        const egress = { namespace: pod.namespace, name };
        return [{ uid, name: podName, egress, refused: (options) => refused(uid, options) }];
      });
    },
    egress: ({ namespace, name }): Regarding | undefined => {
      const known = sources.egresses.store.getByKey(`${namespace}/${name}`);
      return known === undefined ? undefined : regarding(coilResources.egresses, known);
    },
    clientOf: async (address, egress, options) => {
      const here = parts.podsAt(String(address));
      const pod = holderOf(here.length > 0 ? here : await podsElsewhere(address, options));
      return pod === undefined || !isClient(pod, egress) ? undefined : regarding(resources.pods, pod);
    },
  };
}
