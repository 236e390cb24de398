import assert from "node:assert/strict";
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { FakeClock, systemClock } from "#base/clock";
import { connectionOf } from "./context.ts";
import { parseExecCredential } from "./exec-plugin.ts";
import { KubeConfigError, type KubeConfigErrorCode, KubeError, loadKubeConfig } from "./index.ts";
import { parseKubeConfig } from "./kubeconfig-parse.ts";
import { WatchDecoder } from "./watch-decoder.ts";

class Folder implements AsyncDisposable {
  readonly path: string;
  private constructor(path: string) {
    this.path = path;
  }
  static async create(): Promise<Folder> {
    return new Folder(await mkdtemp(join(tmpdir(), "isthmus-kubeconfig-")));
  }
  async write(name: string, text: string): Promise<string> {
    const path = join(this.path, name);
    await writeFile(path, text);
    return path;
  }
  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.path, { recursive: true });
  }
}

const PEM = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";
const base64 = (text: string): string => Buffer.from(text).toString("base64");
const config = (user: object, cluster: object = {}, context: object = {}): string =>
  JSON.stringify({
    apiVersion: "v1",
    kind: "Config",
    "current-context": "c",
    contexts: [{ name: "c", context: { cluster: "k", user: "u", ...context } }],
    clusters: [{ name: "k", cluster: { server: "https://10.0.0.1:6443", ...cluster } }],
    users: [{ name: "u", user }],
  });

async function fails(work: Promise<unknown>, code: KubeConfigErrorCode, pattern: RegExp): Promise<void> {
  await assert.rejects(work, (error) => {
    assert.ok(error instanceof KubeConfigError, String(error));
    assert.equal(error.code, code, error.message);
    assert.match(error.message, pattern);
    assert.ok(!error.message.includes("\n"), "one line");
    return true;
  });
}

test("loadKubeConfig: server, namespace, token, CA and client certificate", async () => {
  await using folder = await Folder.create();
  await folder.write("cert.pem", PEM);
  const path = await folder.write(
    "config",
    config(
      { token: "abc", "client-certificate": "cert.pem", "client-key-data": base64(PEM), as: "somebody" },
      { "certificate-authority-data": base64(PEM), "tls-server-name": "kubernetes" },
      { namespace: "here" },
    ),
  );
  const connection = await loadKubeConfig({ path, clock: systemClock });
  assert.equal(connection.server.href, "https://10.0.0.1:6443/");
  assert.equal(connection.namespace, "here");
  assert.equal(connection.tlsServerName, "kubernetes");
  assert.deepEqual(await connection.credentials(), {
    headers: { authorization: "Bearer abc", "impersonate-user": "somebody" },
    ca: PEM,
    cert: PEM,
    key: PEM,
  });
});

test("loadKubeConfig: another server replaces the file's, credentials stay; a malformed URL is named", async () => {
  await using folder = await Folder.create();
  const path = await folder.write("config", config({ token: "abc" }));
  const connection = await loadKubeConfig({ path, server: "https://[fd00::1]:6443", clock: systemClock });
  assert.equal(connection.server.href, "https://[fd00::1]:6443/");
  assert.deepEqual((await connection.credentials()).headers, { authorization: "Bearer abc" });
  for (const server of ["10.0.0.1:6443", "ftp://10.0.0.1", ""])
    await fails(
      loadKubeConfig({ path, server, clock: systemClock }),
      "invalid",
      /is not a URL of an API server: https:\/\/HOST:PORT is expected/,
    );
});

test("loadKubeConfig: a token file is read again after a minute or a refusal, and kept while it is away", async () => {
  await using folder = await Folder.create();
  const clock = new FakeClock();
  const tokenFile = await folder.write("token", "one\n");
  const path = await folder.write("config", config({ tokenFile: "token" }));
  const connection = await loadKubeConfig({ path, clock });
  const token = async (): Promise<string | undefined> => (await connection.credentials()).headers["authorization"];
  assert.equal(await token(), "Bearer one");
  await folder.write("token", "two");
  assert.equal(await token(), "Bearer one");
  await clock.advance(60_000);
  assert.equal(await token(), "Bearer two");
  await folder.write("token", "three");
  connection.expire();
  assert.equal(await token(), "Bearer three");
  await rm(tokenFile);
  connection.expire();
  assert.equal(await token(), "Bearer three");
});

