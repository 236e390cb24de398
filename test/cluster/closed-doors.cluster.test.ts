/** What signals and variables of the environment open in the shipped programs: nothing (docs/security.md). */
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { makeCertificates } from "#test/certificates";
import { ISTHMUS, type Running, start, until } from "#test/lab";
import { PROGRAMS } from "../../src/programs/programs.ts";

/** Of Node's debugger. */
const DEBUGGER_PORT = 9229;
/** Signals that a program that serves outlives, whatever it does at them. */
const OUTLIVED = ["SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGWINCH", "SIGCONT", "SIGURG", "SIGCHLD"] as const;
/** Signals that end a program at once, as every process that does not handle them. */
const ENDING = ["SIGQUIT", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGIO", "SIGPWR", "SIGSTKFLT", "SIGXCPU"] as const;

const folder = mkdtempSync(join(tmpdir(), "isthmus-doors-"));
const at = (name: string): string => join(folder, name);
const marker = at("code-ran");
after(() => rmSync(folder, { recursive: true, force: true }));

/** Variables by which Node runs other code, opens a debugger or writes files. */
const STRANGE: Readonly<Record<string, string>> = {
  NODE_OPTIONS: `--inspect=0.0.0.0:${DEBUGGER_PORT} --require=${at("strange.cjs")}`,
  NODE_REPL_EXTERNAL_MODULE: at("strange.cjs"),
  NODE_PATH: folder,
  NODE_V8_COVERAGE: at("coverage"),
  NODE_REDIRECT_WARNINGS: at("warnings"),
  NODE_DEBUG: "*",
  NODE_COMPILE_CACHE: at("cache"),
  OPENSSL_CONF: at("openssl.cnf"),
};

before(() => {
  writeFileSync(at("strange.cjs"), `require("node:fs").writeFileSync(${JSON.stringify(marker)}, "")`);
  writeFileSync(at("openssl.cnf"), "nodejs_conf = strange\n[strange]\nengines = strange\n");
  const kubeconfig = {
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name: "c", cluster: { server: "https://127.0.0.1:1" } }],
    users: [{ name: "u", user: { token: "t" } }],
    contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
    "current-context": "c",
  };
  writeFileSync(at("kubeconfig"), JSON.stringify(kubeconfig));
  const { pairs } = makeCertificates("doors", { server: ["localhost"] });
  for (const [name, text] of Object.entries(pairs.server)) writeFileSync(at(name), text);
  writeFileSync(at("uplinks.json"), JSON.stringify({ uplinks: [], listeners: [] }));
});

const KUBECONFIG = `--kubeconfig=${at("kubeconfig")}`;
const SERVICES = [
  KUBECONFIG,
  "--hostname-override=n",
  "--conntrack-max-per-core=0",
  "--conntrack-min=0",
  "--oom-score-adj=0",
];
/** The programs that serve, with flags that they need; there is no API server. */
const SERVING: Readonly<Record<string, readonly string[]>> = {
  coild: [KUBECONFIG],
  "coil-router": [KUBECONFIG],
  "coil-egress": [KUBECONFIG, "--tunnel-driver=vxlan"],
  "service-proxy": SERVICES,
  node: ["service-proxy", ...SERVICES, "--", "coil-router", KUBECONFIG],
  "proxy-agent": ["--proxy-server-host=127.0.0.1", "--proxy-server-port=1"],
  "uplink-proxy": [`--config=${at("uplinks.json")}`],
  "coil-ipam-controller": [KUBECONFIG, "--webhook-addr=none"],
  "coil-egress-controller": [KUBECONFIG, "--webhook-addr=none", "--image=x"],
  "coil-controller": [KUBECONFIG, "--webhook-addr=none", "--egress-webhook-addr=none", "--image=x"],
  "proxy-server": [
    "--workers=2",
    "--server-port=0",
    "--insecure-allow-unauthenticated-agents",
    "--uds-name=/run/frontend.sock",
    `--cluster-cert=${at("cert")}`,
    `--cluster-key=${at("key")}`,
    "--mode=http-connect",
  ],
  "sni-router": ["--default=127.0.0.1:1"],
  "nic-controller": [KUBECONFIG, "--cluster-id=c", "--webhook-addr=none"],
  "nic-agent": [KUBECONFIG, "--state-dir=/run/nic"],
};

/** A program with a network, and a /run of its own. */
function launch(name: string): Running {
  const inside = 'ip link set lo up; ip link add eth0 type veth peer name peer0; mount -t tmpfs none /run; exec "$@"';
  const argv = ["unshare", "--net", "--mount", "sh", "-ec", inside, "sh", ISTHMUS, name, ...(SERVING[name] ?? [])];
  const env = {
    ...STRANGE,
    COIL_NODE_NAME: "n",
    COIL_POD_ADDRESSES: "10.0.0.1",
    COIL_POD_NAMESPACE: "d",
    COIL_POD_NAME: "p",
    COIL_EGRESS_NAME: "e",
  };
  return start(argv, { env });
}

