import assert from "node:assert/strict";
import { test } from "node:test";
import { CniCode, CniError, parseResult } from "#wire/cni";
import { type RunDelegate, runVpcPlugin } from "./index.ts";

const ENV = {
  CNI_COMMAND: "ADD",
  CNI_CONTAINERID: "c1",
  CNI_NETNS: "/run/netns/s",
  CNI_IFNAME: "eth0",
  CNI_PATH: "/opt/cni/bin:relative:/usr/lib/cni",
  CNI_ARGS: 'VPC=demo;NICs=[{"portid":"a=b"}];Tenant=t',
};
const RESULT = JSON.stringify({
  cniVersion: "1.1.0",
  interfaces: [{ name: "eth0" }],
  ips: [{ address: "10.0.0.5/24" }],
});
type Agent = Parameters<typeof runVpcPlugin>[3]["callAgent"];

async function run(
  init: {
    readonly env?: object;
    readonly config?: object;
    readonly agent?: Agent;
    readonly runDelegate?: RunDelegate;
  } = {},
): Promise<{ readonly exitCode: number; readonly json: Readonly<Record<string, unknown>> }> {
  const stdin = JSON.stringify({ cniVersion: "0.4.0", name: "vpc", type: "vpc-neutron", ...init.config });
  const { exitCode, to, text } = await runVpcPlugin("vpc-neutron", { ...ENV, ...init.env }, Promise.resolve(stdin), {
    callAgent: init.agent ?? (async () => parseResult(JSON.parse(RESULT))),
    runDelegate: init.runDelegate ?? (() => assert.fail("no delegate is wanted")),
  });
  assert.equal(to, "stdout");
  return { exitCode, json: text === "" ? {} : (JSON.parse(text) as Record<string, unknown>) };
}

const refuses =
  (code: number): Agent =>
  async () => {
    throw new CniError(code, "no");
  };

test("vpc-neutron: passes the call to the agent of the node, and its result in the version of the configuration", async () => {
  const asked: string[] = [];
  const agent: Agent = async (socket, call) => {
    if (call.method === "GC") assert.fail(call.method);
    const { args, containerId } = call.args;
    asked.push(socket, call.method, containerId, args["NICs"] ?? "", args["VPC"] ?? "");
    return parseResult(JSON.parse(RESULT));
  };
  const { exitCode, json } = await run({ agent });
  assert.deepEqual(asked, ["/run/isthmus/vpc.sock", "Add", "c1", '[{"portid":"a=b"}]', "demo"]);
  assert.deepEqual(
    [exitCode, json],
    [
      0,
      { cniVersion: "0.4.0", interfaces: [{ name: "eth0" }], ips: [{ version: "4", address: "10.0.0.5/24" }], dns: {} },
    ],
  );
  assert.deepEqual(await run({ env: { CNI_COMMAND: "DEL" } }), { exitCode: 0, json: {} });
});

test("vpc-neutron: a pod without a VPC goes to the delegate, with name, version and the runtime's data; its output is the output", async () => {
  const given: Parameters<RunDelegate>[0][] = [];
  const runDelegate: RunDelegate = async (one) => {
    given.push(one);
    return '{"cniVersion":"0.4.0"}';
  };
  const config = { delegate: { type: "bridge", bridge: "br0" }, runtimeConfig: { mac: "x" } };
  const agent = refuses(CniCode.noVpc);
  for (const CNI_COMMAND of ["ADD", "DEL", "CHECK"]) {
    assert.deepEqual(await run({ env: { CNI_COMMAND }, config, agent, runDelegate }), {
      exitCode: 0,
      json: { cniVersion: "0.4.0" },
    });
  }
  assert.equal(given.length, 3);
  assert.deepEqual([given[0]?.type, given[0]?.folders], ["bridge", ["/opt/cni/bin", "/usr/lib/cni"]]);
  assert.deepEqual(JSON.parse(given[0]?.config ?? ""), {
    runtimeConfig: { mac: "x" },
    type: "bridge",
    bridge: "br0",
    name: "vpc",
    cniVersion: "0.4.0",
  });
});

test("vpc-neutron: delegates of a list are run as a runtime runs them, each with its part of the runtime's data", async () => {
  const given: (readonly [string, Readonly<Record<string, unknown>>])[] = [];
  const runDelegate: RunDelegate = async ({ type, config }) => {
    given.push([type, JSON.parse(config)]);
    return `{"cniVersion":"0.4.0","by":"${type}"}`;
  };
  const [one, other] = [
    { type: "coil", socket: "/run/coild.sock" },
    { type: "portmap", capabilities: { portMappings: true, bandwidth: false } },
  ];
  const runtimeConfig = { portMappings: [{ hostPort: 80 }], bandwidth: {}, "io.kubernetes.cri.pod-annotations": {} };
  const config = { delegate: { cniVersion: "1.0.0", name: "other", plugins: [one, other] }, runtimeConfig };
  const ways = { agent: refuses(CniCode.noVpc), runDelegate };
  const network = { name: "vpc", cniVersion: "0.4.0" };
  const portmap = { ...other, ...network, runtimeConfig: { portMappings: [{ hostPort: 80 }] } };
  const added = await run({ config, ...ways });
  assert.deepEqual(added, { exitCode: 0, json: { cniVersion: "0.4.0", by: "portmap" } });
  const result = { cniVersion: "0.4.0", by: "coil" };
  assert.deepEqual(given.splice(0), [
    ["coil", { ...one, ...network }],
    ["portmap", { ...portmap, prevResult: result }],
  ]);
  const prevResult = { cniVersion: "0.4.0", ips: [] };
  const calls = { CHECK: ["coil", "portmap"], DEL: ["portmap", "coil"] };
  for (const [CNI_COMMAND, order] of Object.entries(calls)) {
    assert.equal((await run({ env: { CNI_COMMAND }, config: { ...config, prevResult }, ...ways })).exitCode, 0);
    const byType = { coil: { ...one, ...network, prevResult }, portmap: { ...portmap, prevResult } };
    assert.deepEqual(
      given.splice(0),
      order.map((type) => [type, byType[type as keyof typeof byType]]),
    );
  }
});