test("loadKubeConfig: the files of $KUBECONFIG are merged, the first wins, missing ones are skipped", async () => {
  await using folder = await Folder.create();
  const first = await folder.write(
    "first",
    JSON.stringify({ clusters: [{ name: "k", cluster: { server: "https://first:1" } }], "current-context": "c" }),
  );
  const second = await folder.write("second", config({ token: "t" }));
  const env = { KUBECONFIG: [join(folder.path, "absent"), first, second].join(":") };
  const connection = await loadKubeConfig({ env, clock: systemClock });
  assert.equal(connection.server.host, "first:1");
  assert.equal((await connection.credentials()).headers["authorization"], "Bearer t");
  await fails(
    loadKubeConfig({ env: { KUBECONFIG: "/absent/a:/absent/b" }, clock: systemClock }),
    "not-found",
    /\/absent\/a, \/absent\/b/,
  );
});

test("loadKubeConfig: ~/.kube/config comes last, and nothing at all is one clear line", async () => {
  await using folder = await Folder.create();
  await fails(
    loadKubeConfig({ env: { HOME: folder.path }, clock: systemClock }),
    "not-found",
    /--kubeconfig or \$KUBECONFIG/,
  );
  await mkdir(join(folder.path, ".kube"));
  await folder.write(".kube/config", config({ token: "home" }));
  const connection = await loadKubeConfig({ env: { HOME: folder.path }, clock: systemClock });
  assert.equal((await connection.credentials()).headers["authorization"], "Bearer home");
});

test("loadKubeConfig: in a pod the service account is used", async () => {
  await using folder = await Folder.create();
  const env = { KUBERNETES_SERVICE_HOST: "fd00::1", KUBERNETES_SERVICE_PORT: "443", HOME: folder.path };
  await fails(
    loadKubeConfig({ inCluster: true, env: {}, clock: systemClock }),
    "not-found",
    /does not run in a cluster/,
  );
  await fails(
    loadKubeConfig({ env, serviceAccountDir: folder.path, clock: systemClock }),
    "unreadable",
    /token|ca\.crt/,
  );
  await folder.write("token", "sa");
  await folder.write("ca.crt", PEM);
  await folder.write("namespace", "kube-system\n");
  const connection = await loadKubeConfig({ env, serviceAccountDir: folder.path, clock: systemClock });
  assert.equal(connection.server.host, "[fd00::1]");
  assert.equal(connection.namespace, "kube-system");
  assert.deepEqual((await connection.credentials()).headers, { authorization: "Bearer sa" });
});

test("loadKubeConfig: each fault is one line with the file, the field and the fix", async () => {
  await using folder = await Folder.create();
  const cases: [string, KubeConfigErrorCode, RegExp][] = [
    ["", "invalid", /current-context is not set/],
    ["a: [", "invalid", /is not YAML: line 1: [^\n]+$/],
    ["- a", "invalid", /must be a mapping/],
    ["kind: Pod", "invalid", /kind is "Pod"/],
    ["clusters: 1", "invalid", /clusters must be a list/],
    ["users: [{user: {}}]", "invalid", /users\[0\]\.name is missing/],
    ["{}", "invalid", /current-context is not set/],
    ["current-context: x", "invalid", /names "x", but contexts has only: none/],
    [config({ token: 5 }), "invalid", /users\[0\]\.user\.token must be a text/],
    [config({}, { server: "10.0.0.1" }), "invalid", /clusters\[0\]\.cluster\.server "10.0.0.1" is not a URL/],
    [config({}, { server: "" }), "invalid", /server is missing/],
    [
      config({}, { "proxy-url": "socks5://p" }),
      "invalid",
      /clusters\[0\]\.cluster\.proxy-url names a proxy of socks5: http and https/,
    ],
    [config({}, { "certificate-authority-data": "!!" }), "invalid", /not base64 of a PEM/],
    [
      config({}, { "certificate-authority-data": base64(PEM), "insecure-skip-tls-verify": true }),
      "invalid",
      /remove one/,
    ],
    [config({ "client-certificate-data": base64(PEM) }), "invalid", /client-key is missing/],
    [config({ "auth-provider": { name: "gcp" } }), "unsupported", /use an exec plugin/],
    [config({ username: "a", password: "b", token: "t" }), "invalid", /username and a token are set; remove one/],
    [config({ "as-groups": ["g"] }), "invalid", /as-groups needs "as"/],
    [config({ as: "a", "as-user-extra": { k: "v" } }), "invalid", /as-user-extra\.k must be a list/],
    [config({}, {}, { user: "nobody" }), "invalid", /names "nobody", but users has only: u/],
    [config({ exec: { command: "x", apiVersion: "v0" } }), "invalid", /exec\.apiVersion is "v0"/],
    [config({ exec: { apiVersion: "client.authentication.k8s.io/v1" } }), "invalid", /exec\.command is missing/],
  ];
  for (const [text, code, pattern] of cases) {
    const path = await folder.write("config", text);
    await fails(loadKubeConfig({ path, clock: systemClock }), code, pattern);
  }
  await fails(
    loadKubeConfig({ path: join(folder.path, "absent"), clock: systemClock }),
    "unreadable",
    /absent: ENOENT/,
  );
  const path = await folder.write("config", config({}));
  await fails(
    loadKubeConfig({ path, context: "other", clock: systemClock }),
    "invalid",
    /chosen context names "other", but contexts has only: c/,
  );
});

