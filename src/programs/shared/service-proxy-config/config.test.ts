import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import fc from "fast-check";
import { stringify } from "yaml";
import { ConfigError, parseFlags } from "#base/config";
import { character } from "#test/characters";
import { placeWords, type ServiceProxyConfig, serviceProxyConfig } from "./config.ts";
import { overridden, overriddenFlags, parseFile } from "./config-file.ts";
import { writeConfig, writeConfigTo } from "./config-write.ts";
import { type ServiceProxyValues, serviceProxyFlags } from "./flags.ts";

const folder = mkdtempSync(join(tmpdir(), "isthmus-proxy-config-"));
const path = join(folder, "config.yaml");
after(() => rmSync(folder, { recursive: true }));

const HEAD = { apiVersion: "kubeproxy.config.k8s.io/v1alpha1", kind: "KubeProxyConfiguration" };

const byFlags = (...argv: string[]): ServiceProxyConfig => configOf(parseFlags(serviceProxyFlags, argv));

const configOf = ({ values, given }: ReturnType<typeof parseFlags<typeof serviceProxyFlags>>): ServiceProxyConfig =>
  serviceProxyConfig(values, given);

function byFile(content: object, ...argv: string[]): ServiceProxyConfig {
  writeFileSync(path, stringify({ ...HEAD, ...content }, { version: "1.1" }));
  return byFlags(`--config=${path}`, ...argv);
}

/** Returns the faults for which a configuration is refused; none if it is accepted. */
function faultsOf(read: () => unknown): readonly string[] {
  try {
    read();
    return [];
  } catch (error) {
    assert.ok(error instanceof ConfigError, String(error));
    return error.faults;
  }
}

const placesOf = (config: ServiceProxyConfig): string => placeWords(config.nodePortAddresses).join(",");

/** Comparable: addresses as text, without where it was read from. */
const plain = (config: ServiceProxyConfig): unknown =>
  JSON.parse(
    JSON.stringify({
      ...config,
      source: undefined,
      nodePortAddresses: placesOf(config),
      clusterCIDRs: String(config.clusterCIDRs),
    }),
  );

test("serviceProxyConfig: defaults are kube-proxy's", () => {
  const config = byFlags();
  assert.equal(config.nodeName, hostname().trim().toLowerCase());
  assert.deepEqual(
    [config.healthz, config.metrics, config.bindAddress],
    [{ host: "0.0.0.0", port: 10_256 }, { host: "127.0.0.1", port: 10_249 }, undefined],
  );
  assert.deepEqual([config.syncMs, config.minSyncMs, config.mark], [30_000, 1000, 0x4000]);
  assert.deepEqual([placesOf(config), config.detectLocalMode, config.oomScoreAdj], ["primary", "ClusterCIDR", -999]);
  const { maxPerCore, min, tcpEstablishedSeconds, tcpCloseWaitSeconds, udpSeconds } = config.conntrack;
  assert.deepEqual(
    [maxPerCore, min, tcpEstablishedSeconds, tcpCloseWaitSeconds, udpSeconds],
    [32_768, 131_072, 86_400, 3600, 0],
  );
});

test("serviceProxyConfig: a file as kubeadm writes it, full of empty and null fields, means the defaults", () => {
  const kubeadm = {
    bindAddress: "0.0.0.0",
    clientConnection: { acceptContentTypes: "", burst: 0, contentType: "", kubeconfig: "", qps: 0 },
    clusterCIDR: "",
    configSyncPeriod: "0s",
    conntrack: {
      maxPerCore: null,
      min: null,
      tcpBeLiberal: false,
      tcpCloseWaitTimeout: null,
      tcpEstablishedTimeout: null,
      udpStreamTimeout: "0s",
      udpTimeout: "0s",
    },
    detectLocal: { bridgeInterface: "", interfaceNamePrefix: "" },
    detectLocalMode: "",
    enableProfiling: false,
    featureGates: null,
    healthzBindAddress: "",
    hostnameOverride: "",
    metricsBindAddress: "",
    mode: "",
    nftables: { masqueradeAll: false, masqueradeBit: null, minSyncPeriod: "0s", syncPeriod: "0s" },
    nodePortAddresses: null,
    oomScoreAdj: null,
  };
  assert.deepEqual(plain(byFile(kubeadm)), plain(byFlags()));
  assert.deepEqual(
    plain(byFile({ nftables: null, conntrack: null, detectLocal: null, nodePortAddresses: [] })),
    plain(byFlags()),
  );
});

