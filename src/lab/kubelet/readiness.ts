import { Socket } from "node:net";
import { pause } from "#base/async";
import type { Clock } from "#base/clock";
import { IpAddress } from "#base/ip";
import type { NetNs } from "#kernel/netns";
import { openTcp } from "#kernel/socket";
import type { Pod } from "#kube/client";

/** Interval of probes until a pod is ready, in milliseconds; then it is the period of its probe. */
const STARTING_MS = 100;
const PROBE_MS = 1000;

/** The TCP ports of a pod's readiness probes: `tcpSocket`, and `httpGet`, of which only the connection is checked. Pure. */
export function probedPorts({ spec }: Pick<Pod, "spec">): number[] {
  return (spec?.containers ?? []).flatMap(({ readinessProbe }) => {
    const port = readinessProbe?.tcpSocket?.port ?? readinessProbe?.httpGet?.port;
    return typeof port === "number" ? [port] : [];
  });
}

/** Reports each change of whether all ports accept connections, until the signal aborts. */
export async function watchReadiness(
  at: {
    readonly netns: Pick<NetNs, "fd">;
    readonly ip: string;
    readonly ports: readonly number[];
    readonly periodMs: number;
  },
  tell: (isReady: boolean) => void,
  { signal, clock }: { readonly signal: AbortSignal; readonly clock: Clock },
): Promise<void> {
  const address = IpAddress.parse(at.ip);
  let isReady = false;
  while (!signal.aborted) {
    const answers = await Promise.all(at.ports.map((port) => accepts({ netns: at.netns, address, port }, clock)));
    const isNow = answers.every(Boolean);
    if (isNow !== isReady && !signal.aborted) tell(isNow);
    isReady = isNow;
    await pause(isReady ? at.periodMs : STARTING_MS, { signal, clock });
  }
}

function accepts(
  { netns, address, port }: { readonly netns: Pick<NetNs, "fd">; readonly address: IpAddress; readonly port: number },
  clock: Clock,
): Promise<boolean> {
  const socket = new Socket({ fd: openTcp(address.family, { netns }) });
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const cancel = clock.after(PROBE_MS, () => resolve(false));
  socket.once("connect", () => resolve(true));
  socket.once("error", () => resolve(false));
  socket.connect({ host: address.toString(), port });
  return promise.finally(() => {
    cancel();
    socket.destroy();
  });
}