/** Shapes that client-go 1.36 accepts, each with its result. */
const SHAPES: readonly {
  readonly what: string;
  readonly text: string;
  readonly headers?: object;
  readonly skips?: boolean;
}[] = [
  {
    what: "fields that are there and empty",
    text: config(
      {
        username: "",
        password: "",
        token: "",
        tokenFile: "",
        "as-groups": [],
        "as-user-extra": {},
        "auth-provider": null,
      },
      { "proxy-url": "", "certificate-authority": "", "tls-server-name": "", "insecure-skip-tls-verify": false },
    ),
    headers: {},
  },
  {
    what: "a user and a password",
    text: config({ username: "a", password: "b:c" }),
    headers: { authorization: "Basic YTpiOmM=" },
  },
  {
    what: "a token beside a tokenFile that is absent",
    text: config({ token: "t", tokenFile: "gone" }),
    headers: { authorization: "Bearer t" },
  },
  {
    what: "impersonation of groups and attributes",
    text: config({
      as: "a",
      "as-uid": "1",
      "as-groups": ["g", "h"],
      "as-user-extra": { "example.org/Scope": ["x", "y"] },
    }),
    headers: {
      "impersonate-user": "a",
      "impersonate-uid": "1",
      "impersonate-group": ["g", "h"],
      "impersonate-extra-example.org%2fscope": ["x", "y"],
    },
  },
  ...["yes", "on", "True", "y"].map((word) => ({
    what: `YAML 1.1 by ${word}`,
    text: `current-context: c
contexts: [{name: c, context: {cluster: k}}]
clusters: [{name: k, cluster: {server: "https://10.0.0.1:6443", insecure-skip-tls-verify: ${word}}}]
`,
    skips: true,
  })),
  { what: "no context's user", text: config({}, {}, { user: "" }), headers: {} },
  {
    what: "keys of others",
    text: config({ "x-mine": 1 }, { "disable-compression": true, extensions: [{ name: "x", extension: 5 }] }),
  },
];

test("loadKubeConfig: what kubectl takes is taken, and means the same", async () => {
  await using folder = await Folder.create();
  for (const { what, text, headers, skips = false } of SHAPES) {
    const path = await folder.write("config", text);
    const connection = await loadKubeConfig({ path, clock: systemClock });
    assert.equal(connection.insecureSkipTlsVerify, skips, what);
    if (headers !== undefined) assert.deepEqual((await connection.credentials()).headers, headers, what);
  }
  const empty = await folder.write("empty", "");
  const env = { KUBECONFIG: `${empty}:${await folder.write("config", config({ token: "t" }))}` };
  const connection = await loadKubeConfig({ env, clock: systemClock });
  assert.equal((await connection.credentials()).headers.authorization, "Bearer t", "one of several files is empty");
});