const isOver = ({ child }: Running): boolean => child.exitCode !== null || child.signalCode !== null;

/** All processes in the network of this one. */
function groupOf(pid: number): readonly number[] {
  const own = readlinkSync(`/proc/${pid}/ns/net`);
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      try {
        return readlinkSync(`/proc/${name}/ns/net`) === own ? [Number(name)] : [];
      } catch {
        // It has ended.
        return [];
      }
    });
}

/** The TCP ports that are listened on in the network of a process. */
function portsOf(pid: number): readonly number[] {
  const lines = ["tcp", "tcp6"].flatMap((table) => {
    const path = `/proc/${pid}/net/${table}`;
    // It may have ended.
    return existsSync(path) ? readFileSync(path, "utf8").split("\n") : [];
  });
  return lines.flatMap((line) => {
    const [, port = ""] = /^\s*\d+: [0-9A-F]+:([0-9A-F]{4}) [0-9A-F]+:0000 0A /.exec(line) ?? [];
    return port === "" ? [] : [Number.parseInt(port, 16)];
  });
}

test("programs: the list has every one that serves", () => {
  const serving = Object.entries(PROGRAMS).filter(
    ([, { memory, onNode, internal }]) => internal !== true && (memory !== undefined || onNode === true),
  );
  assert.deepEqual(serving.map(([name]) => name).sort(), Object.keys(SERVING).sort());
});

test("programs: no signal and no variable of Node opens a port or runs code, in them or in their workers; at a signal that is not theirs they go on, or end", async (t) => {
  const all = Object.keys(SERVING).map((name, place) => ({ name, place, running: launch(name) }));
  t.after(() => Promise.all(all.map(({ running }) => (running.child.kill("SIGKILL"), running.ended))));
  await Promise.all(
    all.map(async ({ name, place, running }) => {
      const pid = running.child.pid ?? 0;
      const seen = (): string => `${name}: ${running.said()}`;
      const command = (): string => readFileSync(`/proc/${pid}/cmdline`, "utf8");
      await until(`${name} serves`, () => isOver(running) || portsOf(pid).length > 0, { seen });
      assert.equal(isOver(running), false, seen());
      if (name === "proxy-server") await until("workers serve", () => groupOf(pid).length >= 3, { seen });
      assert.match(command(), /\0--disable-sigusr1\0/, name);
      for (const one of groupOf(pid)) {
        for (const signal of OUTLIVED) process.kill(one, signal);
        if (PROGRAMS[name]?.reloads === true) process.kill(one, "SIGHUP");
      }
      // A debugger is there within milliseconds.
      for (let look = 0; look < 20; look += 1) {
        await new Promise((resolve) => setTimeout(resolve, 25));
        assert.equal(isOver(running), false, seen());
        assert.ok(!portsOf(pid).includes(DEBUGGER_PORT), seen());
      }
      assert.doesNotMatch(running.said(), /[Dd]ebugger/);
      const ending = PROGRAMS[name]?.reloads === true ? (ENDING[place % ENDING.length] ?? "SIGQUIT") : "SIGHUP";
      process.kill(pid, ending);
      await running.ended;
      assert.equal(running.child.signalCode, ending, seen());
    }),
  );
  const made = readdirSync(folder);
  for (const name of ["code-ran", "coverage", "warnings", "cache"]) assert.ok(!made.includes(name), name);
});

test("launcher: each variable that the pinned Node reads is decided", () => {
  const launcher = readFileSync(join(dirname(ISTHMUS), "isthmus"), "utf8");
  const gone = new Set(/^unset ((?:.*\\\n)*.*)$/m.exec(launcher)?.[1]?.split(/[\s\\]+/));
  // By these a program shows colours, or waits on a machine of another kind. They change nothing that runs.
  const stay = new Set(["NODE_DISABLE_COLORS", "NODE_PENDING_PIPE_INSTANCES", "NODE_SKIP_PLATFORM_CHECK"]);
  const { binding } = process as unknown as { binding(name: string): Readonly<Record<string, unknown>> };
  const sources = Object.values(binding("natives")).join("\n");
  const read = new Set([...sources.matchAll(/\bNODE_[A-Z][A-Z0-9_]+/g)].map(([name]) => name));
  assert.ok(read.has("NODE_OPTIONS") && read.has("NODE_PATH"), [...read].join(" "));
  const isRead = (name: string): boolean => new RegExp(`env\\.${name}\\b`).test(sources);
  const open = [...read].filter((name) => isRead(name) && !gone.has(name) && !stay.has(name));
  assert.deepEqual(open, []);
});
