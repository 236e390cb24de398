import type { AbortOptions } from "#base/async";
import { ExpectedError } from "#base/errors";
import { IpAddress, type IpFamily } from "#base/ip";
import {
  accessNamespace,
  type ClientWay,
  clientEgress,
  clientRouter,
  clientService,
  EGRESS_SERVICES,
  explainClientWay,
  type KnownEgresses,
  namedEgresses,
  openFilters,
  type RouterEnd,
  routerEnd,
  usesFrom,
} from "#features/egress";
import { findPod } from "#features/pod-network";
import { type Kernel, openKernel } from "#kernel/net";
import { findObject, isKubeError, type KubeApi, type ObjectRef, type Pod, resources } from "#kube/client";
import { coilResources, type Egress } from "#kube/coil";
import { PrivilegeError, requirePrivileges } from "../../shared/program/index.ts";

/**
 * - `other-node`: the pod is on another node, whose kernel decides
 * - `no-namespace`: the pod's network namespace is not found on its node
 * - `no-address`: the pod has no address yet
 */
export type PodWayErrorCode = "other-node" | "no-namespace" | "no-address";

/** The way inside a pod cannot be read, and without it the answer would be wrong. */
export class PodWayError extends ExpectedError<PodWayErrorCode> {
  override readonly name = "PodWayError";
}

/** The way inside a pod, or why it was not looked at. */
export type PodWay =
  | (ClientWay & { readonly kind: "read"; readonly namespace: string })
  | { readonly kind: "not-read"; readonly why: string };

/** Reads a pod of the question; `undefined`: these credentials may not. Rejects with `KubeError`. */
export async function readQuestionPod(
  api: KubeApi,
  ref: Required<ObjectRef>,
  options: AbortOptions,
): Promise<Pod | undefined> {
  try {
    return await findObject(api, resources.pods, ref, options);
  } catch (error) {
    if (!isKubeError(error, "forbidden")) throw error;
    return undefined;
  }
}

/** Opens what the pod's own kernel says. */
export class PodWays {
  readonly #kernel: Kernel;
  readonly #api: KubeApi;
  /** The name of this machine's Node. */
  readonly #thisNode: string;

  constructor(parts: { readonly api: KubeApi; readonly thisNode: string }) {
    this.#api = parts.api;
    this.#thisNode = parts.thisNode;
    this.#kernel = openKernel();
  }

