/** `coild` as shipped: the source guard of its pods' links, through ADD, events, exceptions, kills, flushes and DEL. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { type TestContext, test } from "node:test";
import { IpAddress } from "#base/ip";
import { GUARD_REASONS, readRefusals, removeGuard } from "#features/source-guard";
import { openKernel } from "#kernel/net";
import { openNft } from "#kernel/nft";
import { openNftElements } from "#kernel/nft-elements";
import { resources } from "#kube/client";
import { CniNode, OUTSIDE_IPV4, OUTSIDE_IPV6 } from "#test/cni-node";
import { arp, type Frame, sendFrames, udp } from "#test/forged-frames";
import { until } from "#test/lab";

const FORGED = IpAddress.parse("203.0.113.9");
const OUTSIDE = { v4: IpAddress.parse(OUTSIDE_IPV4), v6: IpAddress.parse(OUTSIDE_IPV6) };

/** A node with `coild`, and namespaces for pods. */
async function open(t: TestContext, flags: readonly string[] = []) {
  const node = await CniNode.open("guard", flags);
  const kernel = openKernel();
  const pods = ["a", "b"].map((name) => `isthmus-guard-${process.pid}-${name}`);
  for (const name of pods) kernel.createNetNs(name)[Symbol.dispose]();
  const stack = new DisposableStack();
  t.after(async () => {
    stack.dispose();
    await node[Symbol.asyncDispose]();
    for (const name of pods) kernel.deleteNetNs(name);
  });
  const netns = stack.use(kernel.openNetNs({ name: node.netns }));
  const nft = stack.use(openNft(netns));
  const elements = stack.use(openNftElements(netns));
  const callOf = (at: number) => ({ containerId: `c${at}`, netns: pods[at] ?? "", pod: `p${at}` });
  const add = async (at: number, annotations: Readonly<Record<string, string>> = {}): Promise<IpAddress[]> => {
    await node.createPod(`p${at}`);
    const patch = { type: "merge", body: { metadata: { annotations } } } as const;
    await node.api.patch(resources.pods, { namespace: "default", name: `p${at}` }, patch);
    return (await node.call("Add", callOf(at))).map((text) => IpAddress.parse(text));
  };
  const send = (at: number, frames: readonly Frame[]): void => {
    using pod = kernel.openNetNs({ name: pods[at] ?? "" });
    using inside = kernel.openStack(pod);
    using host = kernel.openStack(netns);
    const link = inside.links.get({ name: "eth0" });
    const peer = host.links.get({ index: link?.peerIndex ?? 0 });
    if (link?.mac === undefined || peer?.mac === undefined) assert.fail("the pod has no link");
    sendFrames(pod, { index: link.index, mac: link.mac, peerMac: peer.mac }, frames);
  };
  const refused = (reason: (typeof GUARD_REASONS)[number]): number =>
    nft.listCounters({ family: reason === "arp" ? "arp" : "inet", name: "source-guard" }, `refuse-${reason}`)[0]
      ?.packets ?? 0;
  /** Another program removes a route: the survey that restores it also looks at the guard. */
  const survey = (): string => node.ip("route", "flush", "table", "116");
  const setAllowed = (allowed: string | null) =>
    node.api.patch(
      resources.namespaces,
      { name: "default" },
      { type: "merge", body: { metadata: { annotations: { "isthmus.dev/allowed-sources": allowed } } } },
    );
  const events = async (reason: string) =>
    (await node.api.listAll(resources.events, { namespace: "default" })).items.filter(
      (event) => event.reason === reason,
    );
  const reaches = (at: number, address: string): boolean => {
    try {
      execFileSync("ip", ["netns", "exec", pods[at] ?? "", "ping", "-c1", "-W5", "-q", address]);
      return true;
    } catch {
      return false;
    }
  };
  return { node, nft, elements, callOf, add, send, refused, survey, setAllowed, events, reaches };
}

