import { Cidr, IpAddress, type IpFamily } from "#base/ip";
import { type Cause, invalid } from "../errors.ts";
import type { AdmissionPlugin, AdmissionRequest } from "../handlers/admission.ts";
import { asArray, asObject, asString, isObject, type Json, type JsonObject } from "../object/json.ts";
import type { KubeObject } from "../object/meta.ts";
import { invalidValue } from "../schema/index.ts";
import type { Store } from "../store/store.ts";

/** Ranges of Services' addresses, the primary family's first, and of NodePorts. */
export interface ServiceRanges {
  readonly cidrs: readonly Cidr[];
  readonly nodePorts: { readonly first: number; readonly last: number };
}

/** Default ranges: those of kubeadm, and of k3s for IPv6. */
export const DEFAULT_SERVICE_RANGES: ServiceRanges = {
  cidrs: [Cidr.parse("10.96.0.0/16"), Cidr.parse("fd10:96::/112")],
  nodePorts: { first: 30_000, last: 32_767 },
};

const SUBJECT = { group: "", kind: "Service", plural: "services" };
/** The number of random draws after which the range counts as exhausted. */
const MAX_DRAWS = 10_000;

/**
 * Gives Services cluster IPs, NodePorts and health check ports, as an API server's own allocators do. Admission and commit follow each
 * other without a pause, so that a number that is free at admission is still free at the commit.
 */
export function serviceAllocator(store: Store, ranges: ServiceRanges, random: () => number): AdmissionPlugin {
  return {
    name: "service-allocator",
    admit(request) {
      const { group, resource, subresource, operation, object } = request;
      if (group !== "" || resource !== "services" || subresource !== "" || operation === "DELETE") return undefined;
      return object === undefined ? undefined : new Allocation(store, ranges, random, request).run(object);
    },
  };
}

class Allocation {
  readonly #ranges: ServiceRanges;
  readonly #random: () => number;
  readonly #old: JsonObject;
  readonly #name: string;
  readonly #addresses = new Set<string>();
  readonly #ports = new Set<number>();
  readonly #causes: Cause[] = [];

  constructor(store: Store, ranges: ServiceRanges, random: () => number, request: AdmissionRequest) {
    this.#ranges = ranges;
    this.#random = random;
    this.#old = asObject(request.old?.["spec"]);
    this.#name = request.name;
    for (const { object } of store.collection("services").list()) {
      const { namespace, name } = object.metadata;
      if (namespace === request.namespace && name === request.name) continue;
      this.#take(asObject(object["spec"]));
    }
  }

  run(object: KubeObject): KubeObject {
    const spec: JsonObject = { ...asObject(object["spec"]) };
    spec["type"] ??= "ClusterIP";
    if (spec["type"] === "ExternalName") return this.#withoutAddresses(object, spec);
    spec["sessionAffinity"] ??= "None";
    spec["internalTrafficPolicy"] ??= "Cluster";
    if (spec["type"] !== "ClusterIP") spec["externalTrafficPolicy"] ??= "Cluster";
    // A field that the new type cannot have goes with the old one unless the writer has set it.
    else if (spec["externalTrafficPolicy"] === this.#old["externalTrafficPolicy"]) delete spec["externalTrafficPolicy"];
    this.#allocateAddresses(spec);
    this.#allocateNodePorts(spec);
    this.#allocateHealthPort(spec);
    if (this.#causes.length > 0) throw invalid(SUBJECT, this.#name, this.#causes);
    return { ...object, spec };
  }

  #take(spec: JsonObject): void {
    for (const address of asArray(spec["clusterIPs"])) this.#addresses.add(asString(address));
    for (const port of asArray(spec["ports"])) this.#ports.add(Number(asObject(port)["nodePort"] ?? 0));
    this.#ports.add(Number(spec["healthCheckNodePort"] ?? 0));
  }

  #withoutAddresses(object: KubeObject, spec: JsonObject): KubeObject {
    const { clusterIP: _ip, clusterIPs: _ips, ipFamilies: _families, ipFamilyPolicy: _policy, ...rest } = spec;
    return { ...object, spec: rest };
  }

