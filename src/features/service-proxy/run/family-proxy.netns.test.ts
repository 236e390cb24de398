import assert from "node:assert/strict";
import { createSocket, type Socket } from "node:dgram";
import { once } from "node:events";
import { after, before, test } from "node:test";
import { IpAddress, type IpFamily } from "#base/ip";
import { openConntrack } from "#kernel/conntrack";
import { bindUdp } from "#kernel/socket";
import { until } from "#test/lab";
import { DataPlane, Ledger } from "../dataplane/index.ts";
import { Bed } from "../testing/bed.ts";
import { addressesOf, NODE, ruleOptions, SERVICE_PORT, servicePort, TARGET_PORT } from "../testing/fixture.ts";
import { type SliceView, Tracker } from "../track/index.ts";
import { FamilyProxy } from "./index.ts";

let bed: Bed;
let more: Record<IpFamily, readonly IpAddress[]>;
before(async () => {
  bed = await Bed.open(`isp-udp-${process.pid}`);
  more = { 4: await bed.serveMore(4, 2), 6: await bed.serveMore(6, 2) };
});
after(() => bed[Symbol.asyncDispose]());

function sliceOf(family: IpFamily, addresses: readonly IpAddress[]): SliceView {
  return {
    metadata: { name: "s", namespace: "ns", uid: "1", resourceVersion: "1" },
    service: "ns/svc",
    family,
    ports: [{ name: "http", protocol: "UDP", port: TARGET_PORT }],
    endpoints: addresses.map((address) => ({
      address: address.toString(),
      ready: true,
      serving: true,
      terminating: false,
      nodeName: "node-b",
      zoneHints: [],
      nodeHints: [],
    })),
  };
}

/** A client that keeps its port, and so its flow. */
async function openFlow(family: IpFamily): Promise<Socket> {
  const socket = createSocket({ type: family === 4 ? "udp4" : "udp6" });
  const listening = once(socket, "listening");
  const any = IpAddress.parse(family === 4 ? "0.0.0.0" : "::");
  socket.bind({ fd: bindUdp(any, 0, { netns: bed.netns("external") }) });
  await listening;
  return socket;
}

for (const family of [4, 6] as const) {
  test(`FamilyProxy: a UDP flow follows the endpoints: when its own goes, when all go and come back, IPv${family}`, async (t) => {
    const { nft, elements } = bed;
    const netns = bed.netns("node");
    using conntrack = openConntrack(netns);
    const tracker = new Tracker(family, { node: NODE, nodeIPs: [] });
    const plane = new DataPlane(
      { nft, elements, ledger: new Ledger(elements) },
      { ...ruleOptions(family), tableName: "kube-proxy" },
    );
    const proxy = new FamilyProxy({ tracker, plane, conntrack }, { minSyncMs: 0, syncMs: 1000 });
    const stop = new AbortController();
    const running = proxy.run({ signal: stop.signal });
    t.after(async () => {
      stop.abort();
      await running;
    });
    const set = (addresses: readonly IpAddress[]): void => {
      tracker.setSlice("ns/s", sliceOf(family, addresses));
      proxy.request();
    };
    const port = servicePort(family, { protocol: "UDP" });
    tracker.setService("ns/svc", [port]);
    proxy.open();
    const [first, second] = more[family];
    assert.ok(first !== undefined && second !== undefined);
    const client = await openFlow(family);
    t.after(() => client.close());
    let answers = 0;
    client.on("message", () => {
      answers += 1;
    });
    client.on("error", () => undefined); // refused while there is nobody
    const { clusterIP } = addressesOf(family);
    const ask = (): void => client.send("?", SERVICE_PORT, clusterIP.toString());
    const flows = (): string[] =>
      conntrack.list({ family, protocol: 17, original: { dst: clusterIP } }).map(({ reply }) => String(reply.src));
    const answeredBy = (address: IpAddress): Promise<void> =>
      until(`${address} answers the flow`, () => {
        ask();
        return answers > 0 && flows().includes(String(address));
      });

    set([first]);
    await answeredBy(first);
    answers = 0;
    set([second]);
    await answeredBy(second);
    assert.deepEqual(flows(), [String(second)]);
    set([]);
    await until("the flow is forgotten with the last endpoint", () => flows().length === 0);
    answers = 0;
    set([first]);
    await answeredBy(first);
  });
}
