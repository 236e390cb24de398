/**
 * coil and coild as they ship, on one node: the launcher as coil-installer puts it there, with calls that are handed over and those that
 * cannot be; coild's gRPC socket; a chain with Debian's plugins behind coil.
 */
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import {
  existsSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, type TestContext, test } from "node:test";
import { Client, credentials, Metadata, type ServiceError } from "@grpc/grpc-js";
import { sleep } from "#base/async";
import { systemClock } from "#base/clock";
import { markServed } from "#base/served-sockets";
import { tryFileLock } from "#kernel/lock";
import { openKernel } from "#kernel/net";
import { inNetNs, openNetNs } from "#kernel/netns";
import { type Draft, KubeClient, loadKubeConfig, type Pod, resources } from "#kube/client";
import { labPaths } from "#lab/host";
import { ISTHMUS, isthmus, type Outcome, type Running, removeLab, start, stateOf, until } from "#test/lab";

const LAB = "ct-handover";
const SOCKET = labPaths(LAB).socketOf("node1");
/** So many pods at once. */
const MANY = 100;
const TIMEOUT = { timeout: 120_000 };
const kernel = openKernel();
const dir = mkdtempSync(join(tmpdir(), "isthmus-handover-"));
const bin = join(dir, "bin");
const COIL = join(bin, "coil");
const STANDALONE = `${COIL}-standalone`;
/** Debian's plugins. */
const PLUGINS = "/usr/lib/cni";
const podNs = (at: number): string => `isthmus-${LAB}-pod-h${at}`;
const made = new Set<string>();
let api: KubeClient;

before(async () => {
  const { code, stderr } = await isthmus(["lab", "--json", "--keep", `--name=${LAB}`, "--nodes=1", "--pods=0"]);
  assert.equal(code, 0, stderr);
  api = new KubeClient(await loadKubeConfig({ path: labPaths(LAB).kubeconfig, clock: systemClock }), {
    userAgent: "handover-test",
    clock: systemClock,
  });
  const conflist = { cniVersion: "1.1.0", name: "k8s-pod-network", plugins: [{ type: "coil", socket: SOCKET }] };
  const env = {
    CNI_ETC_DIR: join(dir, "etc"),
    CNI_BIN_DIR: bin,
    COIL_PATH: join(ISTHMUS, "../cni/coil"),
    CNI_NETCONF: JSON.stringify(conflist),
  };
  const installed = await start([join(ISTHMUS, "../coil-installer"), "--rescan-wait=0"], { env }).ended;
  assert.equal(installed.code, 0, installed.stderr);
  // No kubelet makes links for it: this test does.
  const draft = { metadata: { name: "p", namespace: "default" }, spec: { containers: [{ name: "c", image: "none" }] } };
  await api.create(resources.pods, draft as unknown as Draft<Pod>);
});

after(async () => {
  await api?.close();
  for (const name of made) kernel.deleteNetNs(name);
  await removeLab(LAB);
  rmSync(dir, { recursive: true, force: true });
});

/** The path of a pod's namespace, which is made at its first use. */
function netnsOf(at: number): string {
  const name = podNs(at);
  if (!made.has(name)) kernel.createNetNs(name)[Symbol.dispose]();
  made.add(name);
  return `/run/netns/${name}`;
}

interface Call {
  readonly command: string;
  readonly id?: string;
  readonly netns?: string;
  readonly config?: object;
  readonly executable?: string;
  /** A redirection of the shell. */
  readonly output?: string;
}

/** Starts the executable in the node's namespace as a runtime does. */
function begin({ command, id = "c0", netns = netnsOf(0), config = {}, executable = COIL, output }: Call): Running {
  const env = {
    CNI_COMMAND: command,
    CNI_CONTAINERID: id,
    CNI_NETNS: netns,
    CNI_IFNAME: "eth0",
    CNI_PATH: bin,
    CNI_ARGS: "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=p",
  };
  const full = { cniVersion: "1.1.0", name: "k8s-pod-network", type: "coil", socket: SOCKET, ...config };
  using node = openNetNs({ name: stateOf(LAB).nodes[0]?.netns ?? "" });
  const words = output === undefined ? [executable] : ["/bin/sh", "-c", `"$0" ${output}`, executable];
  return inNetNs(node, () => start(words, { env, input: Buffer.from(JSON.stringify(full)) }));
}

const call = (given: Call): Promise<Outcome> => begin(given).ended;