test("coild: a pod sends as itself alone from its first packet on; the first other packet is one event of it, and DEL leaves nothing", async (t) => {
  const { node, elements, add, send, refused, survey, events, reaches, callOf } = await open(t);
  // The way back from outside.
  execFileSync("ip", ["-n", node.outside, "route", "add", "10.210.0.0/26", "via", "198.51.100.2"]);
  execFileSync("ip", ["-n", node.outside, "route", "add", "fd00:210::/122", "via", "2001:db8:1::2"]);
  const [own = assert.fail()] = await add(0);
  const [other = assert.fail(), other6 = assert.fail()] = await add(1);
  assert.ok(
    reaches(0, OUTSIDE_IPV4) && reaches(0, OUTSIDE_IPV6) && reaches(0, String(other)) && reaches(0, String(other6)),
  );
  assert.equal(
    GUARD_REASONS.reduce((sum, reason) => sum + refused(reason), 0),
    0,
    "what pods send by themselves passes",
  );
  send(0, [udp(other, OUTSIDE.v4), udp(FORGED, OUTSIDE.v4), udp(other6, OUTSIDE.v6)]);
  send(0, [arp("request", { ip: other, mac: (await import("#base/ip")).MacAddress.parse("02:00:00:00:00:01") }, own)]);
  await until("all are counted", () => refused("source") === 3 && refused("arp") === 1, { everyMs: 5 });
  survey();
  await until("the pod has an event", async () => (await events("SourceRefused")).length > 0);
  const [event = assert.fail()] = await events("SourceRefused");
  assert.equal(event.regarding?.name, "p0");
  assert.match(event.note ?? "", new RegExp(`${String(other).replaceAll(".", "\\.")}.*isthmus\\.dev/extra-sources`));
  await node.call("Del", callOf(0));
  await node.call("Del", callOf(1));
  survey();
  for (const [family, set] of [
    ["inet", "links"],
    ["inet", "pods4"],
    ["inet", "own6"],
    ["arp", "pods4"],
  ] as const)
    assert.deepEqual(elements.list({ family, name: "source-guard" }, set), [], `${family} ${set}`);
  await until("nothing is remembered of links that are gone", () => readRefusals(elements).length === 0);
});

test("coild: killed, it leaves the guard, and the next one adopts it without a write; flushed by others it is back; off removes it", async (t) => {
  const { node, nft, elements, add, send, refused } = await open(t);
  const [, other6 = assert.fail()] = await add(1);
  await add(0);
  await node.killCoild();
  const generation = elements.generation();
  send(0, [udp(other6, OUTSIDE.v6)]);
  await until("it is refused while coild is away", () => refused("source") === 1, { everyMs: 5 });
  await node.startCoild();
  await until("coild has looked at the kernel", () =>
    /"attachments of pods were read from the kernel"/.test(node.said()),
  );
  await until("extra sources are known", () => node.api.listAll(resources.pods).then(() => true));
  assert.equal(elements.generation(), generation, "the next coild writes nothing");
  removeGuard({ nft, elements });
  await until(
    "the tables are back, with the pods",
    () => elements.names({ family: "arp", name: "source-guard" }) !== undefined,
  );
  // Tables that are made before the annotations of running pods are known judge these afterwards.
  const isInForce = (): boolean => {
    send(0, [udp(other6, OUTSIDE.v6)]);
    return refused("source") > 0;
  };
  await until("and in force", isInForce, { everyMs: 20 });
  await node.endCoild();
  await node.startCoild("--source-guard=count");
  send(0, [udp(other6, OUTSIDE.v6)]);
  await until("counted", () => refused("source") === 1, { everyMs: 5 });
  await node.endCoild();
  await node.startCoild("--source-guard=off");
  for (const family of ["inet", "arp"] as const)
    assert.equal(elements.names({ family, name: "source-guard" }), undefined, `off leaves no table ${family}`);
});

test("coild: extra sources count as far as the Namespace allows, at once when that changes, also for pods of before a restart", async (t) => {
  const { node, elements, add, setAllowed, events } = await open(t);
  const extras = (): number => elements.list({ family: "inet", name: "source-guard" }, "extra4").length;
  await add(0, { "isthmus.dev/extra-sources": "203.0.113.0/24" });
  assert.equal(extras(), 0);
  await until("the refusal is an event", async () => (await events("ExtraSourcesRefused")).length === 1);
  await setAllowed("203.0.113.0/25");
  await until("the allowed part counts", () => extras() > 0);
  await node.killCoild();
  assert.ok(extras() > 0);
  // It has its address in the API by now.
  const pod = await node.api.get(resources.pods, { namespace: "default", name: "p0" });
  const [address = ""] = node.ip("-4", "route", "show", "table", "116").split(" ");
  await node.api.replaceStatus(resources.pods, { ...pod, status: { podIPs: [{ ip: address }] } });
  await node.startCoild();
  assert.ok(extras() > 0, "they stay while nobody has asked the API server");
  await setAllowed(null);
  await until("nothing is allowed any more", () => extras() === 0);
});
