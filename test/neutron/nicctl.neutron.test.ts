// `nicctl` and `isthmus audit` beside the shipped controller of NICs and a real Neutron: what an operator is told.
import assert from "node:assert/strict";
import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { parse } from "yaml";
import { type Pod, resources } from "#kube/client";
import type { NicPolicySpec } from "#kube/nic";
import { commandsOf, follow } from "#test/guide";
import { isthmus, type Outcome, type Running } from "#test/lab";
import { NicBed } from "#test/nic-bed";
import { NAMESPACE, nicOf } from "#test/nic-cluster";

const SECRET = "kept-from-everybody";
/** The namespace of the controller, its Lease and its webhooks. */
const OWN = "kube-system";

describe("nicctl on a real Neutron", () => {
  let bed: NicBed;
  let controller: Running;
  const cleanUps: (() => unknown)[] = [];
  after(async () => {
    for (const cleanUp of cleanUps) await cleanUp();
  });
  before(async () => {
    bed = await NicBed.open({ after: (cleanUp) => void cleanUps.push(cleanUp) }, { quota: 20 });
    for (const name of ["node-2", "node-3"]) await bed.api.create(resources.nodes, { metadata: { name } });
    bed.neutron.addAgent("node-3", { isAlive: false });
    controller = bed.run();
  });

  const kubeconfig = (): string => `--kubeconfig=${join(bed.folder, "admin")}`;
  const credentials = (file = "clouds.yaml"): string => `--credentials=${join(bed.folder, file)}`;
  const nicctl = (...args: readonly string[]): Promise<Outcome> => isthmus(["nicctl", kubeconfig(), ...args]);
  /** The output of a command that succeeds. */
  async function said(...args: readonly string[]): Promise<string> {
    const { code, stdout, stderr } = await nicctl(...args);
    assert.deepEqual([code, stderr], [0, ""], args.join(" "));
    return stdout;
  }
  /** Makes a pod whose port is plugged and active. */
  async function activePod(name: string, nics?: readonly object[]): Promise<string> {
    const uid = await bed.pod(name, { node: "node-1", ...(nics === undefined ? {} : { nics }) });
    const bound = await bed.untilClaim(uid, ({ status }) => status?.phase === "Plumbable");
    for (const { portID = "" } of bound.status?.nics ?? []) bed.neutron.setStatus(portID, "ACTIVE");
    await bed.tell(uid, "Plugged");
    await bed.untilClaim(uid, ({ status }) => status?.phase === "Active");
    return uid;
  }

  test("status and trace: a pod without a node, one on a host without an agent, one with an unknown subnet, and one that is ready (T-42)", async () => {
    const waiting = await bed.pod("waiting");
    await bed.untilClaim(waiting, ({ status }) => status?.phase === "Created");
    assert.match(
      await said("trace", "waiting"),
      /NIC eth0: stands at "scheduled"[\s\S]* {2}done +port +\S+ +\+\d\S*s +port \S+ was made/,
    );
    const lost = await bed.pod("lost", { node: "node-2" });
    await bed.untilClaim(lost, ({ status }) => status?.nics?.[0]?.reason === "BindingFailed");
    const story = await said("trace", `${NAMESPACE}/lost`);
    assert.match(story, /stands at "bound"\n/);
    assert.match(story, /(waiting|failed) +bound +- +BindingFailed: .*node-2/);
    assert.match(
      story,
      /remedy: start the provider's agent on that host, or set the annotation isthmus\.dev\/provider-host/,
    );
    const dead = await bed.pod("dead", { node: "node-3" });
    await bed.untilClaim(dead, ({ status }) => /alive/.test(status?.nics?.[0]?.message ?? ""));
    assert.match(
      await said("trace", "dead"),
      /failed +bound +- +BindingFailed: .*on host node-3 not alive: Open vSwitch agent/,
    );
    const faulty = await bed.pod("faulty", { nics: [{ name: "eth0", subnet: "nowhere" }] });
    await bed.untilClaim(faulty, ({ status }) => status?.nics?.[0]?.reason === "SubnetNotFound");
    await activePod("ready");
    const table = await said("status");
    for (const row of [
      /^NAMESPACE +POD +NIC +STATE +CLAIM +PORT +ADDRESSES +NODE +REASON$/m,
      /^default +faulty +eth0 +Failed +Failed +- +- +- +SubnetNotFound: /m,
      /^default +lost +eth0 +\S+ +\S+ +\S{36} +192\.168\.\S+\/16 +node-2 +BindingFailed: /m,
      /^default +ready +eth0 +Ready +Active +\S{36} +192\.168\.\S+\/16 +node-1 +-$/m,
      /^default +waiting +eth0 +InProgress +Created +\S{36} +192\.168\.\S+\/16 +- +-$/m,
    ])
      assert.match(table, row);
    const { nics } = JSON.parse(await said("status", "-n", NAMESPACE, "-o", "json", "ready")) as {
      nics: readonly { readonly pod: string; readonly state: string }[];
    };
    assert.deepEqual(
      nics.map(({ pod, state }) => [pod, state]),
      [["ready", "Ready"]],
    );
    await bed.until("the story is whole", async () => /NIC eth0: ready\n/.test(await said("trace", "ready")));
    const whole = await said("trace", "ready");
    assert.match(whole, /done +active +\S+Z +\+\d\S*s[\s\S]*events:\n.*PortCreated: eth0: port/);
    const missing = await nicctl("status", "nobody");
    assert.deepEqual([missing.code, missing.stdout], [1, ""]);
    assert.match(missing.stderr, /no NICs of a VPC have: default\/nobody/);
    assert.match((await nicctl("trace", "nobody")).stderr, /there is no pod default\/nobody/);
  });

  test("nics.md: the policy opens the VPC by its project, a pod gets the NICs of its annotations, and the commands show where they stand", async () => {
    const { networks = [] } = (await bed.neutron.request("GET", "networks?name=vpc-1")) as {
      networks?: readonly { readonly project_id?: string }[];
    };
    const words = { PROJECT: networks[0]?.project_id ?? "", "clouds.yaml": join(bed.folder, "clouds.yaml") };
    const here = { kubeconfig: join(bed.folder, "admin"), words };
    // kubectl sends this bed no token, as it has no TLS; guides.cluster runs the commands.
    const manifest = (section: string): unknown => {
      const [command = ""] = commandsOf("nics.md", section);
      return parse(command.split("\n").slice(1, -1).join("\n").replace("PROJECT", words.PROJECT));
    };
    const { spec } = manifest("Open a VPC to a namespace") as { readonly spec: NicPolicySpec };
    await bed.policy({ ...spec, allowUnboundVPCs: false });
    const pod = await bed.api.create(resources.pods, {
      ...(manifest("A pod with NICs") as Pod),
      metadata: { ...(manifest("A pod with NICs") as Pod).metadata, namespace: NAMESPACE },
    });
    await bed.untilClaim(pod.metadata.uid, ({ status }) => status?.phase === "Created");
    const [, look = ""] = commandsOf("nics.md", "A pod with NICs");
    const shown = await follow([look], here);
    for (const name of ["eth0", "eth1"])
      assert.match(
        shown,
        new RegExp(`^default +web +${name} +InProgress +Created +\\S{36} +192\\.168\\.\\S+ +- +-$`, "m"),
      );
    assert.match(shown, /NIC eth1: stands at "scheduled"/);
    const [, , doctor = ""] = commandsOf("nics.md", "Install");
    // Nodes of this bed have dead agents, and there are no webhooks.
    assert.match(await follow([`${doctor} || true`], here), /^ok +NicPolicy +.*1 bindings/m);
    await bed.policy({});
    await bed.api.delete(resources.pods, { namespace: NAMESPACE, name: "web" });
    await bed.until("its ports are deleted", async () => (await bed.claim(pod.metadata.uid)) === undefined);
  });

  test("cloud-init: the network configuration of a guest with two NICs, in YAML and JSON", async () => {
    const uid = await activePod("guest", [{ name: "eth0" }, { name: "eth1" }]);
    const claim = await bed.claim(uid);
    assert.ok(claim !== undefined);
    const config = parse(await said("cloud-init", "guest")) as {
      version: number;
      ethernets: Record<
        string,
        { match: { macaddress: string }; addresses: string[]; routes?: { via: string; metric: number }[] }
      >;
    };
    assert.equal(config.version, 2);
    for (const [at, name] of ["eth0", "eth1"].entries()) {
      const nic = nicOf(claim, name);
      const one = config.ethernets[name];
      assert.equal(one?.match.macaddress, nic.mac);
      assert.deepEqual(one?.addresses, [`${nic.ips?.[0]?.ip}/16`]);
      assert.deepEqual(
        one?.routes?.map(({ via, metric }) => [via, metric]),
        [["192.168.0.1", 100 + at]],
      );
    }
    assert.deepEqual(JSON.parse(await said("cloud-init", "guest", "-o", "json")), config);
    const early = await nicctl("cloud-init", "faulty");
    assert.deepEqual([early.code, early.stdout], [1, ""]);
    assert.match(early.stderr, /NIC eth0 has no MAC yet: it is Failed \(SubnetNotFound\)/);
  });

  test("gc: it lists the ports of this cluster that nobody wants, deletes them with --delete alone, and leaves all others", async () => {
    const [network] = await bed.neutron.list("networks?name=vpc-1");
    const make = async (cluster: string, more: object = {}): Promise<string> => {
      const uid = crypto.randomUUID();
      const port = {
        network_id: network?.["id"],
        name: `nic-${uid}-eth0`,
        device_id: uid,
        device_owner: "compute:isthmus",
        description: JSON.stringify({ cluster, ns: NAMESPACE, pod: "gone", nic: "eth0" }),
        ...more,
      };
      return String((await bed.neutron.request("POST", "ports", { port }))["port"]?.["id"]);
    };
    const orphan = await make("c1");
    const others = [await make("c2"), await make("c1", { name: "mine", description: "", device_owner: "" })];
    const before = (await bed.neutron.list("ports")).map(({ id }) => id).sort();
    const young = await said("gc", credentials());
    assert.equal(young, "no port of cluster c1 is without a NicClaim\n");
    const listed = await said("gc", credentials(), "--min-age=1ms");
    assert.match(listed, new RegExp(`neutron +${orphan} +nic-\\S+-eth0 +192\\.168`));
    assert.match(listed, /\n1 ports of cluster c1 would be deleted: nicctl gc --delete\n$/);
    assert.deepEqual((await bed.neutron.list("ports")).map(({ id }) => id).sort(), before);
    const { ports } = JSON.parse(await said("gc", credentials(), "--min-age=1ms", "--delete", "-o", "json")) as {
      ports: readonly { readonly port: string; readonly isDeleted: boolean }[];
    };
    assert.deepEqual(
      ports.map(({ port, isDeleted }) => [port, isDeleted]),
      [[orphan, true]],
    );
    assert.deepEqual(
      (await bed.neutron.list("ports")).map(({ id }) => id).sort(),
      before.filter((id) => id !== orphan),
    );
    for (const id of others) await bed.neutron.request("DELETE", `ports/${id}`);
  });

  test("gc: what cannot be deleted is told, and the others are deleted", async () => {
    const [network] = await bed.neutron.list("networks?name=vpc-1");
    const orphans: string[] = [];
    for (let count = 0; count < 2; count += 1) {
      const uid = crypto.randomUUID();
      const description = JSON.stringify({ cluster: "c1", ns: NAMESPACE, pod: "gone", nic: "eth0" });
      const port = { network_id: network?.["id"], name: `nic-${uid}-eth0`, device_id: uid, description };
      const made = await bed.neutron.request("POST", "ports", { port: { ...port, device_owner: "compute:isthmus" } });
      orphans.push(String(made["port"]?.["id"]));
    }
    const [kept = "", gone = ""] = orphans.sort();
    bed.proxy.rule = ({ method, path }) => (method === "DELETE" && path.endsWith(kept) ? "lose-request" : "pass");
    const { code, stdout } = await nicctl("gc", credentials(), "--cluster-id=c1", "--min-age=1ms", "--delete");
    bed.proxy.rule = () => "pass";
    assert.equal(code, 1);
    assert.match(
      stdout,
      new RegExp(`\n1 ports of cluster c1 were deleted\n${kept} was not deleted: Cannot delete port`),
    );
    assert.deepEqual(
      (await bed.neutron.list("ports")).map(({ id }) => String(id)).filter((id) => orphans.includes(id)),
      [kept],
    );
    await bed.neutron.request("DELETE", `ports/${kept}`);
    assert.ok(stdout.includes(gone));
  });

  test("gc: a provider that does not answer holds up no other, and is told", async () => {
    const [network] = await bed.neutron.list("networks?name=vpc-1");
    const uid = crypto.randomUUID();
    const description = JSON.stringify({ cluster: "c1", ns: NAMESPACE, pod: "gone", nic: "eth0" });
    const draft = { network_id: network?.["id"], name: `nic-${uid}-eth0`, device_id: uid, description };
    const made = await bed.neutron.request("POST", "ports", { port: { ...draft, device_owner: "compute:isthmus" } });
    const orphan = String(made["port"]?.["id"]);
    const folder = join(bed.folder, "several");
    mkdirSync(folder);
    copyFileSync(join(bed.folder, "clouds.yaml"), join(folder, "neutron.yaml"));
    writeFileSync(
      join(folder, "away.yaml"),
      "clouds: {a: {auth_type: none, auth: {endpoint: 'http://127.0.0.1:9/'}}}\n",
    );
    const one = { type: "neutron" } as const;
    await bed.policy({
      providers: [
        { name: "away", ...one },
        { name: "neutron", ...one, default: true },
      ],
    });
    const { code, stdout, stderr } = await nicctl(
      ...["gc", credentials("several"), "--cluster-id=c1", "--min-age=1ms", "--delete"],
    );
    await bed.policy({});
    assert.match(stdout, new RegExp(`neutron +${orphan} [\\s\\S]*\n1 ports of cluster c1 were deleted\n$`), stderr);
    assert.match(stderr, /away: .*127\.0\.0\.1:9/);
    assert.equal(code, 1);
    const left = (await bed.neutron.list("ports")).map(({ id }) => String(id));
    assert.equal(left.includes(orphan), false);
  });

  test("audit: pods, NicClaims and ports agree; a port that somebody deleted, moved or took down is named", async () => {
    const audit = async (): Promise<{
      readonly code: number | null;
      readonly kinds: readonly string[];
      readonly text: string;
    }> => {
      const { code, stdout, stderr } = await isthmus([
        "audit",
        kubeconfig(),
        `--nic-credentials=${join(bed.folder, "clouds.yaml")}`,
        "--json",
      ]);
      assert.equal(stderr, "");
      const { findings } = JSON.parse(stdout) as {
        findings: readonly { readonly kind: string; readonly text: string }[];
      };
      return {
        code,
        kinds: findings.map(({ kind }) => kind).sort(),
        text: findings.map(({ text }) => text).join("\n"),
      };
    };
    const uid = await activePod("audited");
    await bed.until("nothing disagrees", async () => (await audit()).code === 0);
    // The controller would mend what follows.
    await bed.kill(controller);
    const { portID = "" } = nicOf((await bed.claim(uid)) ?? assert.fail());
    bed.neutron.setStatus(portID, "DOWN");
    const down = await audit();
    assert.deepEqual([down.code, down.kinds], [1, ["nic-port-differs"]], down.text);
    assert.match(down.text, new RegExp(`port ${portID} .*audited.* has status DOWN instead of ACTIVE`));
    await bed.neutron.request("DELETE", `ports/${portID}`);
    const gone = await audit();
    assert.deepEqual(gone.kinds, ["nic-port-missing"], gone.text);
    assert.match(gone.text, new RegExp(`eth0 of the NicClaim of pod default/audited names port ${portID}`));
    const node = await bed.api.get(resources.nodes, { name: "node-1" });
    await bed.api.replace(resources.nodes, {
      ...node,
      metadata: { ...node.metadata, annotations: { "isthmus.dev/provider-host": "other" } },
    });
    const moved = await audit();
    assert.ok(moved.kinds.includes("nic-port-differs"), moved.text);
    assert.match(moved.text, /host node-1 instead of other, which is node node-1/);
    await bed.api.replace(resources.nodes, {
      ...(await bed.api.get(resources.nodes, { name: "node-1" })),
      metadata: { ...node.metadata, annotations: {}, resourceVersion: "" },
    });
  });

  test("doctor: a wrong provider-host, a dead agent, a full quota, no leader; and no secret, whatever is wrong with the credentials", async () => {
    bed.neutron.addAgent("node-2.example");
    const first = await nicctl("doctor", credentials());
    assert.deepEqual([first.code, first.stderr], [1, ""]);
    for (const line of [
      /^warning {2}NicPolicy +allowUnboundVPCs is true: whoever may make pods gets ports in any network/m,
      /^wrong {4}nic-controller +no replica leads/m,
      /^warning {2}webhooks +there is no isthmus-mutating-nic-webhook-configuration/m,
      /^ok {7}provider neutron +answers by these credentials, with \d+ extensions$/m,
      /^ok {7}provider neutron +project \S+ uses \d+ ports of 20$/m,
      /^ok {7}node node-1 +Open vSwitch agent of neutron is alive on host node-1$/m,
      /^wrong {4}node node-2 +neutron has no agent on host node-2, as the Node is named; hosts with agents: node-1, node-2\.example, node-3$/m,
      /^ +remedy: kubectl annotate node node-2 --overwrite isthmus\.dev\/provider-host=node-2\.example$/m,
      /^wrong {4}node node-3 +Open vSwitch agent of neutron on host node-3 is not alive/m,
    ])
      assert.match(first.stdout, line);
    await bed.policy({ vpcBindings: [{ vpc: "vpc-9", namespaces: [] }] });
    controller = bed.run();
    await bed.until("a replica leads", async () => {
      const { items } = await bed.api.listAll(resources.leases, { namespace: OWN });
      return items.some(({ spec }) => (spec?.holderIdentity ?? "") !== "");
    });
    const project = /project (\S+) uses/.exec(first.stdout)?.[1];
    await bed.neutron.request("PUT", `quotas/${project}`, { quota: { port: 1 } });
    const second = await nicctl("doctor", credentials());
    for (const line of [
      /^ok {7}nic-controller +\S+ leads$/m,
      /^wrong {4}provider neutron +VPC vpc-9: there is no network vpc-9$/m,
      /^wrong {4}provider neutron +project \S+ uses \d+ ports of 1$/m,
    ])
      assert.match(second.stdout, line);
    const broken: readonly (readonly [text: string, says: RegExp])[] = [
      [
        `clouds: {a: {auth: {auth_url: 'http://127.0.0.1:9/v3', username: u, password: ${SECRET}, user_domain_name: d, project_name: p, project_domain_name: d}}}`,
        /wrong {4}provider neutron +does not answer as it should: /,
      ],
      [`clouds: {a: {auth: {auth_url: 'http://127.0.0.1:9/v3', password: ${SECRET}}}}`, /auth\.username: is missing/],
      [
        `clouds: {a: {auth_type: token, auth: {token: ${SECRET}, endpoint: '${bed.proxy.url.href}x'}}}`,
        /does not answer as it should/,
      ],
      [`clouds: {a: {auth: {password: ${SECRET}, ]}}`, /the credentials are not YAML/],
      [`clouds: {a: {auth: {passwort: ${SECRET}}}}`, /the credentials have faults/],
    ];
    for (const [text, says] of broken) {
      writeFileSync(join(bed.folder, "broken.yaml"), text);
      for (const output of ["text", "json"]) {
        const { code, stdout, stderr } = await nicctl("doctor", credentials("broken.yaml"), "-o", output);
        assert.deepEqual([code, stderr], [1, ""], text);
        if (output === "text") assert.match(stdout, says);
        assert.doesNotMatch(stdout, new RegExp(SECRET), text);
      }
      const gc = await nicctl("gc", credentials("broken.yaml"));
      assert.deepEqual([gc.code, gc.stdout], [1, ""], text);
      assert.doesNotMatch(gc.stderr, new RegExp(SECRET), text);
    }
  });
});
