import assert from "node:assert/strict";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import { FakeKernel } from "#kernel/fake";
import { ElementBatch, FakeNftElements } from "#kernel/nft-elements";
import type { ListOptions, Pod } from "#kube/client";
import { egressLabels } from "#kube/coil";
import { usesFrom } from "../access/index.ts";
import { ROUTER_TABLE } from "../guard/index.ts";
import { clientPod } from "./client-pods.ts";
import { nodeRouters } from "./node-routers.ts";

const NAT = { namespace: "internet", name: "nat" };
const TO = "\x06\0\0\0\xcb\0\x71\x09\x01\xbb\0\0";

function pod(
  name: string,
  ip: string,
  { namespace = "default", labels = {}, names = "", hostNetwork = false } = {},
): Pod {
  const annotations = names === "" ? {} : { "egress.coil.cybozu.com/internet": names };
  return {
    metadata: { name, namespace, uid: name, resourceVersion: "1", creationTimestamp: "", labels, annotations },
    spec: { hostNetwork, containers: [] },
    status: { phase: "Running", podIPs: [{ ip }] },
  } as unknown as Pod;
}

function open(here: readonly Pod[], elsewhere: readonly Pod[] = []) {
  const kernel = new FakeKernel();
  const asked: string[] = [];
  let looks = 0;
  const elements = new FakeNftElements();
  elements.addSet(ROUTER_TABLE, "spent4");
  const pods = here.map(clientPod);
  const place = (name: string) => {
    using netns = kernel.openNetNs({ name });
    return { path: `/run/netns/${name}`, inode: netns.inode, ifname: "eth0", addresses: {} };
  };
  const isThere = (name: string): boolean => kernel.listNetNs().includes(name);
  const parts = nodeRouters({
    api: {
      listAll: async (_type: unknown, { fieldSelector = "" }: ListOptions = {}) => {
        asked.push(fieldSelector);
        const items = elsewhere.filter(({ status }) => fieldSelector === `status.podIP=${status?.podIPs?.[0]?.ip}`);
        return { items, resourceVersion: "1" } as never;
      },
    },
    sources: {
      known: {
        egress: () => undefined,
        service: () => undefined,
        usesOf: usesFrom([{ ...NAT, entries: [], text: "" }], () => undefined),
      },
      egresses: { store: { getByKey: () => undefined } } as never,
    },
    places: {
      of: ({ metadata: { name } }) => {
        looks += 1;
        return isThere(name) ? place(name) : undefined;
      },
      open: ({ path }) => (isThere(path.slice(11)) ? kernel.openNetNs({ path }) : undefined),
    },
    pods: () => pods,
    podsAt: (address) => pods.filter(({ addresses }) => addresses.map(String).includes(address)),
    openElements: () => elements,
  });
  return { kernel, parts, elements, asked, looks: () => looks };
}

test("nodeRouters: pods with the labels of a router and a network are routers; their places are looked up once, and anew when the namespace is another one", async () => {
  const labels = egressLabels(NAT.name);
  const bed = open([
    pod("nat-1", "10.64.0.8", { namespace: NAT.namespace, labels }),
    pod("nat-2", "10.64.0.9", { namespace: NAT.namespace, labels, hostNetwork: true }),
    pod("web", "10.64.0.7", { names: "nat" }),
  ]);
  bed.kernel.createNetNs("nat-1")[Symbol.dispose]();
  await bed.elements.commit(new ElementBatch(ROUTER_TABLE, { record: true }).add("spent4", `\x0a\x40\0\x07${TO}`));
  for (let pass = 0; pass < 3; pass += 1) {
    const all = bed.parts.routers();
    assert.deepEqual(
      all.map(({ name, egress }) => [name, egress]),
      [["nat-1", NAT]],
    );
    const [first] = (await all[0]?.refused({})) ?? [];
    assert.equal(
      `${first?.client} ${first?.protocol} ${first?.address} ${first?.port}`,
      "10.64.0.7 tcp 203.0.113.9 443",
    );
  }
  assert.equal(bed.looks(), 1);
  const [router] = bed.parts.routers();
  bed.kernel.deleteNetNs("nat-1");
  assert.deepEqual(await router?.refused({}), [], "it has ended");
  assert.deepEqual(bed.parts.routers(), []);
  bed.kernel.createNetNs("nat-1")[Symbol.dispose]();
  assert.equal((await bed.parts.routers()[0]?.refused({}))?.length, 1);
});

test("nodeRouters: a pod that may not use the Egress, or does not, is no client of it, whatever addresses a router's table has; one elsewhere is found by its first address", async () => {
  const bed = open(
    [
      pod("web", "10.64.0.7", { names: "nat" }),
      pod("plain", "10.64.0.6"),
      pod("other", "10.64.0.5", { names: "another" }),
    ],
    [
      pod("far", "10.65.0.7", { names: "nat" }),
      pod("far-plain", "10.65.0.6"),
      pod("far-host", "192.0.2.1", { names: "nat", hostNetwork: true }),
    ],
  );
  const of = async (text: string): Promise<string | undefined> => {
    const found = await bed.parts.clientOf(IpAddress.parse(text), NAT, {});
    return found === undefined ? undefined : `${found.kind} ${found.namespace}/${found.name}`;
  };
  assert.equal(await of("10.64.0.7"), "Pod default/web");
  for (const text of ["10.64.0.6", "10.64.0.5"]) assert.equal(await of(text), undefined, text);
  assert.deepEqual(bed.asked, [], "pods of the node cost no request");
  assert.equal(await of("10.65.0.7"), "Pod default/far");
  for (const text of ["10.65.0.6", "192.0.2.1", "203.0.113.9"]) assert.equal(await of(text), undefined, text);
  assert.deepEqual(bed.asked[0], "status.podIP=10.65.0.7");
});
