import { readFileSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { describeError } from "#base/errors";
import type { Logger } from "#base/log";
import { isKernelError } from "#kernel/errors";
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
/** Size of the connection table's hash, of the initial network namespace alone. */
const HASHSIZE = "/sys/module/nf_conntrack/parameters/hashsize";

/** The parameters to set, by key. Pure. `cores`: number of this machine's cores. */
export function wantedParameters(settings: ConntrackSettings, cores: number): ReadonlyMap<string, number> {
  const wanted = new Map<string, number>();
  if (settings.maxPerCore > 0) wanted.set("net.netfilter.nf_conntrack_max", conntrackMax(settings, cores));
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

/**
 * Sets the parameters that differ. A parameter that cannot be set, for example in a container or another network namespace, is logged and
 * keeps its value (docs/spec/service-proxy.md#2.10).
 */
export function setKernelParameters(
  sysctl: SysctlPort,
  settings: ConntrackSettings,
  { log }: { readonly log: Logger },
): void {
  for (const [key, value] of wantedParameters(settings, availableParallelism())) {
    try {
      if (Number(sysctl.get(key)) !== value) sysctl.set(key, value);
    } catch (error) {
      if (!isKernelError(error)) throw error;
      log.info("a kernel parameter could not be set and keeps its value", { key, value, error: error.message });
    }
  }
  if (settings.maxPerCore > 0) raiseHashSize(conntrackMax(settings, availableParallelism()), log);
}

function raiseHashSize(max: number, log: Logger): void {
  try {
    if (Number(readFileSync(HASHSIZE, "utf8")) < max / 4) writeFileSync(HASHSIZE, String(max / 4));
  } catch (error) {
    log.info("the hash size of the connection tracking table could not be set and keeps its value", {
      error: describeError(error),
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
