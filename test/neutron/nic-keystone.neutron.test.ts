// The shipped controller of NICs with a real Keystone and Neutron: with which rights it works, and what it tells without them (T-38).
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { resources } from "#kube/client";
import { KEYSTONE_ADMIN, KeystoneServer } from "#test/keystone-server";
import { until } from "#test/lab";
import { NicBed } from "#test/nic-bed";
import { nicOf } from "#test/nic-cluster";

const POLICY = readFileSync(join(import.meta.dirname, "../../deploy/nics/neutron-policy.yaml"), "utf8");
/** The rules without those for VPCs of all projects. */
const FIRST_PART = POLICY.slice(0, POLICY.indexOf("# To make ports in VPCs of all projects"));
/** Tokens live for so long; they are renewed at 80 % of it. */
const TOKEN_SECONDS = 30;
/** The pause between pods in a token's life, in milliseconds: the servers take a second of the processor for each. */
const BEAT_MS = 3000;
const ROLE = "isthmus-nics";
const PASSWORD = "password-of-the-controller";

describe("nic-controller with Keystone", () => {
  let bed: NicBed;
  let keystone: KeystoneServer;
  let shop: string;
  let infra: string;
  let stranded: string;
  let startedAt = 0;
  const ids = new Map<string, string>();
  const secrets = [PASSWORD, KEYSTONE_ADMIN.password];
  const cleanUps: (() => unknown)[] = [];

  after(async () => {
    for (const cleanUp of cleanUps) await cleanUp();
    await keystone[Symbol.asyncDispose]();
  });

  before(async () => {
    keystone = await KeystoneServer.start({ tokenSeconds: TOKEN_SECONDS });
    [shop, infra] = [await keystone.makeProject("shop"), await keystone.makeProject("infra")];
    const users = [
      // The role is enough, in any project.
      ["nics", [[ROLE, infra]]],
      [
        "own",
        [
          [ROLE, shop],
          ["member", shop],
          ["reader", shop],
        ],
      ],
      [
        "member",
        [
          ["member", shop],
          ["reader", shop],
        ],
      ],
    ] as const;
    for (const [name, roles] of users) ids.set(name, await keystone.makeUser({ name, password: PASSWORD, roles }));
    bed = await NicBed.open(
      { after: (cleanUp) => void cleanUps.push(cleanUp) },
      { keystone, policy: POLICY, network: { project_id: shop } },
    );
    use("nics", "infra");
    bed.run();
    startedAt = performance.now();
    // Its binding fails often enough in the time of the first tests.
    await bed.api.create(resources.nodes, { metadata: { name: "node-dead" } });
    bed.neutron.addAgent("node-dead", { isAlive: false });
    stranded = await bed.pod("stranded", { node: "node-dead" });
  });

  /** With this user and project the controller goes on. */
  function use(username: string, project: string): void {
    const domain = { user_domain_id: "default", project_domain_id: "default" };
    const auth = { auth_url: keystone.url.href, username, password: PASSWORD, project_name: project, ...domain };
    bed.writeCloud({ auth_type: "password", auth });
  }

  /** The status of a request of a user itself. */
  async function tries(
    username: string,
    project: string,
    method: string,
    path: string,
    body?: object,
  ): Promise<number> {
    const token = await keystone.tokenOf(username, PASSWORD, project);
    const answer = await fetch(new URL(`/v2.0/${path}`, bed.neutron.url), {
      method,
      headers: { "x-auth-token": token, "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    await answer.text();
    return answer.status;
  }

  test("T-38: with the role of the policy file it makes, binds and releases ports of another project, with groups and users' ports", async () => {
    // An administrator may make no groups for others.
    await tries("own", "shop", "POST", "security-groups", { security_group: { name: "web" } });
    const [group] = await bed.neutron.list("security-groups?name=web");
    const web = String(group?.["id"]);
    const [network] = await bed.neutron.list("networks?name=vpc-1");
    const own = { network_id: network?.["id"], project_id: shop, name: "mine" };
    const lent = String((await bed.neutron.request("POST", "ports", { port: own }))["port"]?.["id"]);
    const nics = [
      { subnet: "subnet-1", ip: "192.168.7.7", mac: "02:00:00:00:07:07", securityGroup: "web" },
      { name: "eth1" },
      { name: "eth2", portID: lent },
    ];
    const uid = await bed.pod("shops", { nics });
    await bed.untilClaim(uid, ({ status }) => status?.phase === "Created");
    await bed.schedule("shops");
    const claim = await bed.untilClaim(uid, ({ status }) => status?.phase === "Plumbable");
    assert.deepEqual(
      [nicOf(claim).vifType, nicOf(claim).host, nicOf(claim).vifDetails?.portFilter, nicOf(claim).ips?.[0]?.ip],
      ["ovs", "node-1", true, "192.168.7.7"],
    );
    const ports = await bed.ports();
    const port = ports.find(({ name }) => name === `nic-${uid}-eth0`);
    assert.deepEqual([port?.["project_id"], port?.["security_groups"], ports.length], [shop, [web], 4]);
    await bed.deletePod("shops");
    await bed.untilGone(uid);
    assert.deepEqual(
      (await bed.ports()).map((one) => one["device_id"]),
      [stranded],
    );
    const [back] = await bed.neutron.list(`ports?id=${lent}`);
    assert.deepEqual([back?.["device_id"], back?.["binding:host_id"]], ["", ""]);
  });

  test("T-38: the role allows nothing else: no networks, quotas or groups of others", async () => {
    const [network] = await bed.neutron.list("networks?name=vpc-1");
    const id = String(network?.["id"]);
    const [group] = await bed.neutron.list("security-groups?name=web");
    for (const [method, path, body] of [
      ["DELETE", `networks/${id}`],
      ["PUT", `networks/${id}`, { network: { name: "stolen" } }],
      ["POST", "networks", { network: { name: "x", project_id: shop } }],
      ["POST", "subnets", { subnet: { network_id: id, cidr: "10.66.0.0/24", ip_version: 4 } }],
      ["DELETE", `security-groups/${String(group?.["id"])}`],
      ["PUT", `quotas/${shop}`, { quota: { port: 1 } }],
    ] as const) {
      const status = await tries("nics", "infra", method, path, body);
      assert.ok(status === 403 || status === 404, `${method} ${path}: HTTP ${status}`);
    }
    const [after] = await bed.neutron.list("networks?name=vpc-1");
    assert.deepEqual([after?.["id"], after?.["name"], after?.["subnets"]], [id, "vpc-1", network?.["subnets"]]);
  });

  test("T-38, T-42: a host whose agent is not alive is told with it, which the role may see", async () => {
    const claim = await bed.untilClaim(
      stranded,
      ({ status }) => status?.nics?.[0]?.message?.includes("not alive") === true,
    );
    assert.deepEqual([nicOf(claim).state, nicOf(claim).reason], ["Failed", "BindingFailed"]);
    assert.match(nicOf(claim).message ?? "", /on host node-dead not alive: Open vSwitch agent/);
    await bed.deletePod("stranded");
    await bed.untilGone(stranded);
  });

  test("T-38: a token is renewed before it ends, and nobody notices", async () => {
    // Most of a life has passed in the tests before.
    let count = 0;
    while (performance.now() < startedAt + TOKEN_SECONDS * 1100) {
      count += 1;
      const uid = await bed.pod(`beat-${count}`, { node: "node-1" });
      await bed.untilClaim(uid, ({ status }) => status?.phase === "Plumbable");
      await bed.deletePod(`beat-${count}`);
      await bed.untilGone(uid);
      const nextAt = performance.now() + BEAT_MS;
      await bed.until("it is time for the next pod", async () => performance.now() > nextAt);
    }
    const uid = await bed.pod("after", { node: "node-1" });
    await bed.untilClaim(uid, ({ status }) => status?.phase === "Plumbable");
    await bed.deletePod("after");
    await bed.untilGone(uid);
    assert.doesNotMatch(await bed.everythingSaid(), /AuthFailed|cannot be renewed/);
  });

  test("T-38: a member without the role is told Unauthorized for the binding, and a binding heals with the role", async () => {
    use("member", "shop");
    let uid = "";
    let count = 0;
    await bed.until("the member's rights count", async () => {
      count += 1;
      uid = await bed.pod(`poor-${count}`, { node: "node-1" });
      const claim = await bed.untilClaim(
        uid,
        ({ status }) => status?.phase === "Plumbable" || status?.phase === "Failed",
      );
      if (claim.status?.phase === "Failed") return true;
      await bed.deletePod(`poor-${count}`);
      return false;
    });
    const refused = (await bed.claim(uid)) ?? assert.fail();
    assert.deepEqual([nicOf(refused).state, nicOf(refused).reason], ["Failed", "Unauthorized"]);
    assert.match(nicOf(refused).message ?? "", /binding:host_id|disallowed by policy/);
    await bed.until("an event tells it", async () =>
      (await bed.events(uid)).some(({ reason }) => reason === "Unauthorized"),
    );
    use("nics", "infra");
    await bed.untilClaim(uid, ({ status }) => status?.phase === "Plumbable");
    await bed.deletePod(`poor-${count}`);
    await bed.untilGone(uid);
  });

  test("T-38: an application credential works, and its end is AuthFailed until there is another", async () => {
    const user = { id: ids.get("nics") ?? "", name: "nics", password: PASSWORD };
    const credential = await keystone.makeCredential(user, "infra");
    secrets.push(credential.secret);
    const auth = {
      auth_url: keystone.url.href,
      application_credential_id: credential.id,
      application_credential_secret: credential.secret,
    };
    const opened = (await bed.everythingSaid()).split("provider opened again").length;
    bed.writeCloud({ auth_type: "v3applicationcredential", auth });
    await until("it is used", isUsed);
    async function isUsed(): Promise<boolean> {
      const uid = await bed.pod("keyed", { node: "node-1" });
      await bed.untilClaim(uid, ({ status }) => status?.phase === "Plumbable");
      await bed.deletePod("keyed");
      await bed.untilGone(uid);
      return (await bed.everythingSaid()).split("provider opened again").length > opened;
    }
    await keystone.deleteCredential(user, credential.id, "infra");
    // The token that the controller has lives on for a while. Pods that end then wait for other credentials.
    const uids: string[] = [];
    const isTold = async (): Promise<boolean> => {
      const uid = await bed.pod(`locked-${uids.length}`, { node: "node-1" });
      uids.push(uid);
      const claim = await bed.untilClaim(
        uid,
        ({ status }) => status?.nics?.[0]?.reason === "AuthFailed" || status?.phase === "Plumbable",
      );
      return nicOf(claim).reason === "AuthFailed";
    };
    await until("a pod is told", isTold, { deadlineMs: 60_000, everyMs: 2000 });
    const uid = uids.at(-1) ?? "";
    assert.match((await bed.claim(uid))?.status?.nics?.[0]?.message ?? "", /Could not find Application Credential/);
    use("nics", "infra");
    await bed.untilClaim(uid, ({ status }) => status?.phase === "Plumbable");
    for (const at of uids.keys()) await bed.deletePod(`locked-${at}`);
    for (const one of uids) await bed.untilGone(one);
    const left = (await bed.ports()).filter((port) => port["device_id"] !== stranded);
    assert.deepEqual(
      left.map(({ name }) => name),
      [],
    );
  });

  test("T-38: without the rules for all projects the role works in the project that it is in, and nowhere else", async () => {
    bed.neutron.setPolicy(FIRST_PART);
    use("own", "shop");
    const other = await bed.neutron.makeNetwork({ name: "foreign", project_id: infra }, ["10.77.0.0/24"]);
    const uid = await bed.pod("local", { node: "node-1", nics: [{ securityGroup: "web" }] });
    await bed.untilClaim(uid, ({ status }) => status?.phase === "Plumbable");
    const foreign = await bed.pod("abroad", { node: "node-1", vpc: other.id });
    await bed.untilClaim(foreign, ({ status }) => status?.nics?.[0]?.reason === "VpcNotFound");
    for (const name of ["local", "abroad"]) await bed.deletePod(name);
    for (const one of [uid, foreign]) await bed.untilGone(one);
    assert.deepEqual(await bed.ports(), []);
    bed.neutron.setPolicy(POLICY);
  });

  test("T-38: no secret and no token is in a log, an event, a claim, a pod or the policy", async () => {
    const said = await bed.everythingSaid();
    assert.ok(said.length > 10_000, "there is something to look at");
    for (const secret of secrets) assert.ok(!said.includes(secret), "a secret was told");
    // Fernet tokens begin so.
    assert.doesNotMatch(said, /gAAAA/);
  });
});
