import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { formatDuration, parseFlags } from "#base/config";
import { assertTimeout, defaultsOf, faultsOf } from "../../shared/tunnel/testing/command-lines.ts";
import { type ServerConfig, serverConfig } from "./config.ts";
import { serverFlags } from "./flags.ts";

const GATE = "--feature-gates=EnableClusterToMasterTraffic=true";

function files(t: TestContext): (name: string, content?: string) => string {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-server-config-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return (name, content = "") => {
    writeFileSync(join(folder, name), content);
    return join(folder, name);
  };
}

function parse(...argv: string[]): ServerConfig {
  return serverConfig(parseFlags(serverFlags, argv).values);
}

/** A command line that is right. */
function uds(file: ReturnType<typeof files>): string[] {
  return [
    ...[
      "--uds-name=/run/x.sock",
      "--server-port=0",
      `--cluster-cert=${file("c.crt")}`,
      `--cluster-key=${file("c.key")}`,
    ],
    `--cluster-ca-cert=${file("ca.crt")}`,
  ];
}

test("serverFlags: every flag of Konnectivity has its default", () => {
  const { values } = parseFlags(serverFlags, []);
  const byName = defaultsOf(serverFlags);
  const texts =
    "server-cert server-key server-ca-cert cluster-cert cluster-key cluster-ca-cert uds-name server-bind-address agent-bind-address health-bind-address server-id agent-namespace agent-service-account authentication-audience kubeconfig tls-min-version";
  for (const name of texts.split(" ")) assert.equal(byName[name], "", name);
  const expected = {
    mode: "grpc",
    "delete-existing-uds-file": true,
    "server-port": 8090,
    "agent-port": 8091,
    "health-port": 8092,
    "admin-port": 8095,
    "admin-bind-address": "127.0.0.1",
    "keepalive-time": 3_600_000,
    "frontend-keepalive-time": 3_600_000,
    "enable-profiling": false,
    "enable-contention-profiling": false,
    "server-count": 1,
    "kubeconfig-qps": 0,
    "kubeconfig-burst": 0,
    "kube-api-content-type": "application/vnd.kubernetes.protobuf",
    "proxy-strategies": "default",
    "cipher-suites": [],
    "xfr-channel-size": 10,
    "enable-lease-controller": false,
    "lease-namespace": "kube-system",
    "lease-label": "k8s-app=konnectivity-server",
    "graceful-shutdown-timeout": 0,
    "backend-dial-timeout": 0,
    "frontend-write-channel-size": 10,
    "warn-on-channel-limit": false,
  };
  for (const [name, value] of Object.entries(expected)) assert.deepEqual(byName[name], value, name);
  assert.equal(formatDuration(values.halfCloseTimeout), "30s");
});

test("serverConfig: a right command line gives the configuration", (t) => {
  const file = files(t);
  const config = parse(...uds(file), "--server-id=me", "--proxy-strategies=destHost,default");
  assert.deepEqual(config.frontend, { kind: "uds", path: "/run/x.sock", deleteExisting: true });
  assert.deepEqual(config.agent.address, { port: 8091 });
  assert.deepEqual(config.admin, { host: "127.0.0.1", port: 8095 });
  assert.deepEqual([config.serverID, config.strategies], ["me", ["destHost", "default"]]);
  assert.deepEqual([config.tokens, config.lease, config.destinations], [undefined, undefined, undefined]);
  const pair = [
    `--server-cert=${file("s.crt")}`,
    `--server-key=${file("s.key")}`,
    `--server-ca-cert=${file("sca.crt")}`,
  ];
  const { frontend } = parse(...uds(file), "--uds-name=", "--server-port=8090", ...pair, "--server-bind-address=::1");
  assert.ok(frontend.kind === "tcp");
  assert.deepEqual(frontend.address, { host: "::1", port: 8090 });
});

