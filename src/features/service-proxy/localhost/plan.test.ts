import assert from "node:assert/strict";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import { NODE, NODE_PORT, SERVICE_PORT, servicePort } from "../testing/fixture.ts";
import { Tracker } from "../track/index.ts";
import { localNodePorts } from "./index.ts";

test("localNodePorts: has the NodePorts of TCP with the cluster IP of each family, and counts the others", () => {
  const trackers = ([4, 6] as const).map((family) => new Tracker(family, { node: NODE, nodeIPs: [] }));
  const [ipv4, ipv6] = trackers;
  assert.ok(ipv4 !== undefined && ipv6 !== undefined);
  ipv4.setService("ns/svc", [servicePort(4), servicePort(4, { portName: "dns", protocol: "UDP", nodePort: 30_053 })]);
  ipv6.setService("ns/svc", [servicePort(6)]);
  ipv6.setService("ns/six", [servicePort(6, { name: "six", nodePort: NODE_PORT + 1, port: 81 })]);
  ipv4.setService("ns/inner", [servicePort(4, { name: "inner", nodePort: 0 })]);
  // One that is not there by the second port, since another Service has it.
  ipv4.setService("ns/twice", [servicePort(4, { name: "twice", clusterIP: IpAddress.parse("172.30.0.99") })]);
  const { ports, others } = localNodePorts(trackers);
  const texts = Array.from(ports, ([port, { service, targets }]) => [
    port,
    service,
    ...Array.from(targets.values(), (target) => `${target.address} ${target.port}`),
  ]);
  assert.deepEqual(texts, [
    [NODE_PORT, "ns/svc", `172.30.0.41 ${SERVICE_PORT}`, `fd00:172:30::41 ${SERVICE_PORT}`],
    [NODE_PORT + 1, "ns/six", "fd00:172:30::41 81"],
  ]);
  assert.equal(others, 1);
});
