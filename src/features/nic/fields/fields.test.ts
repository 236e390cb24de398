import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { NamedNic, Nic } from "#kube/nic";
import { MAX_ANNOTATION_BYTES } from "./annotation.ts";
import { defaultNics } from "./defaults.ts";
import { type PodNics, readPodNics } from "./pod.ts";
import { readNics } from "./read-nics.ts";
import { type UpdateContext, updateFaults } from "./update.ts";
import { wishFaults } from "./validate.ts";

const PORT = "a2815656-76f7-46d4-9d11-057063db1a14";

/** The faults of NICs as a pod writes them, each as `path: text`. */
function faultsOf(nics: unknown, vpc: string | undefined = "vpc-1"): readonly string[] {
  const read = readNics(nics);
  const wish = defaultNics({ vpc, nics: read.nics });
  return [...read.faults, ...wishFaults(wish)].map(({ field, message }) => `${field}: ${message}`);
}

function podOf(annotations: Record<string, string>, spec = {}, context = {}): PodNics {
  return readPodNics({ metadata: { annotations }, spec }, context);
}

function podFaults(annotations: Record<string, string>): readonly string[] {
  const pod = podOf(annotations);
  return pod.kind === "faulty" ? pod.faults.map(({ field, message }) => `${field}: ${message}`) : [];
}

test("T-1: every alias and any case of a key gives the canonical name, in the canonical order", () => {
  const full: Nic = {
    name: "eth0",
    subnet: "subnet-1",
    ip: "192.168.0.12",
    portID: PORT,
    securityGroup: "sg",
    securityGroups: ["a", "b"],
    mac: "02:00:00:00:00:0a",
    tag: "any text; of = the user",
    ipv6Enabled: true,
    defaultRoute: true,
  };
  const aliases: Readonly<Record<string, readonly string[]>> = {
    name: ["Name", "NAME"],
    subnet: ["subnetName", "subnetname", "SubnetName", "Subnet"],
    ip: ["ipAddress", "IPAddress", "ipaddress", "IP"],
    portID: ["portId", "portid", "PortID", "PORTID"],
    securityGroup: ["securitygroup", "SecurityGroup"],
    securityGroups: ["securitygroups", "SecurityGroups"],
    mac: ["macAddress", "MACAddress", "macaddress", "MAC"],
    tag: ["Tag"],
    ipv6Enabled: ["ipv6enabled", "IPv6Enabled"],
    defaultRoute: ["defaultroute", "DefaultRoute"],
  };
  for (const [name, others] of Object.entries(aliases)) {
    const value = full[name as keyof Nic];
    for (const key of [name, ...others]) {
      const { nics, faults, written } = readNics([{ [key]: value }]);
      assert.deepEqual([nics, faults], [[{ [name]: value }], []], key);
      assert.deepEqual([...written], key === name ? [] : [[`nics[0].${name}`, key]]);
    }
  }
  const { nics } = readNics([Object.fromEntries(Object.entries(full).reverse())]);
  assert.equal(JSON.stringify(nics), JSON.stringify([full]));
});

test("T-1: ids and MAC addresses are in lower case, null is absent, and an empty list of groups says nothing", () => {
  assert.deepEqual(
    readNics([{ portID: PORT.toUpperCase(), mac: null, securityGroups: [] }, { mac: "02-AA-00-00-00-0B" }, {}]).nics,
    [{ portID: PORT }, { mac: "02:aa:00:00:00:0b" }, {}],
  );
  assert.deepEqual([readNics(undefined).nics, readNics(null).nics, readNics([]).nics], [[], [], []]);
});

test("T-2: a VPC without NICs has one, names follow the index, and the namespace's VPC is for pods with NICs", () => {
  assert.deepEqual(defaultNics({ vpc: "v" }), { vpc: "v", nics: [{ name: "eth0" }] });
  assert.deepEqual(defaultNics({ vpc: "v", nics: [] }), { vpc: "v", nics: [{ name: "eth0" }] });
  assert.deepEqual(defaultNics({ vpc: "v", nics: [{ subnet: "s" }, { name: "data" }, { tag: "t" }] }).nics, [
    { name: "eth0", subnet: "s" },
    { name: "data" },
    { name: "eth2", tag: "t" },
  ]);
  const context = { defaultVpc: "of-namespace" };
  assert.deepEqual(defaultNics({ nics: [{}] }, context), { vpc: "of-namespace", nics: [{ name: "eth0" }] });
  assert.deepEqual(defaultNics({ vpc: "own", nics: [{}] }, context).vpc, "own");
  assert.deepEqual([defaultNics({}, context), defaultNics({ nics: [] }, context)], [{ nics: [] }, { nics: [] }]);
});

