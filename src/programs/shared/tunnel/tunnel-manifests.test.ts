import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import { parseFlags } from "#base/config";
import { type AgentConfig, agentConfig } from "../../daemons/proxy-agent/config.ts";
import { agentFlags } from "../../daemons/proxy-agent/flags.ts";
import { serverFlags } from "../../daemons/proxy-server/flags.ts";

const root = join(import.meta.dirname, "../../../..");
const FLAGS = { "proxy-agent": agentFlags, "proxy-server": serverFlags } as const;
type Program = keyof typeof FLAGS;

interface Container {
  readonly name: string;
  readonly command: readonly string[];
  readonly args: readonly string[];
  readonly env?: readonly { readonly name: string }[];
  readonly [probe: `${string}Probe`]: { readonly httpGet: Readonly<Record<string, unknown>> };
  readonly securityContext: Readonly<Record<string, unknown>>;
  readonly resources: { readonly requests: object };
}

interface StaticPod {
  readonly kind: string;
  readonly spec: {
    readonly hostNetwork: boolean;
    readonly dnsPolicy: string;
    readonly priorityClassName: string;
    readonly terminationGracePeriodSeconds: number;
    readonly containers: readonly Container[];
    readonly volumes: readonly Readonly<Record<string, object | string>>[];
  };
}

function text(path: string): string {
  return readFileSync(join(root, path), "utf8");
}

function onlyDocument(path: string): unknown {
  const documents = parseAllDocuments(text(path));
  assert.equal(documents.length, 1);
  const [document] = documents;
  assert.deepEqual([document?.errors, document?.warnings], [[], []], path);
  return document?.toJS();
}

/** The arguments of a program, without its name; what kubelet or systemd put in is a node's. */
function argsOf(program: Program): readonly string[] {
  const pod = onlyDocument(`deploy/tunnel/${program}.static-pod.yaml`) as StaticPod;
  const [container] = pod.spec.containers;
  assert.ok(container !== undefined);
  assert.deepEqual(container.command, ["isthmus"]);
  const [name, ...args] = container.args;
  assert.equal(name, program);
  const known = new Set(container.env?.map((one) => one.name));
  return args.map((arg) =>
    arg.replaceAll(/\$\((\w+)\)/g, (_all, variable: string) => {
      assert.ok(known.has(variable), `${arg}: ${variable} is not in env`);
      return variable === "HOST_IP" ? "192.0.2.1" : "node1";
    }),
  );
}

function unitArgs(): readonly string[] {
  const command = /^ExecStart=((?:.*\\\n)*.*)$/m.exec(text("deploy/tunnel/isthmus-proxy-agent.service"))?.[1] ?? "";
  const [path, program, ...args] = command.replaceAll("\\\n", " ").replaceAll("%H", "node1").trim().split(/\s+/);
  assert.deepEqual([path, program], ["/usr/local/bin/isthmus", "proxy-agent"]);
  return args;
}

function agentOf(args: readonly string[]): AgentConfig {
  const parsed = parseFlags(agentFlags, args.map(withOwnFiles));
  assert.deepEqual(parsed.words, []);
  return agentConfig(parsed.values);
}

/** The same with files that are there: whether it is complete is asked, not what they hold. */
function withOwnFiles(arg: string): string {
  return arg.replace(/=\/etc\/isthmus\/tunnel\/.*$/, `=${join(root, "package.json")}`);
}

