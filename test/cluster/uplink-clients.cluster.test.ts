import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer as createHttpServer } from "node:http";
import { createServer } from "node:https";
import { join } from "node:path";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import { listenTcp } from "#kernel/socket";
import { connectInside } from "#lab/inside";
import { ISTHMUS, start, until } from "#test/lab";
import { openUplinkBed, PROXY, PROXY_URL, SERVER4, SERVER6, type UplinkBed, WEB, WEB4, WEB6 } from "#test/uplink-bed";
import { HOSTS, Image, pull, registryHandler } from "#test/uplink-registry";

const TIMEOUT = { timeout: 60_000 };
const QUICK = { tunnel: { firstByteTimeoutMs: 1000 } };
const PORT = 8443;

/** Each client of the machine, as people call it; all print the body alone. */
const CLIENTS: Readonly<Record<string, (one: UplinkBed, url: string) => Promise<string>>> = {
  curl: async (one, url) => (await one.fetch(url))[0],
  wget: async (one, url) => {
    const use = ["-e", "use_proxy=yes", "-e", `https_proxy=${PROXY_URL}`];
    const { stdout, stderr } = await one.run(
      "wget",
      "-nv",
      "-O-",
      "-T30",
      "-t1",
      `--ca-certificate=${one.ca}`,
      ...use,
      url,
    );
    return stdout === "" ? stderr : stdout.trimEnd();
  },
  "openssl s_client": async (one, url) => {
    const { host, port, hostname } = new URL(url);
    const to = ["-proxy", "127.0.0.1:5443", "-connect", port === "" ? `${host}:443` : host];
    const name = /^[[0-9]/.test(hostname) ? [] : ["-servername", hostname, "-verify_hostname", hostname];
    const trust = ["-CAfile", one.ca, "-verify_return_error", ...name];
    const [file, args] = one.bed.inside("openssl", "s_client", "-quiet", "-ign_eof", ...to, ...trust);
    const input = Buffer.from("GET / HTTP/1.0\r\n\r\n");
    const { stdout, stderr } = await start([file, ...args], { input, timeoutMs: 30_000 }).ended;
    return stdout.includes("\r\n\r\n") ? (stdout.split("\r\n\r\n")[1] ?? "").trimEnd() : stderr;
  },
};

/** wget 1.21 and openssl 3.0 write an IPv6 address without brackets after CONNECT, which is 400: for them by name alone. */
const SIX: Readonly<Record<string, string>> = { curl: WEB6 };

for (const [name, client] of Object.entries(CLIENTS)) {
  const web6 = SIX[name] ?? "https://v6.example/";
  test(
    `uplink-proxy: ${name} by IPv4, IPv6 and name: over the cheap uplink, and over the other one where that swallows`,
    TIMEOUT,
    async (t) => {
      const one = await openUplinkBed(t, QUICK);
      assert.equal(await client(one, WEB4), "wan0 192.0.2.10");
      assert.equal(await client(one, web6), "wan0 2001:db8:1::10");
      assert.match(await client(one, WEB), /^wan0 /);
      one.bed.wan0.break("swallow");
      const [by4, by6, byName] = await Promise.all([WEB4, web6, WEB].map((url) => client(one, url)));
      assert.deepEqual([by4, by6], ["wan1 198.51.100.10", "wan1 2001:db8:2::10"]);
      assert.match(byName ?? "", /^wan1 /);
    },
  );
}

/** The registry in both WANs, and a client in the node. */
function registry(one: UplinkBed, image: Image) {
  const seen: string[] = [];
  for (const wan of [one.bed.wan0, one.bed.wan1]) {
    const handler = registryHandler(image, PORT, (line) => seen.push(`${wan.name} ${line}`));
    wan.dns.zone = Object.fromEntries(Object.values(HOSTS).map((host) => [host, [`${SERVER4}`, `${SERVER6}`]]));
    for (const address of [SERVER4, SERVER6]) wan.listen(createServer(one.tls, handler), PORT, address);
  }
  const connectProxy = () => connectInside({ name: one.bed.nodeName }, PROXY, { timeoutMs: 5000 });
  return { seen, place: { connectProxy, ca: readFileSync(one.ca, "utf8"), port: PORT } };
}

test(
  "uplink-proxy: a pull as of containerd, when the cheap uplink becomes a blackhole before the blobs: no error, no request twice",
  TIMEOUT,
  async (t) => {
    const one = await openUplinkBed(t, QUICK);
    const image = new Image(3, 2 ** 20);
    const { seen, place } = registry(one, image);
    const { digests, resumed } = await pull({ ...place, onManifest: () => one.bed.wan0.break("swallow") });
    assert.deepEqual([digests, resumed], [[...image.blobs.keys()], 0]);
    assert.equal(seen.filter((line) => line.startsWith("wan0") && line.includes(HOSTS.blobs)).length, 0);
    assert.equal(seen.filter((line) => line.startsWith("wan1") && line.includes(HOSTS.blobs)).length, 3);
  },
);

test(
  "uplink-proxy: a pull whose blobs break off in the middle goes on where they stopped, over the other uplink",
  TIMEOUT,
  async (t) => {
    const one = await openUplinkBed(t, { tunnel: { firstByteTimeoutMs: 1000, idleTimeoutMs: 1500 } });
    const image = new Image(2, 2 ** 20);
    const { seen, place } = registry(one, image);
    const { digests, resumed } = await pull({ ...place, onManifest: () => one.bed.wan0.break("drop-after") });
    assert.deepEqual(digests, [...image.blobs.keys()]);
    assert.ok(resumed >= 1, "something broke off");
    assert.ok(
      seen.some((line) => line.startsWith("wan1") && /bytes=[1-9]\d*-/.test(line)),
      seen.join("\n"),
    );
  },
);

test(
  "mgmtproxy-env run: a program behind the proxy survives a dead gateway; with the off-switch it goes by itself, and does not",
  TIMEOUT,
  async (t) => {
    const one = await openUplinkBed(t);
    const flag = join(one.dir, "off");
    const get = (url: string) =>
      one.run(
        ISTHMUS,
        "mgmtproxy-env",
        "run",
        `--off-switch=${flag}`,
        "--",
        "curl",
        "-sSg",
        "-m",
        "5",
        "--cacert",
        one.ca,
        url,
      );
    one.bed.wan0.break("drop-syn");
    assert.equal((await get(WEB4)).stdout, "wan1 198.51.100.10\n");
    writeFileSync(flag, "");
    // 28: curl's time was up.
    const { code, stderr } = await get(WEB4);
    assert.equal(code, 28, stderr);
    assert.match(stderr, /bypassing proxy \(disabled via /);
  },
);

test("mgmtproxy-env run: the program has the environment of the caller and the two variables, and nothing of ours", async () => {
  const of = async (...argv: readonly string[]): Promise<readonly string[]> => {
    const env = {
      NODE_EXTRA_CA_CERTS: "/etc/ssl/own ca.pem",
      NODE_OPTIONS: "",
      HTTPS_PROXY: undefined,
      NO_PROXY: undefined,
    };
    const { stdout } = await start([...argv, "env"], { env }).ended;
    return stdout
      .split("\n")
      .filter((line) => line !== "" && !line.startsWith("_="))
      .sort();
  };
  const plain = await of("env");
  const wrapped = await of(ISTHMUS, "mgmtproxy-env", "run", "--off-switch=/nonexistent", "--");
  const added = wrapped.filter((line) => !plain.includes(line)).map((line) => line.replace(/=.*/, ""));
  assert.deepEqual([added, plain.filter((line) => !wrapped.includes(line))], [["HTTPS_PROXY", "NO_PROXY"], []]);
});

test(
  "uplink-proxy: a client whose NO_PROXY is stale reaches the cluster through the proxy all the same, past every uplink",
  TIMEOUT,
  async (t) => {
    const one = await openUplinkBed(t, {}, { pod: true });
    const { pod } = one.bed;
    assert.ok(pod !== undefined);
    const server = createHttpServer(
      (request, response) => void response.end(`pod saw ${request.socket.remoteAddress}\n`),
    );
    t.after(() => server.close());
    server.listen({ fd: listenTcp(IpAddress.parse("10.42.0.2"), 8080, { netns: pod }) });
    assert.equal((await one.fetch("http://10.42.0.2:8080/"))[0], "pod saw 10.42.0.1");
    assert.ok(
      one.log.some((line) => /CONNECT 10\.42\.0\.2:8080 from \S+ via direct/.test(line)),
      one.log.join("\n"),
    );
  },
);

test(
  "uplink-proxy, transparent: curl without any variable fails over; killed, the proxy leaves the host's own way within 2 s",
  TIMEOUT,
  async (t) => {
    const one = await openUplinkBed(t, { transparent: { enabled: true, ports: [443] } });
    const installed = async (): Promise<boolean> =>
      (await one.run("nft", "list", "tables")).stdout.includes("uplink_proxy");
    const plain = (url: string) => one.run("curl", "-sSg", "-m", "10", "--cacert", one.ca, url);
    await until("the redirection is there", installed);
    assert.equal((await plain(WEB4)).stdout, "wan0 192.0.2.10\n");
    assert.equal((await plain(WEB6)).stdout, "wan0 2001:db8:1::10\n");
    one.bed.wan0.break("drop-syn");
    assert.equal((await plain(WEB4)).stdout, "wan1 198.51.100.10\n");
    // Were our own sockets caught, each tunnel would ask for another.
    assert.ok(one.log.filter((line) => line.includes(" via eth")).length === 3, one.log.join("\n"));
    one.bed.wan0.heal();
    const from = performance.now();
    await one.stop("SIGKILL");
    await until("the redirection is gone", async () => !(await installed()), { everyMs: 20 });
    assert.ok(performance.now() - from < 2000 + 1000, `${performance.now() - from} ms`);
    assert.equal((await plain(WEB4)).stdout, "wan0 192.0.2.10\n");
  },
);