test("serviceProxyConfig: with a file flags are ignored, except the node's name and those for logging", () => {
  const config = byFile(
    { hostnameOverride: "From-File" },
    "--masquerade-bit=3",
    "--cluster-cidr=10.0.0.0/8",
    "--sync-period=5s",
  );
  assert.deepEqual([config.mark, config.clusterCIDRs, config.syncMs], [0x4000, [], 30_000]);
  assert.equal(config.nodeName, "from-file");
  assert.equal(byFile({ hostnameOverride: "from-file" }, "--hostname-override=mine").nodeName, "mine");
});

test("serviceProxyConfig: the flags that a file overrides are named once, also where they have the default's value", () => {
  const line = (file: object, ...argv: string[]): readonly string[] =>
    byFile(file, ...argv).notes.filter((note) => note.includes(" overrides: "));
  assert.deepEqual(
    line({}, "--v=4", "--hostname-override=a", "--table-name=t", "--netns=/n", "--master=https://a"),
    [],
  );
  const [text = "", ...more] = line(
    {},
    "--cluster-cidr=10.0.0.0/8",
    "--proxy-mode=nftables",
    "--cluster-cidr=10.0.0.0/9",
  );
  assert.match(text, /^flags that .* overrides: --proxy-mode, --cluster-cidr$/);
  assert.deepEqual(more, []);
  assert.deepEqual(line({}, "--kubeconfig=/a"), []);
  assert.match(line({ clientConnection: { kubeconfig: "/b" } }, "--kubeconfig=/a")[0] ?? "", /: --kubeconfig$/);
});

test("overriddenFlags: are those whose values a file replaces, and those of its keys that have no effect", () => {
  const plainValues = parseFlags(serviceProxyFlags, []).values;
  const odd = Object.fromEntries(Object.keys(plainValues).map((key) => [key, Symbol(key)]));
  const content = parseFile("f", stringify({ ...HEAD, clientConnection: { kubeconfig: "/k" } }));
  const after = overridden(odd as unknown as ServiceProxyValues, content) as unknown as Record<string, unknown>;
  const replaced = Object.entries(serviceProxyFlags).flatMap(([key, { name }]) =>
    after[key] === odd[key] ? [] : name,
  );
  const listed = overriddenFlags(content);
  assert.deepEqual(
    listed.filter((name) => !replaced.includes(name)),
    ["proxy-mode", "config-sync-period", "show-hidden-metrics-for-version"].filter((name) => listed.includes(name)),
  );
  assert.deepEqual(
    replaced.filter((name) => !listed.includes(name)),
    [],
  );
});