for (const program of ["proxy-agent", "proxy-server"] as const) {
  test(`deploy/tunnel: the static pod of ${program} gives flags that the program has, and probes what it serves`, () => {
    const pod = onlyDocument(`deploy/tunnel/${program}.static-pod.yaml`) as StaticPod;
    const args = argsOf(program);
    const { values, given } = parseFlags<typeof agentFlags & typeof serverFlags>(FLAGS[program] as never, args);
    assert.equal(given.size, new Set(args.map((arg) => arg.split("=")[0])).size);
    const { spec } = pod;
    assert.deepEqual(
      [spec.hostNetwork, spec.dnsPolicy, spec.priorityClassName],
      [true, "Default", "system-node-critical"],
    );
    for (const { name, ...source } of spec.volumes) assert.deepEqual(Object.keys(source), ["hostPath"], String(name));
    const [container] = spec.containers;
    assert.ok(container !== undefined);
    const [host, port] =
      program === "proxy-agent"
        ? [values.healthServerHost, values.healthServerPort]
        : [values.healthBindAddress, values.healthPort];
    for (const [probe, path] of [
      ["startupProbe", "/healthz"],
      ["livenessProbe", "/healthz"],
      ["readinessProbe", "/readyz"],
    ] as const) {
      assert.deepEqual(container[probe]?.httpGet, { host, path, port });
    }
    const graceMs = program === "proxy-agent" ? values.drainTimeout : values.gracefulShutdownTimeout;
    assert.ok(spec.terminationGracePeriodSeconds * 1000 > graceMs);
    const add = program === "proxy-agent" ? { add: ["NET_ADMIN"] } : {};
    assert.deepEqual(container.securityContext, {
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ["ALL"], ...add },
      // It makes its socket in a folder of the host.
      ...(program === "proxy-server" ? { seLinuxOptions: { type: "spc_t" } } : {}),
    });
    assert.deepEqual(Object.keys(container.resources.requests), ["cpu", "memory"]);
  });
}

test("deploy/tunnel: pod and unit start the same agent, whose target the server of the other manifest allows", () => {
  const [pod, unit] = [agentOf(argsOf("proxy-agent")), agentOf(unitArgs())];
  assert.deepEqual(unit, pod);
  assert.deepEqual(pod.warnings, []);
  const server = parseFlags(serverFlags, argsOf("proxy-server")).values;
  const allowed = server.allowedDestination.map(({ host, port }) => `${host}:${port}`);
  assert.deepEqual(
    pod.reverse?.targets.map(({ address }) => address),
    allowed,
  );
  assert.equal(server.agentPort, pod.servers[0]?.port);
});

test("deploy/tunnel: the API server's files name the server's socket and mode, and the agents' address and port", () => {
  const server = parseFlags(serverFlags, argsOf("proxy-server")).values;
  const connection = {
    proxyProtocol: { grpc: "GRPC", "http-connect": "HTTPConnect" }[server.mode],
    transport: { uds: { udsName: server.udsName } },
  };
  assert.deepEqual(onlyDocument("deploy/tunnel/egress-selector.yaml"), {
    apiVersion: "apiserver.k8s.io/v1beta1",
    kind: "EgressSelectorConfiguration",
    egressSelections: [{ name: "cluster", connection }],
  });
  const { reverse } = agentOf(argsOf("proxy-agent"));
  const slice = onlyDocument("deploy/tunnel/kubernetes-endpointslice.yaml") as {
    readonly endpoints: readonly { readonly addresses: readonly string[] }[];
    readonly ports: readonly { readonly port: number }[];
  };
  const addresses = slice.endpoints.flatMap((endpoint) => endpoint.addresses);
  assert.deepEqual(addresses, reverse?.bindAddresses.map(String));
  assert.deepEqual(
    slice.ports.map(({ port }) => port),
    reverse?.targets.map(({ localPort }) => localPort),
  );
});

test("deploy/tunnel: the unit has what a node needs before kubelet, and no privilege but one", () => {
  const lines = new Set(text("deploy/tunnel/isthmus-proxy-agent.service").split("\n"));
  for (const line of [
    "Before=kubelet.service",
    "After=network-online.target",
    "Wants=network-online.target",
    "Restart=always",
    "RestartSec=2",
    "AmbientCapabilities=CAP_NET_ADMIN",
    "CapabilityBoundingSet=CAP_NET_ADMIN",
    "NoNewPrivileges=yes",
    "ProtectSystem=strict",
    "LimitNOFILE=1048576",
  ]) {
    assert.ok(lines.has(line), line);
  }
});
