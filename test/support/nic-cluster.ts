/**
 * Pods with NICs in a cluster whose `nic-controller` has a Neutron, whoever has started them.
 *
 * Owns: making and deleting pods, what a node's agent writes, waiting for claims, counting ports. Does not know: how the programs run.
 *
 * ```ts
 * const uid = await cluster.pod("a", { node: "node-1" });
 * await cluster.untilClaim(uid, ({ status }) => status?.phase === "Created");
 * ```
 */
import assert from "node:assert/strict";
import { type Event, findObject, type KubeClient, type Pod, resources } from "#kube/client";
import { type NicClaim, type NicPolicySpec, type NicStatus, nicResources } from "#kube/nic";
import type { NeutronApi } from "#lab/neutron";
import { until } from "#test/lab";

/** The time that a condition may take on a busy machine, in milliseconds. */
const DEADLINE_MS = 60_000;
const OWNER = encodeURIComponent("compute:isthmus");
export const NAMESPACE = "default";

/** One port of Neutron, as its API has it. */
export type RawPort = Readonly<Record<string, unknown>> & { readonly id: string; readonly name: string };

export abstract class NicCluster<Neutron extends NeutronApi> {
  readonly api: KubeClient;
  readonly neutron: Neutron;

  constructor({ api, neutron }: { readonly api: KubeClient; readonly neutron: Neutron }) {
    this.api = api;
    this.neutron = neutron;
  }

  /** The last words of the programs, for a failure. */
  abstract logs(): string;

  /** Sets the policy. Its VPCs are open to all namespaces, unless it says otherwise. */
  async policy(change: NicPolicySpec): Promise<void> {
    const spec = { allowUnboundVPCs: true, ...change };
    const metadata = { name: "default" };
    const known = await findObject(this.api, nicResources.nicPolicies, metadata);
    if (known === undefined) await this.api.create(nicResources.nicPolicies, { metadata, spec });
    else await this.api.replace(nicResources.nicPolicies, { ...known, spec });
  }

  /** Makes a pod with these NICs of `vpc-1`, or with any annotations; returns its uid. `node`: it is scheduled there at once. */
  async pod(
    name: string,
    {
      nics,
      node,
      vpc = "vpc-1",
      namespace = NAMESPACE,
      gates = [],
      vm,
      runtimeClass,
    }: {
      nics?: readonly object[];
      node?: string;
      vpc?: string;
      namespace?: string;
      gates?: readonly string[];
      vm?: object;
      /** A kubelet without this RuntimeClass leaves the pod to the test. */
      runtimeClass?: string;
    } = {},
  ): Promise<string> {
    const annotations = {
      ...(vm === undefined ? {} : { "isthmus.dev/vm": JSON.stringify(vm) }),
      "isthmus.dev/vpc": vpc,
      ...(nics === undefined ? {} : { "isthmus.dev/nics": JSON.stringify(nics) }),
    };
    const spec = {
      containers: [{ name: "c", image: "i" }],
      ...(node === undefined ? {} : { nodeName: node }),
      ...(runtimeClass === undefined ? {} : { runtimeClassName: runtimeClass }),
      ...(gates.length === 0 ? {} : { schedulingGates: gates.map((gate) => ({ name: gate })) }),
    };
    const pod = await this.api.create(resources.pods, { metadata: { name, namespace, annotations }, spec });
    return pod.metadata.uid;
  }

  /** Binds a pod to a node as a scheduler does. */
  async schedule(name: string, node = "node-1"): Promise<void> {
    await this.api.request({
      method: "POST",
      path: `/api/v1/namespaces/${NAMESPACE}/pods/${name}/binding`,
      body: {
        apiVersion: "v1",
        kind: "Binding",
        metadata: { name },
        target: { apiVersion: "v1", kind: "Node", name: node },
      },
    });
  }

  /** Deletes a pod as a kubelet that has ended it. */
  async deletePod(name: string): Promise<void> {
    await this.api.delete(resources.pods, { name, namespace: NAMESPACE }, { gracePeriodSeconds: 0 });
  }

