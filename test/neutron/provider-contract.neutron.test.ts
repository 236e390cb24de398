// The contract of providers on a real Neutron without agents, as the fake cloud and the simulators keep it.
import { after, before } from "node:test";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { parseCredentials } from "#cloud/keystone";
import { CLOUDS } from "#cloud/vpc";
import { providerContract } from "#cloud/vpc-contract";
import { HttpProxy } from "#test/neutron-proxy";
import { NeutronServer } from "#test/neutron-server";

let server: NeutronServer;
let group = "";

before(async () => {
  server = await NeutronServer.start();
  server.addAgent("node-1");
  await server.makeNetwork({ name: "vpc-1" }, ["192.168.0.0/24"]);
  group = (await server.make("security_group", { name: "web" })).id;
  server.remember();
});
after(() => server[Symbol.asyncDispose]());

providerContract("Neutron", async () => {
  server.restore();
  const proxy = await HttpProxy.open(server.url);
  const access = parseCredentials(`clouds: {test: {auth_type: none, auth: {endpoint: '${proxy.url.origin}'}}}`);
  const cloud = CLOUDS.find(({ type }) => type === "neutron");
  if (cloud === undefined) throw new Error("no cloud is Neutron");
  const provider = cloud.open({ clock: systemClock, log: nullLogger }, { name: "neutron", config: {}, access });
  return {
    provider,
    vpc: "vpc-1",
    projectId: undefined,
    freeIp: "192.168.0.200",
    group,
    host: "node-1",
    setAway: (isAway) => {
      proxy.rule = () => (isAway ? "lose-request" : "pass");
    },
    [Symbol.asyncDispose]: async () => {
      await provider[Symbol.asyncDispose]();
      await proxy[Symbol.asyncDispose]();
    },
  };
});