async function ok(given: Call): Promise<Record<string, unknown>> {
  const { code, stdout, stderr } = await call(given);
  assert.deepEqual([code, stderr], [0, ""], stdout);
  return stdout === "" ? {} : JSON.parse(stdout);
}

/** The links of the node that have the alias of a container. */
function linksOf(id: string): string[] {
  using node = kernel.openNetNs({ name: stateOf(LAB).nodes[0]?.netns ?? "" });
  using stack = kernel.openStack(node);
  return stack.links.list().flatMap(({ alias }) => (alias?.includes(`:${id}:`) === true ? [alias] : []));
}

const coildPid = (): number => stateOf(LAB).children.find(({ name }) => name === "coild-node1")?.pid ?? assert.fail();

/** Until another coild serves. */
async function coildAgain(pid: number): Promise<void> {
  await until("another coild serves", async () => {
    if (coildPid() === pid) return false;
    // With the mark of the one before STATUS would not ask for another.
    rmSync(`${SOCKET}.served`, { force: true });
    return (await call({ command: "STATUS" })).code === 0;
  });
}

/** Runs work while there is no standalone executable, so the hand-over alone can have answered. */
async function withoutStandalone<T>(work: () => Promise<T>): Promise<T> {
  renameSync(STANDALONE, `${STANDALONE}.away`);
  try {
    return await work();
  } finally {
    renameSync(`${STANDALONE}.away`, STANDALONE);
  }
}

test(
  "launcher: ADD, CHECK, DEL, STATUS, GC and VERSION are handed over, with the results of the standalone executable",
  TIMEOUT,
  async () => {
    assert.ok(statSync(COIL).size < 4096);
    assert.equal(statSync(`${SOCKET}.call1`).mode & 0o777, 0o600);
    for (const cniVersion of ["0.3.1", "0.4.0", "1.0.0", "1.1.0"]) {
      const config = { cniVersion };
      const wanted = await ok({ command: "ADD", config, executable: STANDALONE });
      await ok({ command: "DEL", config, executable: STANDALONE });
      await withoutStandalone(async () => {
        const result = await ok({ command: "ADD", config });
        const shape = (value: object): string =>
          JSON.stringify(value).replaceAll(/"(mac|address)":"[^"]*"/g, '"$1":""');
        assert.equal(shape(result), shape(wanted));
        assert.equal(linksOf("c0").length, 1);
        if (cniVersion !== "0.3.1") await ok({ command: "CHECK", config: { ...config, prevResult: result } });
        await ok({ command: "DEL", config });
        await ok({ command: "DEL", config });
        assert.deepEqual(linksOf("c0"), []);
      });
    }
    await withoutStandalone(async () => {
      await ok({ command: "STATUS" });
      await ok({ command: "GC", config: { "cni.dev/valid-attachments": [] } });
      assert.deepEqual((await ok({ command: "VERSION" }))["supportedVersions"], ["0.3.1", "0.4.0", "1.0.0", "1.1.0"]);
    });
  },
);

test(
  "launcher: the MAC address that the runtime asks for is the pod's, through both executables, and CHECK compares it",
  TIMEOUT,
  async () => {
    const asked = (last: number) => ({ runtimeConfig: { mac: `02:00:00:00:77:0${last}`, portMappings: [] } });
    const throughBoth = async (executable: string): Promise<void> => {
      const at = { executable, id: "mac" };
      const result = await ok({ ...at, command: "ADD", config: asked(1) });
      const [link] = result["interfaces"] as readonly { readonly mac: string }[];
      assert.equal(link?.mac, "02:00:00:00:77:01");
      await ok({ ...at, command: "CHECK", config: asked(1) });
      await ok({ ...at, command: "CHECK", config: { ...asked(1), prevResult: result } });
      const other = await call({ ...at, command: "CHECK", config: asked(2) });
      assert.deepEqual([other.code, JSON.parse(other.stdout).code], [1, 999]);
      assert.match(other.stdout, /MAC address 02:00:00:00:77:02 on eth0 in the pod, which has 02:00:00:00:77:01/);
      await ok({ ...at, command: "DEL", config: { runtimeConfig: { ips: ["10.0.0.1"], mac: "nonsense" } } });
      assert.deepEqual(linksOf("mac"), []);
    };
    await throughBoth(STANDALONE);
    await withoutStandalone(() => throughBoth(COIL));
  },
);

