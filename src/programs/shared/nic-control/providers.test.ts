import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { type Logger, nullLogger } from "#base/log";
import { createRegistry } from "#base/metrics";
import { CLOUDS } from "#cloud/vpc";
import { NicControllerError } from "#features/nic-controller";
import { type NicPolicySpec, nicCrds } from "#kube/nic";
import { FakeService } from "#test/fake-service";
import { nicMetrics } from "./metrics.ts";
import { openProvider, Providers } from "./providers.ts";

const SECRET = "kept-from-everybody";
const FILE = `clouds: {a: {auth: {auth_url: 'http://127.0.0.1:9/v3', username: u, password: ${SECRET}, user_domain_name: d, project_name: p, project_domain_name: d}}}\n`;

function open(t: TestContext, policy: NicPolicySpec = {}) {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-providers-"));
  const path = join(folder, "clouds.yaml");
  const logged: string[] = [];
  const note = (message: string, fields?: object): void => void logged.push(JSON.stringify([message, fields]));
  const log: Logger = { ...nullLogger, info: note, warn: note, error: note, debug: note, child: () => log };
  const world = { policy };
  const deps = { policy: () => world.policy, isLeading: () => true, metrics: nicMetrics(createRegistry()), log };
  const providers = new Providers(deps, path);
  t.after(async () => {
    await providers[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true, force: true });
    assert.doesNotMatch(logged.join("\n"), new RegExp(SECRET));
  });
  return { providers, path, world, logged };
}

const unknown = (text: RegExp) => (error: unknown) => {
  assert.ok(error instanceof NicControllerError && error.code === "unknown-provider", String(error));
  assert.match(error.message, text);
  assert.doesNotMatch(error.message, new RegExp(SECRET));
  return true;
};

test("Providers: without a policy there is one of Neutron, opened once there are credentials", (t) => {
  const { providers, path } = open(t);
  assert.throws(() => providers.get(undefined), unknown(/provider neutron cannot be opened: .*clouds.yaml/));
  writeFileSync(path, FILE);
  assert.equal(providers.get(undefined).name, "neutron");
  assert.equal(providers.get("neutron"), providers.get(undefined));
  assert.throws(() => providers.get("other"), unknown(/there is no provider other/));
});

test("Providers: other credentials open a provider again; broken ones leave it as it was, and no message has a secret", (t) => {
  const { providers, path, logged } = open(t);
  writeFileSync(path, FILE);
  const first = providers.get(undefined);
  providers.reload();
  assert.equal(providers.get(undefined), first, "nothing has changed");
  for (const broken of [`password: ${SECRET}: [`, FILE.replace("username: u, ", ""), ""]) {
    writeFileSync(path, broken);
    providers.reload();
    assert.equal(providers.get(undefined), first);
  }
  assert.equal(logged.filter((line) => line.includes("keeps its settings")).length, 3);
  writeFileSync(path, FILE.replace("username: u", "username: v"));
  providers.reload();
  assert.notEqual(providers.get(undefined), first);
});

test("Providers: each of several has its file in the folder, and its config is checked", (t) => {
  const providers: NonNullable<NicPolicySpec["providers"]> = [
    { name: "one", type: "neutron", config: { vpcIs: "project" } },
    { name: "two", type: "alcor", default: true, config: { projectID: "p" } },
    { name: "three", type: "alcor" },
    { name: "four", type: "neutron", config: { vpcIs: "planet", colour: "blue" } },
  ];
  const bed = open(t, { providers });
  mkdirSync(bed.path);
  for (const { name } of providers)
    writeFileSync(
      join(bed.path, `${name}.yaml`),
      "clouds: {a: {auth_type: none, auth: {endpoint: 'http://127.0.0.1:9'}}}\n",
    );
  assert.deepEqual([bed.providers.get("one").name, bed.providers.get(undefined).name], ["one", "two"]);
  assert.throws(() => bed.providers.get("three"), unknown(/config of provider three: projectID/));
  assert.throws(() => bed.providers.get("four"), unknown(/vpcIs: must be network or project/));
  assert.equal(bed.providers.files().length, 5);
  bed.world.policy = { providers: providers.slice(0, 2).map(({ name, type }) => ({ name, type })) };
  assert.throws(() => bed.providers.get(undefined), unknown(/none of several providers is the default one/));
});

test("openProvider: an endpoint of Neutron may end in a slash or /v2.0, whoever names it", async (t) => {
  const metrics = nicMetrics(createRegistry());
  const folder = mkdtempSync(join(tmpdir(), "isthmus-providers-"));
  const path = join(folder, "clouds.yaml");
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const hour = 3_600_000;
  for (const [given, asked] of [
    ["", "/v2.0/ports"],
    ["/", "/v2.0/ports"],
    ["/v2.0", "/v2.0/ports"],
    ["/v2.0/", "/v2.0/ports"],
    ["/network/v2.0/", "/network/v2.0/ports"],
    ["/network", "/network/v2.0/ports"],
  ] as const) {
    await using neutron = await FakeService.open(() => ({ status: 200, body: { ports: [] } }));
    const endpoint = `${neutron.url.origin}${given}`;
    await using keystone = await FakeService.open(() => ({
      status: 201,
      headers: { "X-Subject-Token": "t" },
      body: {
        token: {
          expires_at: new Date(Date.now() + hour).toISOString(),
          catalog: [{ type: "network", endpoints: [{ interface: "public", region_id: "r", url: endpoint }] }],
        },
      },
    }));
    for (const file of [
      FILE.replace("http://127.0.0.1:9/v3", `${keystone.url.origin}/v3`),
      `clouds: {a: {auth_type: token, auth: {token: t, endpoint: '${endpoint}'}}}\n`,
      `clouds: {a: {auth_type: none, auth: {endpoint: '${endpoint}'}}}\n`,
    ]) {
      writeFileSync(path, file);
      await using provider = openProvider({ name: "n", type: "neutron" }, path, { metrics, log: nullLogger });
      await provider.findPorts(["d"], { signal: t.signal });
    }
    assert.deepEqual(
      neutron.requests.map((one) => one.path.split("?")[0]),
      Array(3).fill(asked),
    );
  }
});

test("providers: a NicPolicy can name each kind of cloud, and no other", () => {
  const text = JSON.stringify(nicCrds);
  const [, types = ""] = /"The kind of its API\.","enum":(\[[^\]]*\])/.exec(text) ?? [];
  assert.deepEqual(
    JSON.parse(types),
    CLOUDS.map(({ type }) => type),
  );
});