test("T-2: a name that another NIC has is a fault, and no NIC gets another number", () => {
  assert.deepEqual(faultsOf([{}, { name: "eth0" }]), ['nics[1].name: Duplicate value: "eth0"']);
  assert.deepEqual(faultsOf([{ name: "eth1" }, {}]), [
    'nics[1].name: Duplicate value: "eth1"',
    "nics: Required value: one NIC must be named eth0",
  ]);
});

const anyNic: fc.Arbitrary<Nic> = fc.record(
  {
    name: fc.constantFrom("eth0", "eth1", "data", "lo"),
    subnet: fc.string(),
    ip: fc.oneof(fc.ipV4(), fc.ipV6(), fc.string()),
    portID: fc.oneof(fc.uuid(), fc.string()),
    mac: fc.string(),
    tag: fc.string(),
    securityGroups: fc.array(fc.string(), { maxLength: 3 }),
    ipv6Enabled: fc.boolean(),
    defaultRoute: fc.boolean(),
  },
  { requiredKeys: [] },
);

test("T-2: defaults and the normal form are the same when applied again (property)", () => {
  const wish = fc.record({ vpc: fc.string(), nics: fc.array(anyNic, { maxLength: 5 }) }, { requiredKeys: [] });
  fc.assert(
    fc.property(wish, fc.option(fc.string(), { nil: undefined }), (one, defaultVpc) => {
      const once = defaultNics(one, { defaultVpc });
      assert.deepEqual(defaultNics(once, { defaultVpc }), once);
      const { nics } = readNics(once.nics);
      assert.deepEqual(readNics(nics).nics, nics);
    }),
  );
});

const NAME = "must be a valid interface name of at most 15 bytes";
const IP = "must be a unicast IP address";
const MAC = "must be a unicast MAC address";
const named = (name: string) => [{ name: "eth0" }, { name }];
const withIp = (ip: string, more = {}) => [{ subnet: "s", ip, ...more }];