test("serverConfig: the id comes from the flag, the environment, or is random", (t) => {
  const argv = uds(files(t));
  t.after(() => delete process.env["PROXY_SERVER_ID"]);
  assert.notEqual(parse(...argv).serverID, parse(...argv).serverID);
  process.env["PROXY_SERVER_ID"] = "by-environment";
  assert.equal(parse(...argv).serverID, "by-environment");
  assert.equal(parse(...argv, "--server-id=by-flag").serverID, "by-flag");
});

test("serverConfig: --take-over shares the ports, and names what it does not work with", (t) => {
  const right = [...uds(files(t)), "--take-over"];
  assert.equal(parse(...right).agent.isShared, true);
  const found = faultsOf(() =>
    parse(...right, "--workers=2", "--server-id=a", "--heap-snapshot-socket=/run/heap.sock"),
  );
  assert.deepEqual(
    found
      .filter((line) => line.startsWith("--take-over"))
      .map((line) => /: .*(workers|--server-id|--heap-snapshot-socket)/.exec(line)?.[1]),
    ["workers", "--server-id", "--heap-snapshot-socket"],
  );
  const long = `--uds-name=/run/${"a".repeat(100)}`;
  assert.match(faultsOf(() => parse(...right, long)).join(), /^--uds-name: needs 110 bytes with --take-over; /);
});

test("serverConfig: workers have ids of their own, share the ports, and take the leader's socket", (t) => {
  const right = [...uds(files(t)), "--server-id=a"];
  const { values } = parseFlags(serverFlags, [...right, "--workers=3"]);
  const leader = serverConfig(values);
  assert.deepEqual([leader.serverID, leader.workers, leader.agent.isShared], ["a", 3, true]);
  assert.equal(leader.frontend.kind, "uds");
  const worker = serverConfig(values, { index: 2, count: 3, descriptor: (at) => 4 + at });
  assert.deepEqual([worker.serverID, worker.workers, worker.agent.isShared], ["a-2", 3, true]);
  assert.deepEqual(worker.frontend, { kind: "shared-uds", fd: 4 });
  assert.deepEqual([parse(...right).workers, parse(...right).agent.isShared], [1, false]);
  const long = [`--server-id=${"a".repeat(255)}`, "--workers=12"];
  assert.match(faultsOf(() => parse(...right, ...long)).join(), /^--server-id: "a{255}-12" is not visible ASCII of/);
  const { workers } = parse(...right, "--workers=0");
  assert.ok(workers >= 1 && workers <= 8);
  assert.deepEqual(
    faultsOf(() => parse(...right, "--workers=2", "--enable-profiling")),
    ["--enable-profiling: profiles one process: remove this flag, or set --workers=1"],
  );
});

