import { Socket } from "node:net";
import { pause } from "#base/async";
import type { Clock } from "#base/clock";
import { IpAddress } from "#base/ip";
import type { NetNs } from "#kernel/netns";
import { openTcp } from "#kernel/socket";
import type { Pod } from "#kube/client";
import { InsideError, request } from "#lab/inside";

/** Interval of probes until a pod is ready, in milliseconds; then it is the period of its probe. */
const STARTING_MS = 100;
const PROBE_MS = 1000;
/** Kubernetes' defaults. */
const PERIOD_SECONDS = 10;
const FAILURES = 3;

/** A readiness probe: a connection, or a GET that must be answered with a status of 200 to 399. */
export interface ReadinessProbe {
  readonly port: number;
  /** The path of `httpGet`; `undefined`: the connection is enough. */
  readonly path: string | undefined;
  readonly periodMs: number;
  /** The number of failures in a row after which a ready pod is not ready any more. */
  readonly failures: number;
}

/** Pure: the readiness probes `tcpSocket` and `httpGet` of every container. Other probes, and ports without a number, do not count. */
export function readinessProbes({ spec }: Pick<Pod, "spec">): readonly ReadinessProbe[] {
  return (spec?.containers ?? []).flatMap(({ readinessProbe: probe, ports = [] }) => {
    const given = probe?.tcpSocket?.port ?? probe?.httpGet?.port;
    const port = typeof given === "string" ? ports.find(({ name }) => name === given)?.containerPort : given;
    if (probe === undefined || typeof port !== "number") return [];
    const { periodSeconds = PERIOD_SECONDS, failureThreshold: failures = FAILURES, httpGet } = probe;
    const path = httpGet === undefined ? undefined : (httpGet.path ?? "/");
    return [{ port, path, periodMs: periodSeconds * 1000, failures }];
  });
}

/** Reports each change of whether all probes succeed, until the signal aborts. */
export async function watchReadiness(
  at: { readonly netns: Pick<NetNs, "fd">; readonly ip: string; readonly probes: readonly ReadinessProbe[] },
  tell: (isReady: boolean) => void,
  { signal, clock }: { readonly signal: AbortSignal; readonly clock: Clock },
): Promise<void> {
  const passing = new Set<ReadinessProbe>();
  let isReady = false;
  const turned = (probe: ReadinessProbe, passes: boolean): void => {
    if (passes) passing.add(probe);
    else passing.delete(probe);
    const isNow = passing.size === at.probes.length;
    if (isNow !== isReady && !signal.aborted) tell(isNow);
    isReady = isNow;
  };
  const address = IpAddress.parse(at.ip);
  await Promise.all(
    at.probes.map(async (probe) => {
      for (let failures = 0; !signal.aborted; ) {
        const passes = await succeeds({ netns: at.netns, address, probe }, { signal, clock });
        failures = passes ? 0 : failures + 1;
        if (passes || failures >= probe.failures) turned(probe, passes);
        await pause(passing.has(probe) ? probe.periodMs : STARTING_MS, { signal, clock });
      }
    }),
  );
}

async function succeeds(
  {
    netns,
    address,
    probe,
  }: { readonly netns: Pick<NetNs, "fd">; readonly address: IpAddress; readonly probe: ReadinessProbe },
  { signal, clock }: { readonly signal: AbortSignal; readonly clock: Clock },
): Promise<boolean> {
  const socket = new Socket({ fd: openTcp(address.family, { netns }) });
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const cancel = clock.after(PROBE_MS, () => resolve(false));
  socket.once("connect", () => resolve(true));
  socket.once("error", () => resolve(false));
  socket.connect({ host: address.toString(), port: probe.port });
  try {
    if (!(await promise)) return false;
    if (probe.path === undefined) return true;
    const what = { path: probe.path, host: "kubelet" };
    const { status } = await request(socket, what, { timeoutMs: PROBE_MS, signal });
    return status >= 200 && status < 400;
  } catch (error) {
    if (error instanceof InsideError || signal.aborted) return false;
    throw error;
  } finally {
    cancel();
    socket.destroy();
  }
}