/** One row for each rule: NICs, then exactly their faults. */
const RULES: readonly (readonly [string, unknown, readonly string[]])[] = [
  ["32 NICs", Array.from({ length: 32 }, () => ({})), []],
  ["33 NICs", Array.from({ length: 33 }, () => ({})), ["nics: Too many: 33: at most 32"]],
  ...["a", "eth1.100", "a-b_c.d", "0123456789abcde", "lo0", "et"].map(
    (name) => [`name ${name}`, named(name), []] as const,
  ),
  ...[
    "",
    "lo",
    ".",
    "..",
    "-a",
    "a b",
    "a/b",
    "ä",
    "0123456789abcdef",
    "tap1",
    "qvb0",
    "qvo0",
    "qbr0",
    "qvn0",
    "veth9",
  ].map((name) => [`name ${name}`, named(name), [`nics[1].name: Invalid value: "${name}": ${NAME}`]] as const),
  ["names twice", [{}, { name: "a" }, { name: "a" }], ['nics[2].name: Duplicate value: "a"']],
  ["no eth0", [{ name: "data" }], ["nics: Required value: one NIC must be named eth0"]],
  ["eth0 is not the first", [{ name: "data" }, { name: "eth0" }], []],
  ...["192.168.0.12", "2001:db8::1", "10.0.0.255", "fd00::"].map((ip) => [`ip ${ip}`, withIp(ip), []] as const),
  ...[
    "",
    "x",
    "1.2.3",
    "01.2.3.4",
    "1.2.3.4/24",
    "127.0.0.1",
    "169.254.1.1",
    "224.0.0.1",
    "0.0.0.0",
    "255.255.255.255",
  ].map((ip) => [`ip ${ip}`, withIp(ip), [`nics[0].ip: Invalid value: "${ip}": ${IP}`]] as const),
  ...["::", "::1", "fe80::1", "ff02::1", "::ffff:10.0.0.1", "fe80::1%eth0"].map(
    (ip) => [`ip ${ip}`, withIp(ip), [`nics[0].ip: Invalid value: "${ip}": ${IP}`]] as const,
  ),
  [
    "ip, not canonical",
    withIp("2001:DB8:0::1"),
    [`nics[0].ip: Invalid value: "2001:DB8:0::1": ${IP}, in canonical text: 2001:db8::1`],
  ],
  ["ip alone", [{ ip: "10.0.0.1" }], ["nics[0].subnet: Required value: subnet is needed when ip is set"]],
  ["ip of a port", [{ ip: "10.0.0.1", portID: PORT }], []],
  ["ip and subnet of a port", [{ ip: "10.0.0.1", subnet: "s", portID: PORT }], []],
  ["IPv6, not mentioned", withIp("fd00::1"), []],
  ["IPv6, enabled", withIp("fd00::1", { ipv6Enabled: true }), []],
  [
    "IPv6, disabled",
    withIp("fd00::1", { ipv6Enabled: false }),
    ['nics[0].ip: Invalid value: "fd00::1": IPv6 is disabled for this NIC'],
  ],
  ["IPv4, IPv6 disabled", withIp("10.0.0.1", { ipv6Enabled: false }), []],
  ["an address twice", [...withIp("10.0.0.1"), ...withIp("10.0.0.1")], ['nics[1].ip: Duplicate value: "10.0.0.1"']],
  ["an address in two subnets", [...withIp("10.0.0.1"), ...withIp("10.0.0.1", { subnet: "t" })], []],
  ["subnet empty", [{ subnet: "" }], ['nics[0].subnet: Invalid value: "": must be a subnet name or id']],
  ["portID", [{ portID: "x" }], ['nics[0].portID: Invalid value: "x": must be a UUID']],
  [
    "portID without hyphens",
    [{ portID: PORT.replaceAll("-", "") }],
    [`nics[0].portID: Invalid value: "${PORT.replaceAll("-", "")}": must be a UUID`],
  ],
  [
    "a port twice, in two cases",
    [{ portID: PORT }, { portID: PORT.toUpperCase() }],
    [`nics[1].portID: Duplicate value: "${PORT}"`],
  ],
  [
    "port and mac",
    [{ portID: PORT, mac: "02:00:00:00:00:01" }],
    ["nics[0].mac: Forbidden: may not be set together with portID"],
  ],
  [
    "port and group",
    [{ portID: PORT, securityGroup: "g" }],
    ["nics[0].securityGroup: Forbidden: may not be set together with portID"],
  ],
  [
    "port and groups",
    [{ portID: PORT, securityGroups: ["g"] }],
    ["nics[0].securityGroups: Forbidden: may not be set together with portID"],
  ],
  ...["x", "02:00:00:00:00", "01:00:00:00:00:01", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00"].map(
    (mac) => [`mac ${mac}`, [{ mac }], [`nics[0].mac: Invalid value: "${mac}": ${MAC}`]] as const,
  ),
  ["mac", [{ mac: "fa:16:3e:00:00:01" }], []],
  ["unknown field", [{}, { port: "x", Ip4: 1 }], ["nics[1].port: Unknown field", "nics[1].Ip4: Unknown field"]],
  [
    "group and groups",
    [{ securityGroup: "a", securityGroups: ["b"] }],
    ["nics[0].securityGroups: Forbidden: use either securityGroup or securityGroups"],
  ],
  ["a hundred groups", [{ securityGroups: Array(100).fill("g") }], []],
  [
    "more groups than a claim can have",
    [{ securityGroups: Array(2000).fill("") }],
    [
      "nics[0].securityGroups: Too many: 2000: at most 100",
      ...Array.from(
        { length: 100 },
        (_, at) => `nics[0].securityGroups[${at}]: Invalid value: "": must be a security group name or id`,
      ),
    ],
  ],
  [
    "a group without a name",
    [{ securityGroups: ["a", ""] }],
    ['nics[0].securityGroups[1]: Invalid value: "": must be a security group name or id'],
  ],
  [
    "two default routes",
    [{ defaultRoute: true }, { defaultRoute: false }, { defaultRoute: true }],
    ["nics[2].defaultRoute: Invalid value: true: at most one NIC may have the default route"],
  ],
  [
    "one name of a field twice",
    [{ ip: "10.0.0.1", ipAddress: "10.0.0.2", subnet: "s" }],
    ['nics[0].ip: Duplicate value: "ipAddress"'],
  ],
  ["no list", { subnet: "s" }, ['nics: Invalid value: "an object": must be a list of NICs']],
  ["no object", ["eth0"], ['nics[0]: Invalid value: "eth0": must be an object']],
  ["no text", [{ tag: 5 }], ["nics[0].tag: Invalid value: 5: must be a text"]],
  ["no switch", [{ defaultRoute: "yes" }], ['nics[0].defaultRoute: Invalid value: "yes": must be true or false']],
  ["no texts", [{ securityGroups: "a" }], ['nics[0].securityGroups: Invalid value: "a": must be a list of texts']],
];