test("serverConfig: each fault names its flag", (t) => {
  const file = files(t);
  const right = uds(file);
  const tokens = ["--agent-namespace=ns", "--agent-service-account=sa", "--authentication-audience=aud"];
  const cases: readonly (readonly [readonly string[], RegExp])[] = [
    [["--cluster-key="], /^--cluster-key: is needed with --cluster-cert$/],
    [["--cluster-cert="], /^--cluster-cert: is needed with --cluster-key$/],
    [["--cluster-cert=/nowhere"], /^--cluster-cert: cannot read "\/nowhere": .*ENOENT/],
    [["--cluster-ca-cert=/nowhere"], /^--cluster-ca-cert: cannot read/],
    [["--kubeconfig=/nowhere"], /^--kubeconfig: cannot read/],
    [["--server-port=8090"], /^--server-port: must be 0 with --uds-name, not 8090$/],
    [[`--server-ca-cert=${file("x")}`], /^--server-ca-cert: has no effect with --uds-name/],
    [[`--uds-name=/${"x".repeat(110)}`], /^--uds-name: has 111 bytes/],
    [["--agent-port=1023"], /^--agent-port: 1023 is not from 1024 to 49151/],
    [["--health-port=49152"], /^--health-port: 49152 is not/],
    [["--admin-port=0"], /^--admin-port: 0 is not/],
    [["--enable-contention-profiling"], /^--enable-contention-profiling: needs --enable-profiling$/],
    [["--xfr-channel-size=0"], /^--xfr-channel-size: 0 is not above 0$/],
    [
      ["--balancer-proxy-protocol"],
      /^--balancer-proxy-protocol: needs --balancer-cidr: a PROXY header is read from balancers alone$/,
    ],
    [["--tls-min-version=1.2"], /^--tls-min-version: "1\.2" is not a TLS version/],
    [
      ["--cipher-suites=TLS_RSA_WITH_RC4_128_SHA"],
      /^--cipher-suites: "TLS_RSA_WITH_RC4_128_SHA" is unknown or not secure/,
    ],
    [["--proxy-strategies=fastest"], /^--proxy-strategies: "fastest" is not a proxy strategy/],
    [["--proxy-strategies="], /^--proxy-strategies: "" is not a proxy strategy/],
    [["--lease-label=x"], /^--lease-label: "x" is not a label/],
    [["--enable-lease-controller", "--server-id=A_B"], /^--server-id: "A_B" cannot be part of the name of a Lease/],
    [["--server-id=a b"], /^--server-id: "a b" is not visible ASCII of at most 256 bytes$/],
    [tokens, /^--cluster-ca-cert: cannot be combined with token authentication, unless --allow-token-and-mtls is set$/],
    [["--cluster-ca-cert="], /^--cluster-ca-cert: agents would not be authenticated/],
    [["--cluster-ca-cert=", ...tokens.slice(0, 2)], /^--authentication-audience: is needed for token authentication$/],
    [["--allowed-destination=a:1"], /^--allowed-destination: needs --feature-gates=EnableClusterToMasterTraffic=true$/],
    [[`--allowed-destination-file=${file("d", "a:1")}`], /^--allowed-destination-file: needs --feature-gates/],
    [[GATE, "--allowed-destination-file=/nowhere"], /^--allowed-destination-file: cannot read "\/nowhere"/],
    [
      [GATE, `--allowed-destination-file=${file("e", "a:1\nb\n")}`],
      /^--allowed-destination-file: "b" has no host and port/,
    ],
  ];
  for (const [more, why] of cases) {
    const faults = faultsOf(() => parse(...[...right, ...more]));
    assert.equal(faults.length, 1, `${more.join(" ")}: ${faults.join("; ")}`);
    assert.match(faults[0] ?? "", why);
  }
  assert.deepEqual(
    faultsOf(() => parse(...right)),
    [],
  );
  for (const more of [
    [...tokens, "--allow-token-and-mtls"],
    ["--cluster-ca-cert=", ...tokens],
  ]) {
    assert.deepEqual(
      faultsOf(() => parse(...[...right, ...more])),
      [],
    );
  }
  assert.deepEqual(
    faultsOf(() => parse(...[...right, "--cluster-ca-cert=", "--insecure-allow-unauthenticated-agents"])),
    [],
  );
  const tcp = faultsOf(() => parse(...[...right, "--uds-name="])).map((fault) => fault.split(":")[0]);
  assert.deepEqual(tcp, ["--server-port", "--server-ca-cert", "--server-cert"]);
});

test("serverConfig: destinations of flags and file, and none without them", (t) => {
  const file = files(t);
  const right = uds(file);
  assert.equal(parse(...right, GATE).destinations, undefined);
  const path = file("allowed", "# comment\n\nsni=a.example,localhost:6443  # here too\n");
  const { destinations } = parse(
    ...right,
    GATE,
    "--allowed-destination=[::1]:6443",
    `--allowed-destination-file=${path}`,
  );
  assert.deepEqual(
    destinations?.map(({ host, port, sni }) => [host, port, sni]),
    [
      ["::1", 6443, undefined],
      ["localhost", 6443, "a.example"],
    ],
  );
  const alias = "--feature-gates=NodeToMasterTraffic=true";
  assert.equal(parse(...right, alias, "--allowed-destination=a:1").destinations?.length, 1);
});

