import { createSocket, type Socket } from "node:dgram";
import { type AbortOptions, untilAborted } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import type { HealthPart } from "#base/health";
import type { IpAddress } from "#base/ip";
import type { Logger } from "#base/log";
import { repeat } from "#base/reconcile";
import { answerTo } from "#features/egress";
import { KernelError } from "#kernel/errors";
import { bindUdp, type SocketPlace } from "#kernel/socket";

/** The pause between two tries to bind the port, milliseconds: an IPv6 address cannot be bound while the kernel looks for a duplicate of it. */
const RETRY_MS = 1000;
/** Answers that wait to be sent; further probes get none. */
const MAX_QUEUED = 1000;

/**
 * Answers probes at one address until the signal aborts (docs/spec/pod-network.md#9.2). The guard says whose probes arrive. While the port cannot be bound, `health` is degraded,
 * clients do not judge this router, and it is tried again. `netns`: default: that of the process.
 */
export async function answerProbes(
  parts: { readonly health: HealthPart; readonly log: Logger; readonly clock: Clock },
  { address, port, netns }: { readonly address: IpAddress; readonly port: number } & Pick<SocketPlace, "netns">,
  { signal }: AbortOptions & { readonly signal: AbortSignal },
): Promise<void> {
  const { health, clock, log } = parts;
  await repeat(
    async () => {
      const fd = bindUdp(address, port, { netns });
      const socket = createSocket(address.family === 4 ? "udp4" : "udp6");
      try {
        socket.bind({ fd, exclusive: true });
        health.ok();
        await served(socket, { log, signal });
      } finally {
        socket.close();
      }
    },
    { signal, everyMs: RETRY_MS, clock, onFailure: (error) => health.degraded(error) },
  );
}

/** Rejects with `KernelError` after an error of the socket. */
async function served(
  socket: Socket,
  { log, signal }: { readonly log: Logger; readonly signal: AbortSignal },
): Promise<void> {
  const ended = Promise.withResolvers<void>();
  socket.on("error", (cause) => ended.reject(new KernelError("failed", "receive probes", { cause })));
  socket.on("message", (bytes, { address, port }) => {
    const answer = answerTo(bytes);
    if (answer === undefined || socket.getSendQueueCount() >= MAX_QUEUED) return;
    // A client that has just gone has no route. Others go on.
    socket.send(answer, port, address, (error) => {
      if (error !== null) log.debug("a probe was not answered", { client: address, error: describeError(error) });
    });
  });
  await Promise.race([untilAborted(signal), ended.promise]);
}
