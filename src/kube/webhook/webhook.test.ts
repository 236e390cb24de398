import assert from "node:assert/strict";
import { channel } from "node:diagnostics_channel";
import { once } from "node:events";
import { mkdir, mkdtemp, rename, rm, symlink, unlink, writeFile } from "node:fs/promises";
import { Agent, request } from "node:https";
import { connect as connectTcp } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { connect } from "node:tls";
import fc from "fast-check";
import { Deferred, sleep } from "#base/async";
import { systemClock } from "#base/clock";
import { createLogger, nullLogger } from "#base/log";
import { createAuthority, issueCertificate, issueServerCertificate } from "#base/x509";
import { KubeClient, staticConnection } from "#kube/client";
import { CertificateFiles } from "./certificates.ts";
import {
  type AdmissionHandler,
  denyInvalid,
  formatAdmissionReview,
  type KeyPair,
  parseAdmissionReview,
  WebhookError,
  WebhookServer,
} from "./index.ts";
import { MAX_REVIEW_BYTES, MAX_REVIEWS, MAX_WEBHOOK_CONNECTIONS } from "./server.ts";

/** The idle time of a kept connection: with `ISTHMUS_SOAK=full` longer than the server's limits for heads and whole requests. */
const IDLE_MS = process.env["ISTHMUS_SOAK"] === "full" ? 35_000 : 0;

/** A certificate with the given common name, which is its own authority for clients. */
function selfSigned(
  commonName: string,
  { notAfter = Date.now() + 86_400_000 } = {},
): KeyPair & { readonly ca: string } {
  const names = { organization: "coil", notBefore: Date.now() - 2 * 86_400_000, notAfter };
  const authority = createAuthority({ commonName: "webhook-ca", ...names });
  return { ...issueServerCertificate(authority, { hosts: [commonName], ...names }), ca: authority.cert };
}

class Rig implements AsyncDisposable {
  readonly dir: string;
  readonly server: WebhookServer;

  private constructor(dir: string, server: WebhookServer) {
    this.dir = dir;
    this.server = server;
  }

  static async start(handlers: Readonly<Record<string, AdmissionHandler>> = {}, pair?: KeyPair): Promise<Rig> {
    const dir = await mkdtemp(join(tmpdir(), "isthmus-webhook-"));
    const rig = new Rig(
      dir,
      await WebhookServer.listen({
        host: "127.0.0.1",
        port: 0,
        certDir: dir,
        handlers,
        log: nullLogger,
        clock: systemClock,
      }),
    );
    if (pair !== undefined) await rig.install(pair);
    return rig;
  }

  async install(pair: KeyPair): Promise<void> {
    await writeFile(join(this.dir, "tls.key"), pair.key);
    await writeFile(join(this.dir, "tls.crt"), pair.cert);
  }

  /** The common name that the server shows in a handshake. */
  async served(servername = ""): Promise<string> {
    return new Promise((resolve, reject) => {
      const socket = connect(
        { host: "127.0.0.1", port: this.server.port, rejectUnauthorized: false, servername },
        () => {
          resolve(String(socket.getPeerCertificate().subject.CN));
          socket.destroy();
        },
      );
      socket.on("error", reject);
    });
  }