test("serverFlags: values are refused one by one, with their flag", () => {
  const cases: readonly (readonly [string, RegExp])[] = [
    ["--mode=tcp", /--mode: "tcp" is not one of grpc, http-connect/],
    ["--keepalive-time=-1s", /--keepalive-time: "-1s" is not a duration/],
    ["--kubeconfig-qps=-1", /--kubeconfig-qps: "-1" is not a number/],
    ["--server-count=-1", /--server-count: "-1" is not a whole number/],
    ["--delete-existing-uds-file=maybe", /--delete-existing-uds-file: "maybe" is neither/],
    ["--allowed-destination=*:6443", /--allowed-destination: "\*:6443" has no host and port/],
    ["--feature-gates=Other=true", /--feature-gates: "Other=true" names no feature gate/],
    ["--feature-gates=EnableClusterToMasterTraffic", /--feature-gates: .* (is neither true nor false|names no)/],
    ["--v=many", /--v: "many" is not a whole number/],
  ];
  for (const [flag, why] of cases) assert.throws(() => parseFlags(serverFlags, [flag]), why, flag);
});

test("serverFlags: klog's flags are accepted in all of their forms", () => {
  const argv =
    "-v=4 --logtostderr --alsologtostderr=false --stderrthreshold INFO --vmodule=a=1 --log_dir=/x --skip_headers".split(
      " ",
    );
  const { values } = parseFlags(serverFlags, argv);
  assert.deepEqual([values.verbosity, values.logtostderr, values.vmodule, values.oneOutput], [4, true, true, false]);
  // As Konnectivity's programs list them.
  const dashes = [
    ...["-v4", "--add-dir-header", "--alsologtostderr", "--alsologtostderrthreshold=2", "--log-backtrace-at=a.go:1"],
    ...[
      "--legacy-stderr-threshold-behavior",
      "--log-dir=/x",
      "--log-file",
      "/x",
      "--log-file-max-size=1",
      "--one-output",
    ],
    ...["--skip-headers", "--skip-log-headers", "--stderrthreshold=2", "--vmodule=a=1", "--logtostderr=false"],
  ];
  const upstream = parseFlags(serverFlags, dashes).values;
  assert.deepEqual(
    [upstream.verbosity, upstream.logDir, upstream.logFile, upstream.skipHeaders],
    [4, true, true, true],
  );
  for (const word of ["-x4", "-vx", "--v4"]) assert.throws(() => parseFlags(serverFlags, [word]));
});

test("serverFlags: a timeout that is too long for a timer, or 0, is refused with its flag", () => {
  for (const name of ["reverse-dial-timeout"]) assertTimeout(serverFlags, name);
  assert.equal(parseFlags(serverFlags, ["--keepalive-time=1000h"]).values.keepaliveTime, 3_600_000_000);
});

test("serverConfig: rules about agents need agents that prove who they are", (t) => {
  const file = files(t);
  const { identity } = parse(...uds(file), "--agent-identity=kubelet,/etc/rules.yaml", "--max-agents-per-identity=2");
  assert.deepEqual(identity, {
    sources: ["kubelet", "/etc/rules.yaml"],
    limits: { agents: 2, streams: 64 },
    notNodes: undefined,
  });
  const ranges = ["--pod-cidr=10.2.0.0/16,::ffff:10.4.0.0/112", "--service-cidr=10.3.0.0/16"];
  const withRanges = parse(...uds(file), "--agent-identity=node-addresses", ...ranges).identity?.notNodes;
  assert.deepEqual(withRanges?.map(String), ["10.2.0.0/16", "10.4.0.0/16", "10.3.0.0/16"]);
  assert.equal(parse(...uds(file)).identity, undefined);
  const open = [...uds(file), "--cluster-ca-cert=", "--insecure-allow-unauthenticated-agents"];
  assert.deepEqual(
    faultsOf(() => parse(...open, "--agent-identity=kubelet")),
    ["--agent-identity: agents prove nothing: set --cluster-ca-cert, or the three flags of token authentication"],
  );
});