test("T-3: each rule has its exact text", async (t) => {
  for (const [what, nics, faults] of RULES) await t.test(what, () => assert.deepEqual(faultsOf(nics), faults));
});

test("T-3: a VPC is a name or id; NICs need one", () => {
  for (const vpc of ["", "a/b", "a;b", "a=b", "a\nb", "a\u007f", "x".repeat(256)]) {
    assert.deepEqual(faultsOf([], vpc), [`vpc: Invalid value: ${JSON.stringify(vpc)}: must be a VPC name or id`]);
  }
  for (const vpc of ["vpc-1a2b3c4d", PORT, "ein Netz", "x".repeat(255)]) assert.deepEqual(faultsOf([], vpc), []);
  const without = wishFaults(defaultNics({ nics: [{}] }));
  assert.deepEqual(
    without.map(({ field, message }) => `${field}: ${message}`),
    ["vpc: Required value: NICs need a VPC"],
  );
});

test("T-3: all faults of a pod are returned together", () => {
  assert.deepEqual(
    faultsOf(
      [
        { name: "lo", ip: "x" },
        { portID: "y", mac: "z" },
      ],
      "a/b",
    ),
    [
      'vpc: Invalid value: "a/b": must be a VPC name or id',
      `nics[0].name: Invalid value: "lo": ${NAME}`,
      `nics[0].ip: Invalid value: "x": ${IP}`,
      "nics[0].subnet: Required value: subnet is needed when ip is set",
      'nics[1].portID: Invalid value: "y": must be a UUID',
      `nics[1].mac: Invalid value: "z": ${MAC}`,
      "nics[1].mac: Forbidden: may not be set together with portID",
      "nics: Required value: one NIC must be named eth0",
    ],
  );
});

test("T-4: the rules of an update", async (t) => {
  const ETH0: NamedNic = { name: "eth0", subnet: "s", ip: "10.0.0.1", mac: "02:00:00:00:00:01" };
  const told = (after: readonly NamedNic[], context: Partial<UpdateContext> = {}, vpc = "v", before = [ETH0]) =>
    updateFaults({ vpc: "v", nics: before }, { vpc, nics: after }, { hotplug: false, allNamed: true, ...context }).map(
      ({ field, message }) => `${field}: ${message}`,
    );
  const eth1: NamedNic = { name: "eth1" };
  const hot = { hotplug: true };
  const immutable = "nics: Forbidden: NICs are immutable";
  const rows: readonly (readonly [string, readonly string[], readonly string[]])[] = [
    ["nothing", told([ETH0]), []],
    ["another VPC", told([ETH0], hot, "w"), ["vpc: Forbidden: may not change"]],
    ["eth0 removed", told([eth1], hot), ["nics[eth0]: Forbidden: the primary NIC may not be removed"]],
    [
      "eth0 renamed",
      told([{ ...ETH0, name: "data" }]),
      ["nics[eth0]: Forbidden: the primary NIC may not be removed", immutable],
    ],
    ["another subnet", told([{ ...ETH0, subnet: "t" }], hot), ["nics[eth0].subnet: Forbidden: may not change"]],
    ["another address", told([{ ...ETH0, ip: "10.0.0.2" }], hot), ["nics[eth0].ip: Forbidden: may not change"]],
    ["another MAC", told([{ ...ETH0, mac: "02:00:00:00:00:02" }], hot), ["nics[eth0].mac: Forbidden: may not change"]],
    ["groups and tag", told([{ ...ETH0, securityGroup: "g", tag: "t" }]), []],
    [
      "the default route",
      told([{ ...ETH0, defaultRoute: true }]),
      ["nics[eth0].defaultRoute: Forbidden: may not change"],
    ],
    ["a port is assigned", told([{ ...eth1, name: "eth0", portID: PORT }], {}, "v", [{ name: "eth0" }]), []],
    [
      "another port",
      told([{ name: "eth0", portID: UUID2 }], {}, "v", [{ name: "eth0", portID: PORT }]),
      ["nics[eth0].portID: Forbidden: may not change once assigned"],
    ],
    [
      "a port is taken away",
      told([{ name: "eth0" }], {}, "v", [{ name: "eth0", portID: PORT }]),
      ["nics[eth0].portID: Forbidden: may not change once assigned"],
    ],
    [
      "another port than that of the claim",
      told([{ name: "eth0", portID: UUID2 }], { assigned: new Map([["eth0", PORT]]) }, "v", [{ name: "eth0" }]),
      ["nics[eth0].portID: Forbidden: may not change once assigned"],
    ],
    ["a NIC more", told([ETH0, eth1]), [immutable]],
    ["a NIC more, hot-plugged", told([ETH0, eth1], hot), []],
    [
      "a NIC more that takes the default route",
      told([ETH0, { ...eth1, defaultRoute: true }], hot),
      ["nics[eth1].defaultRoute: Forbidden: may not be set on a NIC that is added to a running pod"],
    ],
    ["a NIC more, hot-plugged without a name", told([ETH0, eth1], { hotplug: true, allNamed: false }), [immutable]],
    ["a NIC less", told([ETH0], {}, "v", [ETH0, eth1]), [immutable]],
    ["a NIC less, hot-plugged", told([ETH0], hot, "v", [ETH0, eth1]), []],
    ["another order", told([eth1, ETH0], {}, "v", [ETH0, eth1]), []],
  ];
  for (const [what, faults, wanted] of rows) await t.test(what, () => assert.deepEqual(faults, wanted));
});
const UUID2 = "b2815656-76f7-46d4-9d11-057063db1a14";