  async post(path: string, body: string, method = "POST"): Promise<{ status: number; body: string }> {
    return new Promise((resolve, reject) => {
      const call = request(
        { host: "127.0.0.1", port: this.server.port, path, method, rejectUnauthorized: false, agent: false },
        (response) => {
          let text = "";
          response.setEncoding("utf8");
          response.on("data", (chunk: string) => {
            text += chunk;
          });
          response.on("end", () => resolve({ status: response.statusCode ?? 0, body: text }));
        },
      );
      call.on("error", reject);
      call.end(body);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.server[Symbol.asyncDispose]();
    await rm(this.dir, { recursive: true });
  }
}

const review = (version: string, extra: object = {}): string =>
  JSON.stringify({
    apiVersion: `admission.k8s.io/${version}`,
    kind: "AdmissionReview",
    request: {
      uid: "u1",
      operation: "CREATE",
      kind: { group: "coil.cybozu.com", version: "v2", kind: "AddressPool" },
      name: "default",
      object: { metadata: { name: "default" } },
      userInfo: { username: "admin", groups: ["system:masters"] },
      ...extra,
    },
  });

test("webhook: mutations are answered as base64 JSON patches in the requested version", async () => {
  const handler: AdmissionHandler = (request) => ({
    allowed: true,
    patch: [{ op: "add", path: "/metadata/finalizers", value: [request.userInfo.username] }],
    warnings: ["mind"],
  });
  await using rig = await Rig.start({ "/mutate": handler }, selfSigned("one"));
  for (const version of ["v1", "v1beta1"]) {
    const { status, body } = await rig.post("/mutate?timeout=10s", review(version));
    assert.equal(status, 200);
    const answer = JSON.parse(body);
    assert.equal(answer.apiVersion, `admission.k8s.io/${version}`);
    assert.deepEqual(JSON.parse(Buffer.from(answer.response.patch, "base64").toString()), [
      { op: "add", path: "/metadata/finalizers", value: ["admin"] },
    ]);
    assert.deepEqual(
      [answer.response.uid, answer.response.patchType, answer.response.warnings],
      ["u1", "JSONPatch", ["mind"]],
    );
  }
});

test("webhook: a kept connection stays open for longer than API servers keep it, and serves another review", async () => {
  await using rig = await Rig.start({ "/validate": () => ({ allowed: true }) }, selfSigned("one"));
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const sockets = new Set<unknown>();
  const post = (): Promise<string> =>
    new Promise((resolve, reject) => {
      const at = { host: "127.0.0.1", port: rig.server.port, path: "/validate", method: "POST" };
      const call = request({ ...at, rejectUnauthorized: false, agent }, (response) => {
        const { "keep-alive": kept } = response.headers;
        response.resume().on("end", () => resolve(`${response.statusCode} ${kept}`));
      });
      call.on("socket", (socket) => sockets.add(socket)).on("error", reject);
      call.end(review("v1"));
    });
  try {
    assert.equal(await post(), "200 timeout=120");
    await sleep(IDLE_MS);
    assert.equal(await post(), "200 timeout=120");
    assert.equal(sockets.size, 1);
  } finally {
    agent.destroy();
  }
});

test("webhook: a denial names every fault in one line and as causes", () => {
  const parsed = parseAdmissionReview(review("v1"));
  const causes = [
    { reason: "FieldValueForbidden", field: "spec.blockSizeBits", message: "Forbidden: unchangeable" },
    { reason: "FieldValueRequired", field: "spec.subnets", message: "Required value" },
  ];
  const { response } = JSON.parse(formatAdmissionReview(parsed, denyInvalid(parsed.request, causes)));
  assert.equal(response.allowed, false);
  assert.equal(
    response.status.message,
    'AddressPool.coil.cybozu.com "default" is invalid: [spec.blockSizeBits: Forbidden: unchangeable, spec.subnets: Required value]',
  );
  assert.deepEqual([response.status.code, response.status.reason], [422, "Invalid"]);
  assert.deepEqual(response.status.details, { name: "default", group: "coil.cybozu.com", kind: "AddressPool", causes });
});

test("webhook: a malformed or too long review, an unknown path, and a failing handler are HTTP errors", async () => {
  const failing = (): never => {
    throw new TypeError("bug");
  };
  await using rig = await Rig.start({ "/v": () => ({ allowed: true }), "/bug": failing }, selfSigned("one"));
  assert.equal((await rig.post("/v", "{}")).status, 400);
  assert.equal((await rig.post("/other", review("v1"))).status, 404);
  assert.equal((await rig.post("/__proto__", review("v1"))).status, 404);
  assert.equal((await rig.post("/v", "", "GET")).status, 405);
  assert.deepEqual(await rig.post("/bug", review("v1")), { status: 500, body: "the webhook failed: bug\n" });
  const { status } = await rig.post("/v", "x".repeat(MAX_REVIEW_BYTES + 1)).catch((error: unknown) => {
    // The server may close before all was sent; both tell the sender that this was too much.
    assert.match(String(error), /EPIPE|ECONNRESET/);
    return { status: 413 };
  });
  assert.equal(status, 413);
  assert.equal((await rig.post("/v", review("v1"))).status, 200);
});

test("webhook: without a certificate the server runs and its health names the missing part", async () => {
  await using rig = await Rig.start();
  await assert.rejects(rig.server.checkHealth(), { code: "handshake-failed", message: /tls\.crt and tls\.key in/ });
  await rig.install(selfSigned("late"));
  await rig.server.checkHealth();
  assert.equal(await rig.served(), "late");
});

test("webhook: a pair that comes during the handshake of a health check is not blamed for it", async () => {
  await using rig = await Rig.start();
  // Published after the server has chosen what this connection is offered.
  const accepted = channel("net.server.socket");
  let checks = 0;
  const onAccepted = (): void => {
    checks += 1;
    if (checks === 1) rig.server.use(selfSigned("late"));
  };
  accepted.subscribe(onAccepted);
  try {
    await rig.server.checkHealth();
  } finally {
    accepted.unsubscribe(onAccepted);
  }
  assert.equal(checks, 2);
});

test("webhook: a new pair is served at the next handshake, with and without a server name", async () => {
  await using rig = await Rig.start({}, selfSigned("one"));
  assert.equal(await rig.served(), "one");
  await rig.install(selfSigned("two"));
  assert.equal(await rig.served(), "two");
  await rig.install(selfSigned("three"));
  assert.equal(await rig.served("coilv2-ipam-webhook-service.kube-system.svc"), "three");
});

test("webhook: clients that trust its certificate under its name are served, others refuse it", async () => {
  const pair = selfSigned("hooks");
  await using rig = await Rig.start({ "/v": () => ({ allowed: true }) }, pair);
  const server = `https://127.0.0.1:${rig.server.port}`;
  const call = async (ca: string, tlsServerName: string): Promise<unknown> => {
    await using client = new KubeClient(staticConnection({ server, ca, tlsServerName }), { clock: systemClock });
    return await client.request({ method: "POST", path: "/v", body: JSON.parse(review("v1")) });
  };
  assert.deepEqual(await call(pair.ca, "hooks"), {
    apiVersion: "admission.k8s.io/v1",
    kind: "AdmissionReview",
    response: { uid: "u1", allowed: true },
  });
  await assert.rejects(call(pair.ca, "others"), { code: "unreachable", message: /hooks/ });
  await assert.rejects(call(selfSigned("hooks").ca, "hooks"), { code: "unreachable" });
});

test("webhook: a broken pair, another's key, or no files leave the old pair in use", async () => {
  const one = selfSigned("one");
  await using rig = await Rig.start({}, one);
  assert.equal(await rig.served(), "one");
  await rig.install({ cert: "garbage", key: one.key });
  assert.equal(await rig.served(), "one");
  await rig.install({ cert: selfSigned("two").cert, key: one.key });
  assert.equal(await rig.served(), "one");
  await unlink(join(rig.dir, "tls.crt"));
  assert.equal(await rig.served(), "one");
  await rig.server.checkHealth();
  await rig.install(selfSigned("three"));
  assert.equal(await rig.served(), "three");
});

test("webhook: files that cannot even be looked at end nothing, and are told once", async () => {
  const told: string[] = [];
  const dir = await mkdtemp(join(tmpdir(), "isthmus-webhook-"));
  const files = new CertificateFiles(dir, (event) => told.push(event.loaded ? "loaded" : event.why));
  const one = selfSigned("one");
  await writeFile(join(dir, "tls.key"), one.key);
  await writeFile(join(dir, "tls.crt"), one.cert);
  assert.equal(files.current()?.cert, one.cert);
  await unlink(join(dir, "tls.crt"));
  await symlink("tls.crt", join(dir, "tls.crt"));
  for (let look = 0; look < 3; look += 1) assert.equal(files.current()?.cert, one.cert);
  assert.equal(told.length, 2);
  assert.match(told[1] ?? "", /tls\.crt.*ELOOP/);
  await rm(dir, { recursive: true });
});

test("webhook: a secret volume's swap of symlinks is seen", async () => {
  await using rig = await Rig.start();
  for (const name of ["one", "two"]) {
    const pair = selfSigned(name);
    await mkdir(join(rig.dir, name));
    await writeFile(join(rig.dir, name, "tls.crt"), pair.cert);
    await writeFile(join(rig.dir, name, "tls.key"), pair.key);
    await symlink(name, join(rig.dir, "next"));
    await rename(join(rig.dir, "next"), join(rig.dir, "..data"));
    if (name === "one") {
      await symlink("..data/tls.crt", join(rig.dir, "tls.crt"));
      await symlink("..data/tls.key", join(rig.dir, "tls.key"));
    }
    assert.equal(await rig.served(), name);
  }
});

test("webhook: a port in use is an error that names it", async () => {
  await using rig = await Rig.start();
  const { port } = rig.server;
  const again = WebhookServer.listen({
    host: "127.0.0.1",
    port,
    certDir: rig.dir,
    handlers: {},
    log: nullLogger,
    clock: systemClock,
  });
  await assert.rejects(again, { code: "listen-failed", message: new RegExp(`127.0.0.1:${port}.*EADDRINUSE`) });
});

test("fuzz: only WebhookError escapes the AdmissionReview parser, and what it takes can be answered", () => {
  const field = fc.constantFrom("uid", "operation", "kind", "object", "oldObject", "name", "userInfo", "dryRun");
  const request = fc.oneof(
    fc.jsonValue(),
    fc.dictionary(field, fc.jsonValue()),
    fc.dictionary(field, fc.jsonValue()).map((some) => ({ uid: "u", operation: "CREATE", kind: {}, ...some })),
  );
  const body = fc.oneof(
    fc.string(),
    fc.json(),
    request.map((value) =>
      JSON.stringify({ apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", request: value }),
    ),
  );
  fc.assert(
    fc.property(body, (text) => {
      try {
        const parsed = parseAdmissionReview(text);
        const answer = JSON.parse(formatAdmissionReview(parsed, denyInvalid(parsed.request, [])));
        assert.equal(answer.response.uid, parsed.request.uid);
      } catch (error) {
        assert.ok(error instanceof WebhookError, `${error}`);
      }
    }),
    { numRuns: 500 },
  );
});

test("webhook: the bytes of reviews that never end are bounded, and short ones are served meanwhile", async () => {
  await using rig = await Rig.start({ "/v": () => ({ allowed: true }) }, selfSigned("one"));
  const half = Array.from({ length: 12 }, () => {
    const head = `POST /v HTTP/1.1\r\nhost: x\r\ncontent-length: ${MAX_REVIEW_BYTES}\r\n\r\n`;
    const socket = connect({ host: "127.0.0.1", port: rig.server.port, rejectUnauthorized: false }, () => {
      socket.write(head);
      socket.write("x".repeat(MAX_REVIEW_BYTES - 1));
    });
    return new Promise<string>((resolve) => {
      let text = "";
      socket.setEncoding("utf8");
      socket.on("data", (chunk: string) => {
        text += chunk;
        resolve(text);
      });
      // The server may cut the connection before the client has read the answer.
      socket.on("error", () => resolve("cut"));
      socket.on("close", () => resolve(text === "" ? "cut" : text));
    });
  });
  // 64 MiB are 8 reviews of 8 MiB: of twelve at once at least three are refused.
  const first = await Promise.race(half);
  assert.match(first, /503|cut/);
  // The other eight now hold all that long ones may.
  for (let round = 0; round < 20; round += 1) {
    assert.equal((await rig.post("/v", review("v1"))).status, 200);
    await sleep(25);
  }
});

/** Handlers of `/v` that wait for `gate`, and of `/now` that do not; `running` counts those that wait. */
function gated() {
  const gate = new Deferred();
  const seen = { running: 0, most: 0 };
  const wait: AdmissionHandler = async ({ name }) => {
    seen.running += 1;
    seen.most = Math.max(seen.most, seen.running);
    await gate.promise;
    seen.running -= 1;
    if (name === "broken") throw new TypeError("a bug");
    return { allowed: true };
  };
  return { gate, seen, handlers: { "/v": wait, "/now": () => ({ allowed: true }) as const } };
}

async function until(holds: () => boolean): Promise<void> {
  for (let at = 0; at < 2000 && !holds(); at += 1) await sleep(5);
  assert.ok(holds());
}

test("webhook: long reviews count until they are answered; short ones are served meanwhile", async () => {
  const { gate, seen, handlers } = gated();
  await using rig = await Rig.start(handlers, selfSigned("one"));
  const long = (name: string): string => {
    const base = review("v1", { name, pad: "" });
    return review("v1", { name, pad: "x".repeat(MAX_REVIEW_BYTES - base.length) });
  };
  const status = (path: string, body: string): Promise<number | "cut"> =>
    rig.post(path, body).then(
      (answer) => answer.status,
      // The server may cut the connection before the client has sent all.
      () => "cut",
    );
  const held = Array.from({ length: 8 }, (_, at) => status("/v", long(at === 0 ? "broken" : "sound")));
  await until(() => seen.running === 8);
  for (const path of ["/v", "/now"]) assert.match(String(await status(path, long("sound"))), /503|cut/);
  assert.equal(await status("/now", review("v1")), 200);
  assert.equal(seen.running, 8);
  gate.resolve();
  assert.deepEqual(await Promise.all(held), [500, ...Array.from({ length: 7 }, () => 200)]);
  assert.equal(await status("/now", long("sound")), 200);
});

test("webhook: reviews of one connection are handled one at a time, and it ends if the next one does not wait for the answer", async () => {
  const { gate, seen, handlers } = gated();
  await using rig = await Rig.start(handlers, selfSigned("one"));
  const body = review("v1");
  const one = `POST /v HTTP/1.1\r\nhost: x\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
  const socket = connect({ host: "127.0.0.1", port: rig.server.port, rejectUnauthorized: false });
  const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
  socket.resume().on("error", () => undefined);
  socket.write(one.repeat(MAX_REVIEWS + 50));
  await closed;
  await until(() => seen.running === 1);
  assert.equal((await rig.post("/now", body)).status, 200);
  gate.resolve();
  assert.equal(seen.most, 1);
});

/** Connections without a review: as many as the server takes, half of them after a TLS handshake. */
async function silentClients(port: number): Promise<Disposable> {
  const at = { host: "127.0.0.1", port };
  const clients = await Promise.all(
    Array.from({ length: MAX_WEBHOOK_CONNECTIONS }, async (_, each) => {
      const isTls = each % 2 === 1;
      const client = isTls ? connect({ ...at, rejectUnauthorized: false }) : connectTcp(at);
      client.on("error", () => client.destroy());
      await once(client, isTls ? "secureConnect" : "connect");
      return client;
    }),
  );
  return {
    [Symbol.dispose]: () => {
      for (const client of clients) client.destroy();
    },
  };
}

test("webhook: clients that send no review keep nobody out, and end no connection that has one", async () => {
  const { gate, seen, handlers } = gated();
  await using rig = await Rig.start(handlers, selfSigned("one"));
  const held = rig.post("/v", review("v1"));
  await until(() => seen.running === 1);
  using _silent = await silentClients(rig.server.port);
  await rig.server.checkHealth({ timeoutMs: 2000 });
  for (let round = 0; round < 5; round += 1) assert.equal((await rig.post("/now", review("v1"))).status, 200);
  gate.resolve();
  assert.equal((await held).status, 200);
});

test("webhook: a review that is under way when the server ends is answered", async () => {
  const { gate, seen, handlers } = gated();
  const rig = await Rig.start(handlers, selfSigned("one"));
  const held = rig.post("/v", review("v1"));
  await until(() => seen.running === 1);
  const ended = rig[Symbol.asyncDispose]();
  await sleep(20);
  gate.resolve();
  assert.equal((await held).status, 200);
  await ended;
});

test("webhook: an expired certificate is served, and told by the health check", async () => {
  await using rig = await Rig.start({}, selfSigned("old", { notAfter: Date.now() - 3_600_000 }));
  await assert.rejects(rig.server.checkHealth(), { code: "expired", message: /expired at .*renew tls\.crt/ });
  rig.server.use(selfSigned("given"));
  await rig.server.checkHealth();
  assert.equal(await rig.served(), "given");
  await rig.install(selfSigned("file"));
  assert.equal(await rig.served(), "given", "a given pair is not replaced by files");
  assert.equal(rig.server.use({ cert: "x", key: "y" }), false);
  assert.equal(await rig.served(), "given");
});

test("callers: with an authority only its clients are served, by name and at the server's own host; nobody while it cannot be read", async () => {
  const dates = { notBefore: Date.now() - 1000, notAfter: Date.now() + 86_400_000 };
  const authorityOf = (commonName: string) => createAuthority({ commonName, ...dates });
  const client = (authority: ReturnType<typeof authorityOf>, commonName: string) => {
    const { cert, key } = issueCertificate(authority, { commonName, usages: ["clientAuth"], hosts: [], ...dates });
    return { cert, key };
  };
  const [good, other] = [authorityOf("front"), authorityOf("stranger")];
  const seen: boolean[] = [];
  const handler: AdmissionHandler = (_request, { isProven }) => {
    seen.push(isProven);
    return { allowed: true };
  };
  const dir = await mkdtemp(join(tmpdir(), "isthmus-callers-"));
  const caFile = join(dir, "ca.crt");
  const lines: string[] = [];
  const log = createLogger({ name: "t", write: (line) => lines.push(line) });
  await using server = await WebhookServer.listen({
    ...{ host: "127.0.0.1", port: 0, certDir: dir, handlers: { "/validate": handler }, clock: systemClock, log },
    callers: { caFile, names: ["kube-apiserver"] },
  });
  const pair = selfSigned("hook.kube-system.svc");
  await writeFile(join(dir, "tls.key"), pair.key);
  await writeFile(join(dir, "tls.crt"), pair.cert);
  const ask = (as: { readonly cert?: string; readonly key?: string }, host = "hook.kube-system.svc:443") =>
    new Promise<string>((resolve, reject) => {
      const options = { host: "127.0.0.1", port: server.port, path: "/validate", method: "POST", agent: false };
      const call = request({ ...options, ...as, headers: { host }, rejectUnauthorized: false }, (response) => {
        let text = "";
        response.setEncoding("utf8");
        response.on("data", (chunk: string) => {
          text += chunk;
        });
        response.on("end", () => resolve(`${response.statusCode} ${text}`));
      });
      call.on("error", reject);
      call.end(review("v1"));
    });
  const apiServer = client(good, "kube-apiserver");
  assert.match(await ask(apiServer), /^403 this webhook believes API servers alone/, "there is no file yet");
  await writeFile(caFile, good.cert);
  assert.match(await ask(apiServer), /^200 /);
  assert.match(await ask({}), /^403 this webhook believes API servers alone/);
  assert.match(await ask(client(other, "kube-apiserver")), /^403 this webhook believes API servers alone/);
  assert.match(await ask(client(good, "system:node:n1")), /^403 .*common name/);
  for (const host of ["attacker.example", "127.0.0.1:443", "[::1]", "a b", "@", "", "x".repeat(5000)])
    assert.match(await ask(apiServer, host), /^421 /, host);
  await writeFile(caFile, "rubbish, of another length");
  assert.match(await ask(apiServer), /^200 /, "the last authority stays");
  await writeFile(caFile, other.cert);
  assert.match(await ask(apiServer), /^403 /);
  assert.match(await ask(client(other, "kube-apiserver")), /^200 /);
  await server.checkHealth();
  assert.deepEqual(seen, [true, true, true]);
  const refused = lines.filter((line) => line.includes("a review was refused"));
  assert.ok(refused.length >= 1, "the log says so");
  assert.ok(lines.some((line) => line.includes("authority of the webhook's callers cannot be used")));
  await rm(dir, { recursive: true });
});
