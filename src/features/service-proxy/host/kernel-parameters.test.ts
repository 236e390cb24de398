import assert from "node:assert/strict";
import { availableParallelism } from "node:os";
import { test } from "node:test";
import { createLogger } from "#base/log";
import { KernelError } from "#kernel/errors";
import type { SysctlPort } from "#kernel/net";
import { type ConntrackSettings, countCpus, setKernelParameters, wantedParameters } from "./kernel-parameters.ts";

const ALONE: ConntrackSettings = {
  maxPerCore: 0,
  min: 131_072,
  tcpEstablishedSeconds: 0,
  tcpCloseWaitSeconds: 0,
  tcpBeLiberal: false,
  udpSeconds: 0,
  udpStreamSeconds: 0,
};

const wanted = (settings: Partial<ConntrackSettings>, cores = 4): Readonly<Record<string, number>> =>
  Object.fromEntries(
    Array.from(wantedParameters({ ...ALONE, ...settings }, cores), ([key, value]) => [
      key.replace("net.netfilter.nf_conntrack_", ""),
      value,
    ]),
  );

test("wantedParameters: zero leaves a parameter alone", () => assert.deepEqual(wanted({}), {}));

test("wantedParameters: connections by cores, between the least and 1,048,576", () => {
  assert.deepEqual(wanted({ maxPerCore: 32_768 }, 1), { max: 131_072 });
  assert.deepEqual(wanted({ maxPerCore: 32_768 }, 8), { max: 262_144 });
  assert.deepEqual(wanted({ maxPerCore: 32_768 }, 1000), { max: 1_048_576 });
});

test("wantedParameters: every timeout by its own name", () => {
  const settings = {
    tcpEstablishedSeconds: 1,
    tcpCloseWaitSeconds: 2,
    udpSeconds: 3,
    udpStreamSeconds: 4,
    tcpBeLiberal: true,
  };
  assert.deepEqual(wanted(settings), {
    tcp_timeout_established: 1,
    tcp_timeout_close_wait: 2,
    udp_timeout: 3,
    udp_timeout_stream: 4,
    tcp_be_liberal: 1,
  });
});

/** Settings in memory; a key in `refused` cannot be written. */
class Sysctls implements SysctlPort {
  readonly values: Map<string, string>;
  readonly writes: string[] = [];
  readonly #refused: string | undefined;

  constructor(values: Readonly<Record<string, string>>, refused?: string) {
    this.values = new Map(Object.entries(values));
    this.#refused = refused;
  }

  get(key: string): string {
    return this.values.get(key) ?? "0";
  }

  set(key: string, value: string | number): void {
    if (key === this.#refused) throw new KernelError("not-permitted", `cannot write sysctl ${key}`);
    this.values.set(key, String(value));
    this.writes.push(`${key}=${value}`);
  }
}

const UDP = "net.netfilter.nf_conntrack_udp_timeout";
const STREAM = "net.netfilter.nf_conntrack_udp_timeout_stream";

test("setKernelParameters: writes only parameters that differ", () => {
  const sysctl = new Sysctls({ [UDP]: "10" });
  setKernelParameters(
    sysctl,
    { ...ALONE, udpSeconds: 10, udpStreamSeconds: 20 },
    { log: createLogger({ name: "t", write: () => undefined }) },
  );
  assert.deepEqual(sysctl.writes, [`${STREAM}=20`]);
});

test("setKernelParameters: a parameter that cannot be set is logged, and the others are set", () => {
  const sysctl = new Sysctls({}, UDP);
  const lines: string[] = [];
  const log = createLogger({ name: "t", write: (line) => lines.push(line) });
  setKernelParameters(sysctl, { ...ALONE, udpSeconds: 10, udpStreamSeconds: 20 }, { log });
  assert.deepEqual(sysctl.writes, [`${STREAM}=20`]);
  assert.equal(lines.length, 1);
  assert.match(
    lines[0] ?? "",
    /nf_conntrack_udp_timeout".*cannot write sysctl .*a kernel parameter could not be set and keeps its value/,
  );
});

test("countCpus: single processors and ranges, as the kernel lists them; nothing for any other text", () => {
  const counts: Record<string, number | undefined> = {
    "0": 1,
    "0-63\n": 64,
    "0-3,8,10-11\n": 7,
    "": undefined,
    "0-": undefined,
    "3-1": undefined,
  };
  for (const [list, count] of Object.entries(counts)) assert.equal(countCpus(list), count, list);
});

const MAX = "net.netfilter.nf_conntrack_max";

test("setKernelParameters: connections are allowed by the machine's processors, not by those that this process may use", () => {
  const log = createLogger({ name: "t", write: () => undefined });
  const maxWith = (online: () => string): string | undefined => {
    const sysctl = new Sysctls({});
    setKernelParameters(sysctl, { ...ALONE, min: 1, maxPerCore: 1000 }, { log, online });
    return sysctl.values.get(MAX);
  };
  assert.equal(
    maxWith(() => "0-63\n"),
    "64000",
  );
  const own = String(1000 * availableParallelism());
  assert.equal(
    maxWith(() => "rubbish"),
    own,
  );
  const missing = Object.assign(new Error("no such file"), { code: "ENOENT" });
  assert.equal(
    maxWith(() => {
      throw missing;
    }),
    own,
  );
});

test("setKernelParameters: the table's hash grows to a quarter of the connections, is never made smaller, and one that is refused is logged", () => {
  const buckets = "net.netfilter.nf_conntrack_buckets";
  const lines: string[] = [];
  const log = createLogger({ name: "t", write: (line) => lines.push(line) });
  const writes = (sysctl: Sysctls): readonly string[] => {
    setKernelParameters(sysctl, { ...ALONE, min: 1, maxPerCore: 1000 }, { log, online: () => "0-3\n" });
    return sysctl.writes.filter((write) => write.startsWith(buckets));
  };
  assert.deepEqual(writes(new Sysctls({ [buckets]: "999" })), [`${buckets}=1000`]);
  assert.deepEqual(writes(new Sysctls({ [buckets]: "1000" })), []);
  assert.deepEqual(lines, []);
  assert.deepEqual(writes(new Sysctls({}, buckets)), []);
  assert.match(lines.join(), /the hash size of the connection tracking table could not be set/);
});

test("setKernelParameters: a larger maximum of connections stays, and that is logged", () => {
  const lines: string[] = [];
  const log = createLogger({ name: "t", write: (line) => lines.push(line) });
  const sysctl = new Sysctls({ [MAX]: "1048576", [UDP]: "100", "net.netfilter.nf_conntrack_buckets": "65536" });
  setKernelParameters(sysctl, { ...ALONE, maxPerCore: 32_768, udpSeconds: 10 }, { log, online: () => "0-3" });
  assert.deepEqual(sysctl.writes, [`${UDP}=10`]);
  assert.equal(lines.length, 1);
  assert.match(lines[0] ?? "", /larger than the configured one/);
});

test("setKernelParameters: a bug is passed on, not logged", () => {
  const broken: SysctlPort = {
    get: () => {
      throw new TypeError("a bug");
    },
    set: () => undefined,
  };
  const log = createLogger({ name: "t", write: () => undefined });
  assert.throws(() => setKernelParameters(broken, { ...ALONE, udpSeconds: 1 }, { log }), TypeError);
});