  #allocateAddresses(spec: JsonObject): void {
    const given = asArray(spec["clusterIPs"] ?? this.#old["clusterIPs"]).map((one) => asString(one));
    const first = asString(spec["clusterIP"]) || (given[0] ?? "") || asString(this.#old["clusterIP"]);
    const families = this.#families(spec, first === "" ? [] : [first, ...given.slice(1)]);
    if (first === "None") {
      Object.assign(spec, { clusterIP: "None", clusterIPs: ["None"], ...families.fields });
      return;
    }
    const wanted = first === "" ? [] : [first, ...given.slice(1)];
    const addresses = families.list.map((family) => {
      const own = wanted.find((text) => IpAddress.tryParse(text)?.family === family);
      return own === undefined ? this.#draw(family) : this.#check(own);
    });
    Object.assign(spec, { clusterIP: addresses[0] ?? "", clusterIPs: addresses, ...families.fields });
  }

  /** The families of a Service, by its policy and its own list. */
  #families(
    spec: JsonObject,
    addresses: readonly string[],
  ): { readonly list: readonly IpFamily[]; readonly fields: JsonObject } {
    const available = this.#ranges.cidrs.map(({ family }) => family);
    const named = asArray(spec["ipFamilies"] ?? this.#old["ipFamilies"]).map(
      (one): IpFamily => (one === "IPv6" ? 6 : 4),
    );
    const byAddress = addresses.flatMap((text) => IpAddress.tryParse(text)?.family ?? []);
    const policy =
      asString(spec["ipFamilyPolicy"] ?? this.#old["ipFamilyPolicy"]) ||
      (named.length > 1 || byAddress.length > 1 ? "RequireDualStack" : "SingleStack");
    const order = [...new Set([...byAddress, ...named, ...available])].filter((family) => available.includes(family));
    if (policy === "RequireDualStack" && available.length < 2) {
      this.#causes.push(invalidValue("spec.ipFamilyPolicy", policy, "this cluster has one address family"));
    }
    const list = order.slice(0, policy === "SingleStack" ? 1 : 2);
    return { list, fields: { ipFamilies: list.map((family) => `IPv${family}`), ipFamilyPolicy: policy } };
  }

  #check(text: string): string {
    const address = IpAddress.tryParse(text);
    const field = "spec.clusterIPs";
    if (address === undefined) this.#causes.push(invalidValue(field, text, "must be a valid IP address"));
    else if (!this.#ranges.cidrs.some((cidr) => cidr.contains(address))) {
      const valid = this.#ranges.cidrs.join(" or ");
      this.#causes.push(
        invalidValue(field, text, `failed to allocate IP ${text}: the provided IP is not in the valid range: ${valid}`),
      );
    } else if (this.#addresses.has(address.toString())) {
      this.#causes.push(invalidValue(field, text, `failed to allocate IP ${text}: provided IP is already allocated`));
    }
    return address?.toString() ?? text;
  }

  #draw(family: IpFamily): string {
    const cidr = this.#ranges.cidrs.find((one) => one.family === family);
    const size = Number(cidr?.size ?? 0n);
    for (let draw = 0; draw < MAX_DRAWS && cidr !== undefined; draw += 1) {
      // The first addresses are the network's and the API server's own.
      const address = cidr.at(2 + Math.floor(this.#random() * (size - 3))).toString();
      if (this.#addresses.has(address)) continue;
      this.#addresses.add(address);
      return address;
    }
    this.#causes.push(
      invalidValue("spec.clusterIPs", [], `failed to allocate a service IP: the range ${cidr} is full`),
    );
    return "";
  }

  #allocateNodePorts(spec: JsonObject): void {
    const isExposed =
      spec["type"] === "NodePort" ||
      (spec["type"] === "LoadBalancer" && spec["allocateLoadBalancerNodePorts"] !== false);
    const before = asArray(this.#old["ports"]).map((one) => asObject(one));
    // One number may serve TCP and UDP of one Service.
    const ofThis = new Map<string, number>();
    spec["ports"] = asArray(spec["ports"]).map((item): Json => {
      if (!isObject(item)) return item;
      const { nodePort: given, ...rest } = item;
      const known = before.find(
        (one) => one["port"] === item["port"] && (one["protocol"] ?? "TCP") === (item["protocol"] ?? "TCP"),
      );
      const wanted = Number(given ?? known?.["nodePort"] ?? 0);
      if (spec["type"] === "ClusterIP") return rest;
      if (wanted === 0 && !isExposed) return rest;
      const shared = ofThis.get(String(item["port"]));
      const nodePort = wanted === 0 ? (shared ?? this.#drawPort()) : this.#checkPort(wanted);
      ofThis.set(String(item["port"]), nodePort);
      return { ...rest, nodePort };
    });
  }

  #allocateHealthPort(spec: JsonObject): void {
    const isNeeded = spec["type"] === "LoadBalancer" && spec["externalTrafficPolicy"] === "Local";
    const wanted = Number(spec["healthCheckNodePort"] ?? this.#old["healthCheckNodePort"] ?? 0);
    delete spec["healthCheckNodePort"];
    if (isNeeded) spec["healthCheckNodePort"] = wanted === 0 ? this.#drawPort() : this.#checkPort(wanted);
  }

  #checkPort(port: number): number {
    const { first, last } = this.#ranges.nodePorts;
    const field = "spec.ports[].nodePort";
    if (port < first || port > last) {
      this.#causes.push(
        invalidValue(
          field,
          port,
          `provided port is not in the valid range. The range of valid ports is ${first}-${last}`,
        ),
      );
    } else if (this.#ports.has(port)) {
      this.#causes.push(invalidValue(field, port, "provided port is already allocated"));
    }
    return port;
  }

  #drawPort(): number {
    const { first, last } = this.#ranges.nodePorts;
    for (let draw = 0; draw < MAX_DRAWS; draw += 1) {
      const port = first + Math.floor(this.#random() * (last - first + 1));
      if (this.#ports.has(port)) continue;
      this.#ports.add(port);
      return port;
    }
    this.#causes.push(invalidValue("spec.ports[].nodePort", 0, "failed to allocate a nodePort: range is full"));
    return 0;
  }
}