test(
  "launcher: with standard output closed an ADD is an error and makes nothing; one whose result cannot be written is an error, and DEL removes it",
  TIMEOUT,
  async () => {
    await withoutStandalone(async () => {
      const closed = await call({ command: "ADD", id: "closed", output: ">&-" });
      assert.deepEqual([closed.code, closed.stdout], [1, ""]);
      assert.match(closed.stderr, /"code":5,"msg":"standard output is closed/);
      assert.deepEqual(linksOf("closed"), []);
      const full = await call({ command: "ADD", id: "full", output: ">/dev/full" });
      assert.equal(full.code, 1);
      assert.match(full.stderr, /"code":5,"msg":"the answer of coild cannot be written/);
      assert.equal(linksOf("full").length, 1);
      await ok({ command: "DEL", id: "full" });
      assert.deepEqual(linksOf("full"), []);
    });
  },
);

test("launcher: errors are those of the standalone executable, to the letter", TIMEOUT, async () => {
  const node = `/run/netns/${stateOf(LAB).nodes[0]?.netns}`;
  const calls: Call[] = [
    { command: "NOPE" },
    { command: "ADD", id: "a/b" },
    { command: "ADD", netns: "" },
    { command: "ADD", netns: "/run/netns/none" },
    { command: "ADD", netns: node },
    { command: "DEL", netns: node },
    { command: "CHECK" },
    { command: "GC" },
    { command: "ADD", config: { cniVersion: "9.0.0" } },
    { command: "ADD", config: { name: "" } },
    { command: "ADD", config: { mtu: 1 } },
    { command: "ADD", config: { runtimeConfig: { mac: "01:00:5e:00:00:01" } } },
    { command: "ADD", config: { runtimeConfig: { ips: ["10.0.0.1/32"] } } },
    { command: "STATUS", config: { cniVersion: "1.0.0" } },
  ];
  for (const given of calls) {
    const wanted = await call({ ...given, executable: STANDALONE });
    assert.equal(wanted.code, 1);
    assert.deepEqual(await withoutStandalone(() => call(given)), wanted, JSON.stringify(given));
  }
});

test(
  "launcher: calls for another coild's socket, or without a coild, are the standalone executable's",
  TIMEOUT,
  async () => {
    // The same coild under another name: only gRPC finds it there.
    const alias = join(dir, "alias.sock");
    symlinkSync(SOCKET, alias);
    // As a coild with these sockets has done: a configuration of a tenant can name no other.
    const nowhere = { socket: join(dir, "none.sock") };
    for (const socket of [alias, nowhere.socket]) markServed(socket, { kind: "coild" });
    await ok({ command: "ADD", config: { socket: alias } });
    await ok({ command: "DEL", config: { socket: alias } });
    const away = await call({ command: "ADD", config: nowhere });
    assert.match(away.stdout, /"code":11,"msg":"cannot reach coild at .*none\.sock/);
    // A DEL without coild reads the links under /sys, which must be those of its namespace: `ip netns exec` mounts it so.
    const env = { CNI_COMMAND: "DEL", CNI_CONTAINERID: "c0", CNI_NETNS: "/run/netns/gone", CNI_IFNAME: "eth0" };
    const input = Buffer.from(JSON.stringify({ cniVersion: "1.0.0", name: "net", type: "coil", ...nowhere }));
    const node = stateOf(LAB).nodes[0]?.netns ?? "";
    const gone = await start(["ip", "netns", "exec", node, COIL], { env, input }).ended;
    assert.deepEqual([gone.code, gone.stdout], [0, ""]);
    assert.equal((await call({ command: "DEL", config: nowhere })).code, 1);
  },
);

test(`launcher: ${MANY} ADDs at once, then ${MANY} DELs, each with an address of its own`, TIMEOUT, async () => {
  const each = (command: string) =>
    withoutStandalone(() =>
      Promise.all(Array.from({ length: MANY }, (_, at) => ok({ command, id: `many${at}`, netns: netnsOf(at) }))),
    );
  const results = await each("ADD");
  const addresses = results.flatMap(({ ips }) => (ips as { readonly address: string }[]).map(({ address }) => address));
  assert.ok(addresses.length >= MANY);
  assert.equal(new Set(addresses).size, addresses.length);
  await each("DEL");
  assert.deepEqual(Array.from({ length: MANY }, (_, at) => linksOf(`many${at}`)).flat(), []);
});

test(
  "launcher: a coild that is killed in the middle is code 11, and the next one serves the repeated call",
  TIMEOUT,
  async () => {
    const pid = coildPid();
    process.kill(pid, "SIGSTOP");
    const running = begin({ command: "ADD", id: "middle" });
    // It is connected and waits: a stopped process accepts nothing, but the kernel does.
    await sleep(300);
    assert.equal(running.child.exitCode, null);
    process.kill(pid, "SIGKILL");
    const { code, stdout } = await running.ended;
    assert.equal(code, 1);
    assert.equal(JSON.parse(stdout).code, 11, stdout);
    await coildAgain(pid);
    await ok({ command: "ADD", id: "middle" });
    await ok({ command: "DEL", id: "middle" });
    assert.deepEqual(linksOf("middle"), []);
  },
);

test(
  "launcher: a runtime that kills it in the middle aborts the call in coild, which leaves nothing",
  TIMEOUT,
  async () => {
    for (const signal of ["SIGTERM", "SIGKILL"] as const) {
      const pid = coildPid();
      process.kill(pid, "SIGSTOP");
      const running = begin({ command: "ADD", id: "given-up" });
      await sleep(300);
      running.child.kill(signal);
      await running.ended;
      process.kill(pid, "SIGCONT");
      // Calls of one container run one after the other: when this one is answered, that one has ended.
      await ok({ command: "DEL", id: "given-up" });
      await sleep(200);
      assert.deepEqual(linksOf("given-up"), []);
      assert.equal(coildPid(), pid, "coild lives");
    }
  },
);

test("launcher: runtimes that never close standard input do not keep others waiting", TIMEOUT, async () => {
  using node = openNetNs({ name: stateOf(LAB).nodes[0]?.netns ?? "" });
  const stuck = Array.from({ length: 20 }, () =>
    inNetNs(node, () => spawn(COIL, { env: { CNI_COMMAND: "ADD" }, stdio: ["pipe", "ignore", "ignore"] })),
  );
  try {
    await withoutStandalone(() => ok({ command: "ADD", id: "free" }));
    await ok({ command: "DEL", id: "free" });
  } finally {
    const ends = stuck.map((child) => once(child, "exit"));
    for (const child of stuck) child.kill("SIGKILL");
    await Promise.all(ends);
  }
});

test(
  "coild: with a file at its hand-over path it starts and serves by gRPC; without the file it serves both again",
  TIMEOUT,
  async () => {
    const path = `${SOCKET}.call1`;
    const pid = coildPid();
    process.kill(pid, "SIGSTOP");
    rmSync(path, { force: true });
    writeFileSync(path, "precious");
    process.kill(pid, "SIGKILL");
    await coildAgain(pid);
    await ok({ command: "ADD", id: "file" });
    await ok({ command: "DEL", id: "file" });
    assert.equal(readFileSync(path, "utf8"), "precious");
    rmSync(path);
    await until("the hand-over socket is served", async () => existsSync(path));
    await withoutStandalone(() => ok({ command: "STATUS" }));
  },
);

test("coild: its hand-over socket goes with it, and one that a killed coild left is replaced", TIMEOUT, async () => {
  assert.ok(existsSync(`${SOCKET}.call1`));
  const pid = coildPid();
  process.kill(pid, "SIGKILL");
  await coildAgain(pid);
  await withoutStandalone(() => ok({ command: "STATUS" }));
});

test(
  "coild: without the files of its sockets and its lock it makes them again, and is not replaced",
  TIMEOUT,
  async () => {
    const pid = coildPid();
    const lock = join(dirname(SOCKET), "coild.lock");
    const files = [SOCKET, `${SOCKET}.call1`, lock];
    for (const file of files) rmSync(file);
    await until("all files are back", () => files.every((file) => existsSync(file)));
    await withoutStandalone(() => ok({ command: "STATUS" }));
    await ok({ command: "STATUS", executable: STANDALONE });
    assert.equal(tryFileLock(lock), undefined);
    assert.equal(coildPid(), pid);
  },
);

const same = (value: Buffer): Buffer => value;

/** A client of coild's gRPC socket; closed with the test. */
function clientOf(t: TestContext): Client {
  const client = new Client(`unix:${SOCKET}`, credentials.createInsecure());
  t.after(() => client.close());
  return client;
}

/** Sends one message on a stream and waits for its end. */
function ask(client: Client, path: string, request: Buffer): Promise<Buffer[]> {
  const call = client.makeBidiStreamRequest(path, same, same);
  const answers: Buffer[] = [];
  return new Promise((resolve, reject) => {
    call.on("data", (answer: Buffer) => answers.push(answer));
    call.on("error", reject);
    call.on("end", () => resolve(answers));
    call.write(request);
    call.end();
  });
}

test("coild: as shipped it describes its service by reflection", async (t) => {
  const client = clientOf(t);
  for (const version of ["v1", "v1alpha"]) {
    // ServerReflectionRequest with list_services = "".
    const path = `/grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`;
    const [answer, ...more] = await ask(client, path, Buffer.from([0x3a, 0]));
    assert.deepEqual(more, []);
    assert.ok(answer?.includes("pkg.cnirpc.CNI"));
  }
});

test("coild: its socket is for root alone, and an unknown method is UNIMPLEMENTED", async (t) => {
  const client = clientOf(t);
  assert.equal(statSync(SOCKET).mode & 0o777, 0o600);
  const call = new Promise((resolve, reject) => {
    const done = (error: ServiceError | null, reply?: Buffer): void =>
      error === null ? resolve(reply) : reject(error);
    client.makeUnaryRequest("/pkg.cnirpc.CNI/Nope", same, same, Buffer.alloc(0), new Metadata(), done);
  });
  await assert.rejects(call, { code: 12 });
});

test("coil: as shipped it refuses to make a pod of the node's own network namespace", async () => {
  const [node] = stateOf(LAB).nodes;
  const netns = `/run/netns/${node?.netns}`;
  const config = { cniVersion: "1.0.0", name: "k8s-pod-network", type: "coil", socket: SOCKET };
  const env = {
    CNI_COMMAND: "ADD",
    CNI_CONTAINERID: "c1",
    CNI_IFNAME: "eth0",
    CNI_NETNS: netns,
    CONFIG: JSON.stringify(config),
  };
  const plugin = join(ISTHMUS, "../cni/coil");
  const inNode = ["nsenter", `--net=${netns}`, "sh", "-c", `printf %s "$CONFIG" | ${plugin}`];
  const { code, stdout } = await start(inNode, { env }).ended;
  assert.deepEqual([code, JSON.parse(stdout).code], [1, 8], stdout);
});

test("coil is the first of a chain with Debian's tuning and portmap behind it, in each version that they know", async (t) => {
  const node = stateOf(LAB).nodes[0]?.netns ?? assert.fail();
  const pod = `isthmus-${LAB}-extra`;
  kernel.createNetNs(pod)[Symbol.dispose]();
  t.after(() => kernel.deleteNetNs(pod));
  const links = (): string => execFileSync("ip", ["-n", node, "-o", "link", "show"], { encoding: "utf8" });
  const linksBefore = links().split("\n").length;
  const chain = [
    { executable: join(ISTHMUS, "../cni/coil"), config: { type: "coil", socket: SOCKET } },
    { executable: join(PLUGINS, "tuning"), config: { type: "tuning", mtu: 1300, mac: "02:00:00:00:77:01" } },
    { executable: join(PLUGINS, "portmap"), config: { type: "portmap", runtimeConfig: { portMappings: [] } } },
  ];
  for (const cniVersion of ["0.3.1", "0.4.0", "1.0.0"]) {
    const chained = async (command: string, plugin: (typeof chain)[number], prevResult: unknown): Promise<unknown> => {
      const env = {
        CNI_COMMAND: command,
        CNI_CONTAINERID: "chain1",
        CNI_NETNS: `/run/netns/${pod}`,
        CNI_IFNAME: "eth0",
        CNI_PATH: PLUGINS,
        CNI_ARGS: `IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=p`,
      };
      const input = Buffer.from(JSON.stringify({ cniVersion, name: "k8s-pod-network", ...plugin.config, prevResult }));
      const done = await start(["nsenter", `--net=/run/netns/${node}`, plugin.executable], { env, input }).ended;
      assert.equal(done.code, 0, `${command} ${plugin.config.type} ${cniVersion}: ${done.stdout}${done.stderr}`);
      return done.stdout.trim() === "" ? undefined : JSON.parse(done.stdout);
    };
    let result: unknown;
    for (const plugin of chain) result = await chained("ADD", plugin, result);
    const { interfaces, ips } = result as { interfaces: { name: string; mac: string }[]; ips: { version?: string }[] };
    assert.equal(interfaces.find((link) => link.name === "eth0")?.mac, "02:00:00:00:77:01");
    assert.equal(ips[0]?.version, cniVersion === "1.0.0" ? undefined : "4");
    // CHECK tolerates the MTU and the MAC address that tuning has changed.
    if (cniVersion !== "0.3.1") for (const plugin of chain.slice(0, 2)) await chained("CHECK", plugin, result);
    for (const plugin of chain.toReversed()) await chained("DEL", plugin, result);
    assert.equal(links().split("\n").length, linksBefore);
  }
});