test("exec plugin: with provideClusterInfo it has the cluster's extension, and the environment of whoever started us", async (t) => {
  await using folder = await Folder.create();
  const script = `#!/bin/sh
printf '%s' "$KUBERNETES_EXEC_INFO" > ${folder.path}/info
env > ${folder.path}/env
echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"t"}}'
`;
  await chmod(await folder.write("plugin", script), 0o755);
  const exec = { apiVersion: "client.authentication.k8s.io/v1", command: "./plugin", provideClusterInfo: true };
  const extension = { shootRef: { namespace: "garden-x", name: "y" }, gardenClusterIdentity: "z" };
  const extensions = [
    { name: "other", extension: 1 },
    { name: "client.authentication.k8s.io/exec", extension },
  ];
  const path = await folder.write("config", config({ exec }, { extensions }));
  const launched = { ISTHMUS_CALLED_AS: "coild", ISTHMUS_KEPT_NODE_OPTIONS: "--max-http-header-size=1" };
  Object.assign(process.env, launched);
  t.after(() => {
    for (const name of Object.keys(launched)) delete process.env[name];
  });
  await (await loadKubeConfig({ path, clock: systemClock })).credentials();
  const { spec } = JSON.parse(await readFile(join(folder.path, "info"), "utf8"));
  assert.deepEqual(spec.cluster, { server: "https://10.0.0.1:6443/", config: extension });
  const env = (await readFile(join(folder.path, "env"), "utf8")).split("\n");
  assert.ok(env.includes("NODE_OPTIONS=--max-http-header-size=1"));
  assert.ok(!env.some((line) => /^ISTHMUS_(CALLED_AS|KEPT_)/.test(line)));
});

test("exec plugin: its token is cached until it expires, and it learns of the cluster", async () => {
  await using folder = await Folder.create();
  const clock = new FakeClock();
  const script = `#!/bin/sh
echo x >> ${folder.path}/runs
N=$(wc -l < ${folder.path}/runs | tr -d ' ')
printf '%s' "$KUBERNETES_EXEC_INFO" > ${folder.path}/info
echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"'$PREFIX$1$N'","expirationTimestamp":"2026-01-01T01:00:00Z"}}'
`;
  await chmod(await folder.write("plugin", script), 0o755);
  const exec = {
    apiVersion: "client.authentication.k8s.io/v1",
    command: "./plugin",
    args: ["tok"],
    env: [{ name: "PREFIX", value: "my" }],
    provideClusterInfo: true,
  };
  const path = await folder.write("config", config({ exec }));
  const connection = await loadKubeConfig({ path, clock });
  const token = async (): Promise<string | undefined> => (await connection.credentials()).headers["authorization"];
  assert.deepEqual(await Promise.all([token(), token()]), ["Bearer mytok1", "Bearer mytok1"]);
  assert.equal(await token(), "Bearer mytok1");
  clock.jumpWall(3_595_000);
  assert.equal(await token(), "Bearer mytok2");
  assert.deepEqual(JSON.parse(await readFile(join(folder.path, "info"), "utf8")).spec, {
    interactive: false,
    cluster: { server: "https://10.0.0.1:6443/" },
  });
});

test("exec plugin: a call that is aborted does not wait for a program that hangs", async () => {
  await using folder = await Folder.create();
  const exec = {
    apiVersion: "client.authentication.k8s.io/v1",
    command: "sh",
    args: ["-c", `echo $$ > ${folder.path}/pid; exec sleep 60`],
  };
  const path = await folder.write("config", config({ exec }));
  const connection = await loadKubeConfig({ path, clock: systemClock });
  const stop = new AbortController();
  const reason = new Error("enough");
  const waiting = connection.credentials({ signal: stop.signal });
  const patient = connection.credentials();
  let pid = "";
  while (!pid.endsWith("\n")) pid = await readFile(join(folder.path, "pid"), "utf8").catch(() => "");
  stop.abort(reason);
  await assert.rejects(waiting, reason);
  process.kill(Number(pid));
  await fails(patient, "exec-failed", /user\.exec\.command sh failed/);
});

test("exec plugin: a failing or missing program says so with its words and the hint", async () => {
  await using folder = await Folder.create();
  const apiVersion = "client.authentication.k8s.io/v1beta1";
  const args = ["-c", "echo no luck >&2; exit 3"];
  const failing = await folder.write(
    "config",
    config({ exec: { apiVersion, command: "sh", args, installHint: "buy it" } }),
  );
  await fails(
    (await loadKubeConfig({ path: failing, clock: systemClock })).credentials(),
    "exec-failed",
    /user\.exec\.command sh failed: .*no luck: buy it/,
  );
  const missing = await folder.write("config", config({ exec: { apiVersion, command: "./absent" } }));
  await fails(
    (await loadKubeConfig({ path: missing, clock: systemClock })).credentials(),
    "exec-failed",
    /absent failed: .*ENOENT/,
  );
});