  /**
   * The way of a packet inside its pod. For a pod that names no Egress the node's rules are an answer too, so a pod that cannot be looked at is a reason in words.
   * Rejects with {@link PodWayError}, `PrivilegeError`, `KubeError`, `KernelError`, `NftError` and `IptablesError`.
   */
  async of(
    pod: Pod,
    destination: IpAddress,
    { isAnswer, signal }: AbortOptions & { readonly isAnswer: boolean },
  ): Promise<PodWay> {
    const { namespace = "", name, labels, annotations } = pod.metadata;
    const isNeeded = isAnswer || namedEgresses(annotations).length > 0;
    try {
      if (pod.spec?.hostNetwork === true)
        return { kind: "not-read", why: "the pod is in the node's network: it has no rules of its own" };
      requirePrivileges("read the pod's network namespace", ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]);
      const place = this.#placeOf(pod);
      const known = await this.#knownEgresses(namespace, { namesAny: namedEgresses(annotations).length > 0, signal });
      using netns = this.#kernel.openNetNs({ path: place.path });
      using net = this.#kernel.openStack(netns);
      const sender = { namespace, labels, annotations, addresses: place.addresses, ifname: place.ifname };
      using filters = isAnswer ? openFilters(netns) : undefined;
      const answer = filters === undefined ? {} : { answer: { filters: filters.all } };
      const way = await explainClientWay(net, sender, destination, { known, ...answer });
      return { kind: "read", namespace: place.path, ...way };
    } catch (error) {
      if (isNeeded || !(error instanceof PodWayError || error instanceof PrivilegeError)) throw error;
      return {
        kind: "not-read",
        why: `the rules inside pod ${namespace}/${name} are not part of this answer: ${error.message}`,
      };
    }
  }

  #placeOf(pod: Pod) {
    const { namespace, name } = pod.metadata;
    const who = `pod ${namespace}/${name}`;
    const node = pod.spec?.nodeName ?? "";
    const addresses = (pod.status?.podIPs ?? []).flatMap(({ ip }) => IpAddress.tryParse(ip ?? "") ?? []);
    if (addresses.length === 0) throw new PodWayError("no-address", `${who} has no address yet: see its events`);
    const place = findPod(this.#kernel, addresses);
    if (place === undefined) {
      if (node !== this.#thisNode)
        throw new PodWayError(
          "other-node",
          `${who} is on node ${node}, and this is ${this.#thisNode}: run explain on node ${node}, as root`,
        );
      throw new PodWayError(
        "no-namespace",
        `no network namespace on this node has the address ${addresses.join(" or ")} of ${who}: does its sandbox run? See the pod's events, and isthmus audit`,
      );
    }
    const ofFamily = (family: IpFamily): Partial<Record<IpFamily, IpAddress>> => {
      const address = addresses.find((one) => one.family === family);
      return address === undefined ? {} : { [family]: address };
    };
    return { path: place.path, ifname: place.ifname, addresses: { ...ofFamily(4), ...ofFamily(6) } };
  }

  async #knownEgresses(
    podNamespace: string,
    { namesAny, ...options }: AbortOptions & { readonly namesAny: boolean },
  ): Promise<KnownEgresses> {
    const { items } = await this.#api.listAll(resources.services, { ...options, labelSelector: EGRESS_SERVICES });
    const services = items.map(clientService);
    const keyOf = ({ namespace = "", name }: { readonly namespace?: string; readonly name: string }): string =>
      `${namespace}/${name}`;
    const byKey = new Map(services.map((one) => [keyOf(one.metadata), one]));
    const egresses = (await this.#listEgresses({ namesAny, ...options })).map(clientEgress);
    const ofKey = new Map(egresses.map((one) => [keyOf(one.metadata), one]));
    const namespace =
      egresses.length === 0
        ? undefined
        : await findObject(this.#api, resources.namespaces, { name: podNamespace }, options);
    const view = namespace === undefined ? undefined : accessNamespace(namespace);
    const usesOf = usesFrom(
      egresses.map(({ access }) => access),
      () => view,
    );
    return {
      source: { egress: (ref) => ofKey.get(keyOf(ref)), service: (ref) => byKey.get(keyOf(ref)), usesOf },
      services,
      routers: await this.#listRouters(options),
    };
  }

  /** `undefined` if these credentials may not list them. */
  async #listRouters(options: AbortOptions): Promise<KnownEgresses["routers"]> {
    try {
      const { items } = await this.#api.listAll(resources.pods, { ...options, labelSelector: EGRESS_SERVICES });
      return items.map(clientRouter).filter(({ egress }) => egress !== "");
    } catch (error) {
      if (!isKubeError(error, "forbidden")) throw error;
      return undefined;
    }
  }

  /** A cluster without the type has none. Of a pod that names none, only those count that these credentials may list. */
  async #listEgresses({
    namesAny,
    ...options
  }: AbortOptions & { readonly namesAny: boolean }): Promise<readonly Egress[]> {
    try {
      return (await this.#api.listAll(coilResources.egresses, options)).items;
    } catch (error) {
      if (!isKubeError(error, "not-found") && (namesAny || !isKubeError(error, "forbidden"))) throw error;
      return [];
    }
  }

  /** The routers behind the address of an Egress's Service. Rejects with `KernelError`, `NftError` and `IptablesError`. */
  routers(
    arrivals: readonly { readonly address: string; readonly pod?: string; readonly node?: string }[],
  ): Promise<RouterEnd[]> {
    return Promise.all(
      arrivals.map(async ({ address: text, pod, node }) => {
        const address = IpAddress.parse(text);
        const at = { ...(pod === undefined ? {} : { pod }), ...(node === undefined ? {} : { node }) };
        const place = findPod(this.#kernel, [address]);
        if (place === undefined) return routerEnd(address, at, undefined);
        using netns = this.#kernel.openNetNs({ path: place.path });
        using filters = openFilters(netns);
        return await routerEnd(address, at, filters.all);
      }),
    );
  }
}
