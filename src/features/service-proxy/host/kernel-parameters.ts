import { readFileSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { describeError } from "#base/errors";
import type { Logger } from "#base/log";
import { errnoNumber, isKernelError, type KernelError } from "#kernel/errors";
import type { SysctlPort } from "#kernel/net";

/** Kernel parameters of connection tracking. 0: the parameter is not changed. Times in seconds. */
export interface ConntrackSettings {
  readonly maxPerCore: number;
  readonly min: number;
  readonly tcpEstablishedSeconds: number;
  readonly tcpCloseWaitSeconds: number;
  readonly tcpBeLiberal: boolean;
  readonly udpSeconds: number;
  readonly udpStreamSeconds: number;
}

const MAX_CONNTRACK = 1_048_576;
/** Size of the connection table's hash: one for all namespaces, and written in the initial one alone. */
const BUCKETS = "net.netfilter.nf_conntrack_buckets";
const CONNTRACK_MAX = "net.netfilter.nf_conntrack_max";
/** The processors of the machine that are switched on, as ranges. */
const ONLINE_CPUS = "/sys/devices/system/cpu/online";

/** The parameters to set, by key. Pure. `cores`: number of this machine's cores. */
export function wantedParameters(settings: ConntrackSettings, cores: number): ReadonlyMap<string, number> {
  const wanted = new Map<string, number>();
  if (settings.maxPerCore > 0) wanted.set(CONNTRACK_MAX, conntrackMax(settings, cores));
  const seconds: readonly (readonly [string, number])[] = [
    ["tcp_timeout_established", settings.tcpEstablishedSeconds],
    ["tcp_timeout_close_wait", settings.tcpCloseWaitSeconds],
    ["udp_timeout", settings.udpSeconds],
    ["udp_timeout_stream", settings.udpStreamSeconds],
  ];
  for (const [name, value] of seconds) if (value > 0) wanted.set(`net.netfilter.nf_conntrack_${name}`, value);
  if (settings.tcpBeLiberal) wanted.set("net.netfilter.nf_conntrack_tcp_be_liberal", 1);
  return wanted;
}

function conntrackMax({ maxPerCore, min }: ConntrackSettings, cores: number): number {
  return Math.min(MAX_CONNTRACK, Math.max(cores * maxPerCore, min));
}

/** The number of processors in a list of the kernel, such as `0-3,8`; `undefined` for any other text. Pure. */
export function countCpus(list: string): number | undefined {
  let count = 0;
  for (const range of list.trim().split(",")) {
    const [, first, last = first] = /^(\d{1,6})(?:-(\d{1,6}))?$/.exec(range) ?? [];
    const length = Number(last) - Number(first) + 1;
    if (!(length >= 1)) return undefined;
    count += length;
  }
  return count;
}

/**
 * Sets the parameters that differ. A larger maximum of connections than the wanted one stays: a smaller one would refuse connections that the node has
 * room for. A parameter that cannot be set, for example in a container or another network namespace, is logged and keeps its value
 * (docs/spec/service-proxy.md#2.10). Those that the kernel does not have are returned. `online` reads the kernel's list of processors.
 */
export function setKernelParameters(
  sysctl: SysctlPort,
  settings: ConntrackSettings,
  { log, online = readOnlineCpus }: { readonly log: Logger; readonly online?: () => string },
): { readonly missing: readonly KernelError[] } {
  const missing: KernelError[] = [];
  let hasMax = true;
  const cores = coresOf(online);
  for (const [key, value] of wantedParameters(settings, cores)) {
    try {
      const present = Number(sysctl.get(key));
      if (key === CONNTRACK_MAX && present > value)
        log.info("the maximum of tracked connections is larger than the configured one, and stays", { present, value });
      else if (present !== value) sysctl.set(key, value);
    } catch (error) {
      if (!isKernelError(error)) throw error;
      if (key === CONNTRACK_MAX && error.code === "not-found") hasMax = false;
      if (error.code === "not-found") missing.push(error);
      else log.info("a kernel parameter could not be set and keeps its value", { key, value, error: error.message });
    }
  }
  if (settings.maxPerCore > 0 && hasMax) raiseHashSize(sysctl, conntrackMax(settings, cores), log);
  return { missing };
}

const readOnlineCpus = (): string => readFileSync(ONLINE_CPUS, "utf8");

/** The machine's processors. Those that this process may use are fewer, for example under the kubelet's static CPU manager. */
function coresOf(online: () => string): number {
  try {
    return countCpus(online()) ?? availableParallelism();
  } catch (error) {
    if (errnoNumber((error as NodeJS.ErrnoException).code ?? "") === undefined) throw error;
    return availableParallelism();
  }
}

function raiseHashSize(sysctl: SysctlPort, max: number, log: Logger): void {
  try {
    if (Number(sysctl.get(BUCKETS)) < max / 4) sysctl.set(BUCKETS, max / 4);
  } catch (error) {
    if (!isKernelError(error)) throw error;
    log.info("the hash size of the connection tracking table could not be set and keeps its value", {
      error: error.message,
    });
  }
}

/** Sets how likely the kernel is to end this process when memory runs out. */
export function setOomScore(score: number, log: Logger): void {
  try {
    writeFileSync("/proc/self/oom_score_adj", String(score));
  } catch (error) {
    log.info("the OOM score of the process could not be set and keeps its value", {
      score,
      error: describeError(error),
    });
  }
}