test("serviceProxyConfig: every field of a file is read", () => {
  const config = byFile({
    clientConnection: { kubeconfig: "/etc/k" },
    bindAddress: "fd00::1",
    bindAddressHardFail: true,
    enableProfiling: true,
    healthzBindAddress: "::1",
    metricsBindAddress: "none",
    nftables: { masqueradeBit: 31, masqueradeAll: true, syncPeriod: "1m", minSyncPeriod: 2_000_000_000 },
    detectLocalMode: "InterfaceNamePrefix",
    detectLocal: { interfaceNamePrefix: "veth" },
    clusterCIDR: "10.0.0.0/8,fd00::/8",
    nodePortAddresses: ["10.0.0.0/8", "fd00::/8"],
    oomScoreAdj: -5,
    featureGates: { AllowServiceExternalIPs: false },
    conntrack: {
      maxPerCore: 0,
      tcpEstablishedTimeout: "1h",
      tcpBeLiberal: true,
      udpTimeout: "10s",
      udpStreamTimeout: "20s",
    },
  });
  assert.deepEqual(
    [config.kubeconfig, String(config.bindAddress), config.bindAddressHardFail],
    ["/etc/k", "fd00::1", true],
  );
  assert.deepEqual(
    [config.healthz, config.metrics, config.profiling],
    [{ host: "::1", port: 10_256 }, undefined, true],
  );
  assert.deepEqual([config.mark, config.masqueradeAll, config.syncMs, config.minSyncMs], [2 ** 31, true, 60_000, 2000]);
  assert.deepEqual([config.detectLocalMode, config.podInterfaceNamePrefix], ["InterfaceNamePrefix", "veth"]);
  assert.equal(String(config.clusterCIDRs), "10.0.0.0/8,fd00::/8");
  assert.equal(placesOf(config), "10.0.0.0/8,fd00::/8");
  assert.deepEqual(
    [config.oomScoreAdj, config.gates.allowServiceExternalIPs, config.gates.drainingTerminatingNodes],
    [-5, false, true],
  );
  const { maxPerCore, min, tcpEstablishedSeconds, tcpBeLiberal, udpSeconds, udpStreamSeconds } = config.conntrack;
  assert.deepEqual(
    [maxPerCore, min, tcpEstablishedSeconds, tcpBeLiberal, udpSeconds, udpStreamSeconds],
    [0, 131_072, 3600, true, 10, 20],
  );
});

test("serviceProxyConfig: unknown keys of a file, in sections too, and unknown gates are reported", () => {
  const { notes } = byFile({ portRange: "", nftables: { masqueradeBits: 3 }, featureGates: { Foo: true } });
  assert.deepEqual(notes, [
    `${path}: portRange has no effect in this proxy`,
    `${path}: nftables.masqueradeBits has no effect in this proxy`,
    "feature gate Foo has no effect in this proxy",
  ]);
});

