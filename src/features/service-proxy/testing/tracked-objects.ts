/** The tracked objects and the plan of one family's proxy, without a kernel. */
import type { IpFamily } from "#base/ip";
import type { EndpointSlice, Service } from "#kube/client";
import type { WantedState } from "../dataplane/index.ts";
import { addressBytes, WantedTable } from "../plan/index.ts";
import { portsOf, sliceView, Tracker } from "../track/index.ts";
import { addressesOf, NODE } from "./fixture.ts";

/** Tracker and plan. Each method returns true if it changed something. */
export class TrackedObjects {
  readonly family: IpFamily;
  readonly tracker: Tracker;
  readonly wanted = new WantedTable();

  constructor(family: IpFamily) {
    this.family = family;
    this.tracker = new Tracker(family, { node: NODE, nodeIPs: [addressesOf(family).node] });
  }

  /** Sets a Service of `ns`; `undefined`: it was deleted. */
  service(name: string, object: Service | undefined): boolean {
    const ports = object === undefined ? [] : portsOf(object, this.family, { allowExternalIPs: true });
    return this.tracker.setService(`ns/${name}`, ports);
  }

  slice(name: string, object: EndpointSlice | undefined): boolean {
    return this.tracker.setSlice(`ns/${name}`, object === undefined ? undefined : sliceView(object));
  }

  zone(zone: string | undefined): boolean {
    return this.tracker.setContext({ node: { ...NODE, zone }, nodeIPs: [addressesOf(this.family).node] });
  }

  /** Sets all of them. */
  objects(services: readonly Service[], slices: readonly EndpointSlice[]): this {
    for (const object of services) this.service(object.metadata.name, object);
    for (const object of slices) this.slice(object.metadata.name, object);
    return this;
  }

  /** Plans all pending Services. */
  plan(): void {
    for (const service of this.tracker.take().services) this.wanted.set(service, this.tracker.plan(service));
  }

  /** The wanted content of the table. */
  get state(): WantedState {
    this.plan();
    const { node, serviceCIDR } = addressesOf(this.family);
    return { services: this.wanted, nodePortIPs: new Set([addressBytes(node)]), serviceCIDRs: [serviceCIDR] };
  }
}