test("vpc-neutron: a list of delegates with disableCheck is not checked, as runtimes have it", async () => {
  const ran: string[] = [];
  const runDelegate: RunDelegate = async ({ type }) => {
    ran.push(type);
    return "";
  };
  const ways = { agent: refuses(CniCode.noVpc), runDelegate };
  for (const [disableCheck, checked] of [
    [true, []],
    ["true", []],
    [false, ["a"]],
    ["false", ["a"]],
  ] as const) {
    const config = { delegate: { disableCheck, plugins: [{ type: "a" }] } };
    assert.deepEqual(await run({ env: { CNI_COMMAND: "CHECK" }, config, ...ways }), { exitCode: 0, json: {} });
    assert.deepEqual(ran.splice(0), checked, JSON.stringify(disableCheck));
  }
  const config = { delegate: { disableCheck: true, plugins: [{ type: "a" }] } };
  await run({ env: { CNI_COMMAND: "DEL" }, config, ...ways });
  assert.deepEqual(ran, ["a"]);
});

test("vpc-neutron: the first delegate that fails ends the call with its error; a result that is not JSON is 999", async () => {
  const ran: string[] = [];
  const config = { delegate: { plugins: [{ type: "a" }, { type: "b" }] } };
  const agent = refuses(CniCode.noVpc);
  for (const [CNI_COMMAND, only] of [
    ["ADD", "a"],
    ["DEL", "b"],
  ] as const) {
    const failing: RunDelegate = async ({ type }) => {
      ran.push(type);
      throw new CniError(11, "later");
    };
    const { exitCode, json } = await run({ env: { CNI_COMMAND }, config, agent, runDelegate: failing });
    assert.deepEqual([exitCode, json["code"], ran.splice(0)], [1, 11, [only]]);
  }
  const { json } = await run({ config, agent, runDelegate: async () => "no JSON" });
  assert.equal(json["code"], 999);
});

test("vpc-neutron: without a delegate such a pod is 104, its DEL succeeds; a delegate that is no plugin is 7", async () => {
  const agent = refuses(CniCode.noVpc);
  const failed = await run({ agent });
  assert.deepEqual([failed.exitCode, failed.json["code"]], [1, 104]);
  assert.deepEqual(await run({ agent, env: { CNI_COMMAND: "DEL" } }), { exitCode: 0, json: {} });
  for (const delegate of [
    ...[1, "bridge", {}, { type: "../bridge" }, { type: 5 }, { plugins: [] }, { plugins: 5 }],
    ...[{ plugins: [{ type: "bridge" }, {}] }, { plugins: [{ type: "a/b" }] }, { plugins: [null] }],
  ]) {
    const { json } = await run({ agent, config: { delegate } });
    assert.equal(json["code"], 7, JSON.stringify(delegate));
  }
});

test("vpc-neutron: other errors of the agent are passed on, for DEL too; it refuses to be behind another plugin", async () => {
  for (const code of [11, 101, 102, 105, 999]) {
    for (const CNI_COMMAND of ["ADD", "DEL"]) {
      const { exitCode, json } = await run({
        agent: refuses(code),
        env: { CNI_COMMAND },
        config: { delegate: { type: "bridge" } },
      });
      assert.deepEqual([exitCode, json["code"], json["msg"]], [1, code, "no"]);
    }
  }
  const chained = await run({ config: { prevResult: { cniVersion: "0.4.0", ips: [] } } });
  assert.deepEqual([chained.exitCode, chained.json["code"]], [1, 7]);
  const own = await run({ env: { CNI_NETNS: "/proc/self/ns/net" } });
  assert.equal(own.json["code"], 8);
  const unknown = await run({ env: { CNI_ARGS: "Other=1" } });
  assert.equal(unknown.json["code"], 4);
});

test("vpc-neutron: VERSION needs no agent, STATUS is the agent's word", async () => {
  const version = await run({ env: { CNI_COMMAND: "VERSION" }, agent: refuses(11) });
  assert.deepEqual(version.json["supportedVersions"], ["0.3.1", "0.4.0", "1.0.0", "1.1.0"]);
  const status = await run({ env: { CNI_COMMAND: "STATUS" }, config: { cniVersion: "1.1.0" }, agent: refuses(11) });
  assert.equal(status.json["code"], 50);
});