test("pod: annotations in JSON and in YAML, ours and those of Arktos", () => {
  const wanted = {
    kind: "wanted",
    vpc: "vpc-1",
    nics: [{ name: "eth0", subnet: "subnet-1", ip: "192.168.0.12" }],
    allNamed: false,
    vm: undefined,
  };
  const json = '[{"subnet":"subnet-1","ip":"192.168.0.12"}]';
  const yaml = "- subnetName: subnet-1\n  ipAddress: 192.168.0.12\n";
  for (const nics of [json, yaml, `\n${json}\n`]) {
    assert.deepEqual(podOf({ "isthmus.dev/vpc": "vpc-1", "isthmus.dev/nics": nics }), wanted);
    assert.deepEqual(podOf({ VPC: "vpc-1", NICs: nics }), wanted);
  }
  assert.deepEqual(podOf({ VPC: "v", NICs: `[{"portid":"${PORT}","name":"eth0"}]` }), {
    kind: "wanted",
    vpc: "v",
    nics: [{ name: "eth0", portID: PORT }],
    allNamed: true,
    vm: undefined,
  });
  const vm = podOf({ "isthmus.dev/vpc": "v", "isthmus.dev/vm": '{"name":"x","flavor":"m1.large","ports":[443]}' });
  assert.deepEqual(vm.kind === "wanted" && vm.vm, { flavor: "m1.large", rest: { name: "x", ports: [443] } });
});

test("pod: without annotations, without NICs and VPC, or with the network of the node it has no ports", () => {
  assert.deepEqual(readPodNics({}), { kind: "none" });
  assert.deepEqual(podOf({ "isthmus.dev/nics": "[]" }, {}, { defaultVpc: "v" }), { kind: "none" });
  assert.deepEqual(podOf({ "isthmus.dev/vm": "{}" }), { kind: "none" });
  const host = { hostNetwork: true };
  assert.deepEqual(podOf({ "isthmus.dev/vpc": "v", "isthmus.dev/nics": "[[" }, host), { kind: "host-network" });
  assert.deepEqual(podOf({}, host), { kind: "none" });
});

test("pod: the VPC of the namespace is for NICs that name none", () => {
  const nics = { "isthmus.dev/nics": '[{"subnet":"s"}]' };
  assert.deepEqual(podFaults(nics), ["vpc: Required value: NICs need a VPC"]);
  const pod = podOf(nics, {}, { defaultVpc: "blue" });
  assert.equal(pod.kind === "wanted" && pod.vpc, "blue");
});