const looseJson = fc.oneof(fc.json(), fc.string(), fc.constantFrom("{", "a: &a [*a]", "a: !!binary x", "? ", "%YAML"));
const looseConfig = fc.record(
  {
    kind: fc.constantFrom("Config", "x", 1),
    "current-context": fc.constantFrom("c", "", 1, null),
    clusters: fc.oneof(
      fc.jsonValue(),
      fc.array(
        fc.record({
          name: fc.constantFrom("c", 1),
          cluster: fc.oneof(fc.jsonValue(), fc.record({ server: fc.string() })),
        }),
      ),
    ),
    users: fc.oneof(fc.jsonValue(), fc.array(fc.record({ name: fc.constant("c"), user: fc.jsonValue() }))),
    contexts: fc.oneof(
      fc.jsonValue(),
      fc.array(fc.record({ name: fc.constant("c"), context: fc.constant({ cluster: "c", user: "c" }) })),
    ),
  },
  { requiredKeys: [] },
);

test("fuzz: only KubeConfigError escapes the kubeconfig parser", () => {
  const text = fc.oneof(
    looseJson,
    looseConfig.map((value) => JSON.stringify(value)),
  );
  fc.assert(
    fc.property(text, (yaml) => {
      try {
        connectionOf(parseKubeConfig("/x/config", yaml), { clock: systemClock });
      } catch (error) {
        assert.ok(error instanceof KubeConfigError, `${error}`);
      }
    }),
    { numRuns: 500 },
  );
});

test("fuzz: only KubeConfigError escapes the exec credential parser", () => {
  const status = fc.oneof(
    fc.jsonValue(),
    fc.dictionary(fc.constantFrom("token", "expirationTimestamp", "clientKeyData"), fc.jsonValue()),
  );
  const text = fc.oneof(
    looseJson,
    status.map((value) => JSON.stringify({ kind: "ExecCredential", apiVersion: "v", status: value })),
  );
  fc.assert(
    fc.property(text, (output) => {
      try {
        parseExecCredential("x", "v", output);
      } catch (error) {
        assert.ok(error instanceof KubeConfigError, `${error}`);
      }
    }),
    { numRuns: 500 },
  );
});

const eventType = fc.constantFrom("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "x", 1);
const metadata = fc.oneof(
  fc.jsonValue(),
  fc.record({ name: fc.constantFrom("a", 1), resourceVersion: fc.constantFrom("1", 1) }),
);
const line = fc.oneof(
  fc.string(),
  fc.json(),
  fc
    .record({ type: eventType, object: fc.oneof(fc.jsonValue(), fc.record({ metadata, kind: fc.constant("Status") })) })
    .map((value) => JSON.stringify(value)),
);

test("fuzz: only KubeError escapes the watch decoder", () => {
  fc.assert(
    fc.property(fc.array(line), fc.array(fc.nat(200)), (lines, cuts) => {
      const decoder = new WatchDecoder("watch x", { maxEventBytes: 500 });
      const bytes = Buffer.from(lines.join("\n"));
      try {
        let from = 0;
        for (const cut of [...cuts.toSorted((a, b) => a - b), bytes.length]) {
          for (const event of decoder.push(bytes.subarray(from, cut))) assert.ok(event.type.length > 4);
          from = Math.max(from, cut);
        }
        decoder.end();
      } catch (error) {
        assert.ok(error instanceof KubeError, `${error}`);
      }
    }),
    { numRuns: 500 },
  );
});

test("watch decoder: where the chunks are cut changes nothing", () => {
  const objects = fc.array(fc.record({ name: fc.string(), resourceVersion: fc.string(), note: fc.string() }));
  fc.assert(
    fc.property(objects, fc.array(fc.nat(2000)), (all, cuts) => {
      const text = all.map((one) => `${JSON.stringify({ type: "ADDED", object: { metadata: one } })}\n`).join("");
      const bytes = Buffer.from(text);
      const decoder = new WatchDecoder<unknown>("watch x");
      const got: unknown[] = [];
      let from = 0;
      for (const cut of [...cuts.toSorted((a, b) => a - b), bytes.length]) {
        for (const event of decoder.push(bytes.subarray(from, cut))) got.push(event);
        from = Math.max(from, cut);
      }
      decoder.end();
      assert.deepEqual(
        got,
        all.map((one) => ({ type: "ADDED", object: { metadata: { ...one } } })),
      );
    }),
  );
});

test("watch decoder: an event without end is cut off at the bound", () => {
  const decoder = new WatchDecoder("watch x", { maxEventBytes: 10 });
  assert.throws(() => [...decoder.push(Buffer.from("123456")), ...decoder.push(Buffer.from("789012"))], {
    code: "bad-response",
  });
});