/** A fault of a file, and what it must say: the field, and what would be right. */
const BAD_FILES: readonly (readonly [content: object, fault: string])[] = [
  [{ apiVersion: "v1" }, 'apiVersion: must be "kubeproxy.config.k8s.io/v1alpha1"'],
  [{ kind: "Pod" }, 'kind: must be "KubeProxyConfiguration"'],
  [{ mode: "iptables" }, 'mode: must be "nftables" or empty'],
  [{ nftables: { masqueradeBit: 32 } }, "nftables.masqueradeBit: must be an integer, 0 to 31"],
  [{ nftables: { masqueradeBit: 1.5 } }, "nftables.masqueradeBit: must be an integer, 0 to 31"],
  [{ nftables: { masqueradeBit: "3" } }, "nftables.masqueradeBit: must be a number"],
  [{ nftables: { syncPeriod: "soon" } }, 'nftables.syncPeriod: "soon" is not a duration; an example is 30s'],
  [{ nftables: { syncPeriod: -5 } }, 'nftables.syncPeriod: "-5" is not a duration; an example is 30s'],
  [{ nftables: { syncPeriod: "25h" } }, 'nftables.syncPeriod: "25h" is too long: the maximum is 24h0m0s'],
  [
    { nftables: { syncPeriod: "1s", minSyncPeriod: "2s" } },
    "nftables.minSyncPeriod is longer than nftables.syncPeriod",
  ],
  [{ nftables: [] }, "nftables: must be a mapping"],
  [{ configSyncPeriod: "x" }, 'configSyncPeriod: "x" is not a duration; an example is 30s'],
  [{ bindAddress: "here" }, 'bindAddress: "here" is not an address'],
  [
    { healthzBindAddress: "here" },
    'healthzBindAddress: "here" is not a listen address; examples are :9384 and [::1]:9384',
  ],
  [{ metricsBindAddress: "1.2.3.4:99999" }, 'metricsBindAddress: "1.2.3.4:99999" is not a listen address'],
  [{ bindAddressHardFail: "yes" }, "bindAddressHardFail: must be true or false"],
  [{ clusterCIDR: "10.0.0.0/33" }, 'clusterCIDR: "10.0.0.0/33" is not a CIDR; an example is 10.0.0.0/8'],
  [{ nodePortAddresses: "primary" }, "nodePortAddresses: must be a list"],
  [
    { nodePortAddresses: ["x"] },
    'nodePortAddresses: "x" is none of primary, localhost and all, and is not a CIDR; an example is 10.0.0.0/8',
  ],
  [
    { detectLocalMode: "Guess" },
    "detectLocalMode: must be one of ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix",
  ],
  [{ detectLocalMode: "BridgeInterface" }, "detectLocalMode=BridgeInterface needs detectLocal.bridgeInterface"],
  [
    { detectLocalMode: "InterfaceNamePrefix" },
    "detectLocalMode=InterfaceNamePrefix needs detectLocal.interfaceNamePrefix",
  ],
  [{ detectLocal: { bridgeInterface: 'a"; drop' } }, "detectLocal.bridgeInterface:"],
  [{ oomScoreAdj: 1001 }, "oomScoreAdj: must be an integer, -1000 to 1000"],
  [
    { featureGates: { AllowServiceExternalIPs: "maybe" } },
    "featureGates.AllowServiceExternalIPs: must be true or false",
  ],
  [{ conntrack: { maxPerCore: -1 } }, "conntrack.maxPerCore: must be an integer, 0 to 10000000"],
  [{ conntrack: { min: 0.5 } }, "conntrack.min: must be an integer, 0 to 100000000"],
  [{ conntrack: { udpTimeout: "1 day" } }, 'conntrack.udpTimeout: "1 day" is not a duration; an example is 30s'],
];

test("serviceProxyConfig: every fault of a file names the file, the field and the right form", () => {
  for (const [content, expected] of BAD_FILES) {
    const faults = faultsOf(() => byFile(content));
    assert.equal(faults.length, 1, `${JSON.stringify(content)}: ${faults.join("\n")}`);
    assert.ok(faults[0]?.startsWith(`--config: ${path}: ${expected}`), `${faults[0]} is not ${expected}`);
  }
});

test("serviceProxyConfig: all faults of a file are reported at once, also for a file that cannot be read", () => {
  assert.equal(faultsOf(() => byFile({ mode: "ipvs", oomScoreAdj: "x", nftables: { syncPeriod: "x" } })).length, 3);
  assert.equal(
    faultsOf(() => byFile({ clusterCIDR: "x", bindAddress: "x", detectLocalMode: "BridgeInterface" })).length,
    3,
  );
  assert.match(
    faultsOf(() => byFlags("--config=/nowhere/at/all")).join(),
    /--config: cannot read \/nowhere\/at\/all: ENOENT/,
  );
  assert.match(faultsOf(() => parseFile("f", "{a: [")).join(), /--config: f is neither YAML nor JSON/);
  assert.deepEqual(
    faultsOf(() => parseFile("f", "")),
    ["--config: f: the document: must be a mapping"],
  );
});