test("pod: both forms may say the same, and must not differ", () => {
  const own = { "isthmus.dev/vpc": "v", "isthmus.dev/nics": `[{"name":"eth0","portID":"${PORT}"}]` };
  assert.deepEqual(podFaults({ ...own, VPC: "v", NICs: `[{"portid":"${PORT.toUpperCase()}"}]` }), []);
  assert.deepEqual(podFaults({ ...own, VPC: "w", NICs: "[]" }), [
    'metadata.annotations[VPC]: Invalid value: "w": differs from annotation isthmus.dev/vpc',
    'metadata.annotations[NICs]: Invalid value: "[]": differs from annotation isthmus.dev/nics',
  ]);
});

test("pod: anchors, tags, directives, duplicate keys, long and deep texts are refused", () => {
  const faults = (nics: string) => podFaults({ "isthmus.dev/vpc": "v", "isthmus.dev/nics": nics });
  const refused: readonly (readonly [string, RegExp])[] = [
    ["- &x {subnet: a}\n", /anchors are not supported/],
    ["- &x {subnet: a}\n- *x\n", /anchors and aliases are not supported/],
    ["- !!map {subnet: a}\n", /tags are not supported/],
    ["%YAML 1.1\n---\n[]\n", /directives are not supported/],
    ['[{"ip":"10.0.0.1","ip":"10.0.0.2"}]', /Map keys must be unique/],
    ["[]\n---\n[]\n", /several documents/],
    ["[{]", /is neither JSON nor YAML: line 1/],
    [`[{"tag":"${"x".repeat(MAX_ANNOTATION_BYTES)}"}]`, /must have at most 16384 bytes/],
    ["ä".repeat(MAX_ANNOTATION_BYTES / 2 + 1), /must have at most 16384 bytes/],
    [`${"[".repeat(17)}${"]".repeat(17)}`, /must have at most 16 lists and objects in each other/],
    ["[".repeat(16_384), /line 1: there are more than 32 lists and mappings in each other/],
    ["- ".repeat(8192), /line 1: there are more than 32 lists and mappings in each other/],
    [Array.from({ length: 120 }, (_, at) => `${" ".repeat(at)}a:\n`).join(""), /must have at most 16 lists/],
  ];
  for (const [text, says] of refused) {
    const [first = "no fault", ...rest] = faults(text);
    assert.match(first, says);
    assert.match(first, /^metadata\.annotations\[isthmus\.dev\/nics\]: Invalid value: /);
    assert.deepEqual(rest, [], text.slice(0, 40));
  }
  const vm = (text: string) => podFaults({ "isthmus.dev/vpc": "v", "isthmus.dev/vm": text }).join();
  assert.match(vm("[]"), /annotations\[isthmus.dev\/vm\]: Invalid value: "a list": must be an object$/);
  assert.match(
    vm("flavor: 5"),
    /annotations\[isthmus.dev\/vm\].flavor: Invalid value: 5: must be the name of a flavor$/,
  );
});

test("pod: of annotations with any text it makes NICs or faults, and a text of ours is not changed by normalising (fuzz)", () => {
  const piece = fc.constantFrom(
    "name",
    "ip",
    "portid",
    ": ",
    "\n",
    "- ",
    "  ",
    "{",
    "}",
    "[",
    "]",
    '"',
    ",",
    "eth0",
    "&x ",
    "*x",
    "!",
    "__proto__",
    "constructor",
  );
  const text = fc.oneof(
    fc.string(),
    fc.json({ maxDepth: 4 }),
    fc.array(piece, { maxLength: 40 }).map((all) => all.join("")),
    fc.array(anyNic, { maxLength: 4 }).map((nics) => JSON.stringify(nics)),
  );
  const key = fc.constantFrom("isthmus.dev/vpc", "isthmus.dev/nics", "isthmus.dev/vm", "VPC", "NICs", "other");
  fc.assert(
    fc.property(
      fc.dictionary(key, text),
      fc.boolean(),
      fc.option(fc.string(), { nil: undefined }),
      (annotations, hostNetwork, defaultVpc) => {
        const pod = podOf(annotations, { hostNetwork }, { defaultVpc });
        if (pod.kind === "faulty") assert.ok(pod.faults.length > 0 && pod.faults.every(({ field }) => field !== ""));
        if (pod.kind !== "wanted") return;
        const again = podOf({ "isthmus.dev/vpc": pod.vpc, "isthmus.dev/nics": JSON.stringify(pod.nics) });
        assert.deepEqual(again, { ...pod, allNamed: true, vm: undefined });
      },
    ),
    { numRuns: 3000 },
  );
});
