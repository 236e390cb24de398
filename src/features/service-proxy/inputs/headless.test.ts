/** Headless Services, against the embedded API server (docs/spec/service-proxy.md#2.1). */
import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { KubeClient, resources, type Service, staticConnection } from "#kube/client";
import { startApiServer } from "#lab/api-server";
import { until } from "#test/lab";
import { NODE } from "../testing/fixture.ts";
import { Tracker } from "../track/index.ts";
import { watchInputs } from "./inputs.ts";

const PORTS = [{ name: "http", port: 80, protocol: "TCP" as const }];

test("watchInputs: headless Services are neither listed nor told, and one that gets or loses its cluster IP follows", async (t) => {
  const server = await startApiServer({ listen: { host: "127.0.0.1", port: 0 }, log: nullLogger, clock: systemClock });
  const client = new KubeClient(staticConnection({ server: server.urls[0] ?? "" }), { clock: systemClock });
  const create = async (name: string, spec: object): Promise<void> => {
    const service = { metadata: { name, namespace: "default" }, spec: { ports: PORTS, ...spec } };
    await client.create(resources.services, service as unknown as Service);
  };
  const patch = (name: string, spec: object): Promise<unknown> =>
    client.patch(resources.services, { name, namespace: "default" }, { type: "merge", body: { spec } });
  await create("early", { clusterIP: "None" });
  await create("web", { clusterIP: "10.96.0.1", clusterIPs: ["10.96.0.1"] });

  const tracker = new Tracker(4, { node: NODE, nodeIPs: [] });
  const seen = new Set<string>();
  const stop = new AbortController();
  const running = watchInputs(
    client,
    {
      families: [{ family: 4, tracker, request: () => undefined, setServiceCIDRs: () => undefined }],
      onNode: () => true,
      onListed: () => undefined,
      onKnown: () => undefined,
      onService: (name) => void seen.add(name),
      onWatch: () => undefined,
      allowExternalIPs: true,
      onEvent: () => undefined,
      log: nullLogger,
      clock: systemClock,
    },
    { nodeName: NODE.name, signal: stop.signal },
  );
  t.after(async () => {
    stop.abort();
    await running;
    await client.close();
    await server.stop();
  });
  const services = (): string => [...tracker.services.keys()].sort().join(" ");
  await until("the Services are listed", () => services() === "default/web");
  await create("late", { clusterIP: "None" });
  await create("other", { type: "ExternalName", externalName: "a.example" });
  await patch("other", { type: "ClusterIP", externalName: null, clusterIP: "10.96.0.2", clusterIPs: ["10.96.0.2"] });
  await until("it has a cluster IP", () => services() === "default/other default/web");
  await patch("other", { type: "ExternalName", externalName: "a.example", clusterIP: null, clusterIPs: null });
  await until("it has lost it", () => services() === "default/web");
  await patch("other", { type: "ClusterIP", externalName: null, clusterIP: "None", clusterIPs: ["None"] });
  await patch("other", { type: "ExternalName", externalName: "a.example", clusterIP: null, clusterIPs: null });
  await patch("other", { type: "ClusterIP", externalName: null, clusterIP: "10.96.0.3", clusterIPs: ["10.96.0.3"] });
  await until("it was headless, and has one", () => services() === "default/other default/web");
  assert.deepEqual([...seen].sort(), ["default/other", "default/web"]);
});