const BAD_FLAGS: readonly (readonly [argv: readonly string[], fault: string])[] = [
  [["--bind-address=x"], '--bind-address: "x" is not an address'],
  [["--min-sync-period=2m"], "--min-sync-period is longer than --sync-period"],
  [["--healthz-bind-address=x"], '--healthz-bind-address: "x" is not a listen address'],
  [["--metrics-bind-address=[::1"], '--metrics-bind-address: "[::1" is not a listen address'],
  [["--cluster-cidr=10.0.0.0"], '--cluster-cidr: "10.0.0.0" is not a CIDR'],
  [
    ["--nodeport-addresses=primary,others"],
    '--nodeport-addresses: "others" is none of primary, localhost and all, and is not a CIDR',
  ],
  [
    ["--feature-gates=AllowServiceExternalIPs"],
    '--feature-gates: "AllowServiceExternalIPs" is not NAME=true or NAME=false',
  ],
  [
    ["--feature-gates=AllowServiceExternalIPs=1"],
    "--feature-gates: AllowServiceExternalIPs=1 is neither true nor false",
  ],
  [["--detect-local-mode=BridgeInterface"], "--detect-local-mode=BridgeInterface needs --pod-bridge-interface"],
  [["--pod-bridge-interface=far-too-long-a-name"], '--pod-bridge-interface: "far-too-long-a-name" cannot be the name'],
  [["--table-name=a b"], '--table-name: "a b" cannot be the name of a table'],
  [["--hostname-override= "], "--hostname-override: the name of the Node is empty"],
];

test("serviceProxyConfig: every fault of a flag names it", () => {
  for (const [argv, expected] of BAD_FLAGS) {
    const faults = faultsOf(() => byFlags(...argv));
    assert.equal(faults.length, 1, `${argv}: ${faults.join("\n")}`);
    assert.ok(faults[0]?.startsWith(expected), `${faults[0]} is not ${expected}`);
  }
});

test("serviceProxyConfig: a bare address gets the default port, defaults follow the family, empty is none", () => {
  assert.deepEqual(byFlags("--healthz-bind-address=10.0.0.1").healthz, { host: "10.0.0.1", port: 10_256 });
  assert.deepEqual(byFlags("--metrics-bind-address=[fd00::1]").metrics, { host: "fd00::1", port: 10_249 });
  const six = byFlags("--bind-address=::");
  assert.deepEqual([six.bindAddress, six.healthz?.host, six.metrics?.host], [undefined, "::", "::1"]);
  assert.equal(byFlags("--healthz-bind-address=").healthz, undefined);
  assert.equal(placesOf(byFlags("--nodeport-addresses=")), "primary");
  assert.equal(placesOf(byFlags("--nodeport-addresses=10.0.0.0/8, primary")), "primary,10.0.0.0/8");
  assert.equal(placesOf(byFlags("--nodeport-addresses=all")), "0.0.0.0/0,::/0");
  assert.equal(placesOf(byFile({ nodePortAddresses: ["all", "primary"] })), "primary,0.0.0.0/0,::/0");
  assert.equal(placesOf(byFlags("--nodeport-addresses=localhost,primary")), "primary,localhost");
});

test("writeConfig: what was written is read back as the same configuration", () => {
  for (const argv of [
    [],
    ["--healthz-bind-address=", "--metrics-bind-address=:9", "--masquerade-bit=31", "--masquerade-all"],
    ["--bind-address=fd00::1", "--cluster-cidr=10.0.0.0/8,fd00::/8", "--nodeport-addresses=10.0.0.0/8"],
    [
      "--detect-local-mode=BridgeInterface",
      "--pod-bridge-interface=br0",
      "--sync-period=90s",
      "--min-sync-period=1500ms",
    ],
    ["--feature-gates=AllowServiceExternalIPs=false", "--conntrack-udp-timeout=7s", "--oom-score-adj=0"],
  ]) {
    const { values } = parseFlags(serviceProxyFlags, [...argv, "--hostname-override=n"]);
    writeFileSync(path, writeConfig(values));
    const [written, read] = [serviceProxyConfig(values), { ...byFlags(`--config=${path}`), source: undefined }].map(
      plain,
    );
    assert.deepEqual(read, written, argv.join(" "));
  }
});