  async findPod(name: string): Promise<Pod | undefined> {
    return findObject(this.api, resources.pods, { name, namespace: NAMESPACE });
  }

  /** Reports a pod's NICs as a node's agent does. */
  async tell(uid: string, type: "Plugged" | "Unplugged"): Promise<void> {
    const body = {
      apiVersion: "isthmus.dev/v1alpha1",
      kind: "NicClaim",
      metadata: { name: uid, namespace: NAMESPACE },
      status: { conditions: [{ type, status: "True" }] },
    };
    await this.api.patch(
      nicResources.nicClaims,
      { name: uid, namespace: NAMESPACE },
      { type: "apply", body, fieldManager: "nic-agent", force: true },
      { subresource: "status" },
    );
  }

  /** Follows a change of the claim and reports it as a node's agent does: it has the NICs that are bound, and no others. */
  async follow(uid: string): Promise<void> {
    const { spec, status, metadata } = (await this.claim(uid)) ?? assert.fail("no claim");
    const isBound = (name: string): boolean =>
      status?.nics?.some((nic) => nic.name === name && nic.vifType === "ovs") === true;
    const nics = spec.nics.filter(({ name }) => isBound(name)).map(({ name }) => ({ name }));
    const body = {
      apiVersion: "isthmus.dev/v1alpha1",
      kind: "NicClaim",
      metadata: { name: uid, namespace: NAMESPACE },
      status: {
        conditions: [{ type: "Plugged", status: "True" }],
        plugged: { generation: metadata.generation ?? 0, nics },
      },
    };
    await this.api.patch(
      nicResources.nicClaims,
      { name: uid, namespace: NAMESPACE },
      { type: "apply", body, fieldManager: "nic-agent", force: true },
      { subresource: "status" },
    );
  }

  claim(uid: string): Promise<NicClaim | undefined> {
    return findObject(this.api, nicResources.nicClaims, { name: uid, namespace: NAMESPACE });
  }

  async claims(): Promise<readonly NicClaim[]> {
    return (await this.api.listAll(nicResources.nicClaims)).items;
  }

  /** Waits until a claim is as wanted. */
  async untilClaim(
    uid: string,
    isSo: (claim: NicClaim) => boolean,
    what: string = isSo.toString(),
    deadlineMs = DEADLINE_MS,
  ): Promise<NicClaim> {
    let found: NicClaim | undefined;
    const check = async (): Promise<boolean> => {
      found = await this.claim(uid);
      return found !== undefined && isSo(found);
    };
    await until(`the claim: ${what}`, check, {
      deadlineMs,
      seen: () => `${JSON.stringify(found?.status)}\n${this.logs()}`,
    });
    return found ?? assert.fail("no claim");
  }

  /** Waits until a claim is released. After the end of a controller that takes 70 s: what the former one may have asked for is waited for. */
  async untilGone(uid: string): Promise<void> {
    await this.until("the claim is gone", async () => (await this.claim(uid)) === undefined, 2 * DEADLINE_MS);
  }

  async until(what: string, check: () => Promise<boolean>, deadlineMs = DEADLINE_MS): Promise<void> {
    await until(what, check, { deadlineMs, seen: () => this.logs() });
  }

  /** The ports that were made by controllers, asked of Neutron itself. */
  async ports(): Promise<readonly RawPort[]> {
    return (await this.neutron.list(`ports?device_owner=${OWNER}`)) as readonly RawPort[];
  }

  async events(podUID: string): Promise<readonly Event[]> {
    const { items } = await this.api.listAll(resources.events);
    return items.filter(({ regarding }) => regarding?.uid === podUID);
  }
}

/** One NIC of a claim. */
export function nicOf({ status }: NicClaim, name = "eth0"): NicStatus {
  return status?.nics?.find((nic) => nic.name === name) ?? assert.fail(`no NIC ${name}`);
}