test("parseFile: whatever a file holds, only ConfigError escapes", () => {
  const scalar = fc.oneof(
    fc.string(),
    fc.integer(),
    fc.double(),
    fc.boolean(),
    fc.constant(null),
    fc.constantFrom("10s", "", "10.0.0.0/8"),
  );
  const value = fc.oneof(
    scalar,
    fc.array(scalar, { maxLength: 3 }),
    fc.dictionary(fc.string(), scalar, { maxKeys: 3 }),
  );
  const key = fc.constantFrom(
    "mode",
    "nftables",
    "conntrack",
    "detectLocal",
    "featureGates",
    "clusterCIDR",
    "nodePortAddresses",
    "bindAddress",
    "healthzBindAddress",
    "oomScoreAdj",
    "clientConnection",
    "detectLocalMode",
    "__proto__",
    "constructor",
  );
  const section = fc.dictionary(
    fc.constantFrom("masqueradeBit", "syncPeriod", "minSyncPeriod", "maxPerCore", "udpTimeout", "toString"),
    value,
  );
  fc.assert(
    fc.property(fc.dictionary(key, fc.oneof(value, section)), (content) => void faultsOf(() => byFile(content))),
    { numRuns: 400 },
  );
  fc.assert(
    fc.property(fc.string({ unit: character }), (content) => void faultsOf(() => parseFile("f", content))),
    { numRuns: 400 },
  );
  const yaml = fc.array(
    fc.constantFrom(
      "a",
      ": ",
      "- ",
      "&x ",
      "*x",
      "!!int ",
      "\n",
      "  ",
      "[",
      "]",
      "{",
      "}",
      "|",
      ">",
      "%",
      "---\n",
      "<<: ",
    ),
    { maxLength: 25 },
  );
  fc.assert(
    fc.property(yaml, (parts) => void faultsOf(() => parseFile("f", parts.join("")))),
    { numRuns: 800 },
  );
});

test("serviceProxyConfig: a table's name that could be another proxy's replacement table is refused", () => {
  assert.match(String(faultsOf(() => byFlags("--table-name=kube-proxy-takeover"))), /does not end in -takeover/);
  assert.deepEqual(byFlags("--table-name=takeover").tableName, "takeover");
});

test("serviceProxyConfig: an empty --config means no file; of many unknown keys the first are named and the others counted", () => {
  assert.equal(byFlags("--config=").source, undefined);
  const { notes } = byFile(Object.fromEntries(Array.from({ length: 5000 }, (_, at) => [`key${at}`, at])));
  assert.equal(notes.length, 21);
  assert.match(notes.at(-1) ?? "", /4980 other keys have no effect in this proxy/);
});

test("writeConfigTo: a file that cannot be written is a fault of its flag", () => {
  const { values } = parseFlags(serviceProxyFlags, []);
  for (const place of [folder, join(folder, "absent", "file"), ""])
    assert.match(
      String(faultsOf(() => writeConfigTo(place, values))),
      /--write-config-to: cannot write .*(EISDIR|ENOENT)/,
    );
  const written = join(folder, "written.yaml");
  writeConfigTo(written, values);
  assert.deepEqual(plain(byFlags(`--config=${written}`)), plain(byFlags()));
});

test("serviceProxyConfig: --service-addresses and --host-ports count beside kube-proxy's file too, and add to the ports that nodes keep", () => {
  const flags = ["--service-addresses=strict", "--host-ports=3389,8000-8100"];
  for (const config of [
    byFlags(...flags),
    byFile({ clusterCIDR: "10.1.0.0/16", iptables: {}, winkernel: {} }, ...flags),
  ]) {
    assert.equal(config.serviceAddresses, "strict");
    const keeps = (port: number): boolean => config.hostPorts.some(({ first, last }) => first <= port && port <= last);
    assert.deepEqual([22, 3389, 8050, 8101, 10_250].map(keeps), [true, true, true, false, true]);
  }
  assert.equal(byFile({}).serviceAddresses, "guarded");
  assert.match(faultsOf(() => byFlags("--host-ports=http")).join(), /--host-ports: "http" is no list of ports/);
});
