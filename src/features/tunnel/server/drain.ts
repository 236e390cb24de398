import { sleep } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError, ExpectedError } from "#base/errors";
import type { Logger } from "#base/log";
import type { Listener } from "./listener.ts";
import type { ProxyServer } from "./proxy-server.ts";
import type { ReversePolicy } from "./reverse-policy.ts";
import type { Successor } from "./succession.ts";

/** The interval at which the open connections are counted, and a successor is looked for, in milliseconds. */
const POLL_MS = 50;
/** The time that agents have to connect to the successor before frontends go there, in milliseconds, and for each agent besides: the default of --agent-accept-rate. */
const AGENTS_MOVE_MS = 1000;
const AGENT_MOVES_MS = 5;
/** The time for which clients that came before the hand-over are still accepted, in milliseconds. */
const BACKLOG_MS = 100;

export interface DrainParts {
  readonly proxy: Pick<ProxyServer, "backends" | "forwarder">;
  readonly reverse: Pick<ReversePolicy, "stop"> | undefined;
  readonly agents: Pick<Listener, "stopAccepting">;
  readonly frontends: Pick<Listener, "stopAccepting">;
  /** Absent: no server takes this one's place before it has ended. */
  readonly successor?: Successor | undefined;
  /** Called when a successor takes over, before agents are sent to it: probes must reach the successor alone. */
  readonly onSuperseded?: (() => Promise<void>) | undefined;
  readonly log: Logger;
  readonly clock: Clock;
}

/**
 * Lets connections go on for at most `timeoutMs`, in milliseconds (docs/spec/tunnel.md#11.1). Until a successor takes over, and as long as a connection is open, new
 * sessions and dials are served as before: nobody else could serve them. An agent's stream is ended when its last connection has ended, not before: at GOAWAY a Go agent drops all its
 * connections.
 */
export async function drainServer(parts: DrainParts, options: { readonly timeoutMs: number }): Promise<void> {
  const { proxy, reverse, agents, frontends, log, clock } = parts;
  const deadline = clock.monotonic() + options.timeoutMs;
  const why = await serveOn(parts, deadline);
  if (why === "superseded") {
    await handOver(parts, deadline);
  } else {
    proxy.forwarder.stop();
    reverse?.stop();
  }
  agents.stopAccepting();
  frontends.stopAccepting();
  for (;;) {
    const backends = proxy.backends.all;
    for (const { mux, load } of backends) if (load === 0) mux.end();
    if (backends.length === 0) return;
    if (clock.monotonic() >= deadline) {
      const connections = openConnections(parts);
      if (connections > 0) log.warn(CUT, { connections });
      return;
    }
    await pause(POLL_MS, deadline, clock);
  }
}

const CUT = "open connections are closed, because the graceful shutdown took longer than --graceful-shutdown-timeout";

/** Serves until a successor waits, no connection is left, or the time is over. */
async function serveOn(parts: DrainParts, deadline: number): Promise<"superseded" | "idle" | "late"> {
  for (;;) {
    if (await hasSuccessor(parts)) return "superseded";
    if (openConnections(parts) === 0) return "idle";
    if (parts.clock.monotonic() >= deadline) return "late";
    await pause(POLL_MS, deadline, parts.clock);
  }
}

async function hasSuccessor({ successor, log }: DrainParts): Promise<boolean> {
  try {
    return (await successor?.isWaiting()) === true;
  } catch (error) {
    if (!(error instanceof ExpectedError)) throw error;
    // Asked again at the next poll, which is soon: the line is for debugging.
    log.debug("it is not known whether a successor waits", { reason: describeError(error) });
    return false;
  }
}

/** Sends agents to the successor, and then frontends. Connections stay here. */
async function handOver(parts: DrainParts, deadline: number): Promise<void> {
  const { proxy, agents, successor, log, clock } = parts;
  const backends = proxy.backends.all;
  log.info("another server takes over", { agents: backends.length });
  await parts.onSuperseded?.();
  agents.stopAccepting();
  for (const { announceLeaving, mux, load } of backends) {
    if (announceLeaving !== undefined) announceLeaving();
    else if (load === 0) mux.end();
  }
  await pause(AGENTS_MOVE_MS + AGENT_MOVES_MS * backends.length, deadline, clock);
  // The socket of one that died meanwhile must not get the path: nobody would listen there.
  if (!(await hasSuccessor(parts))) {
    log.warn("the successor is gone: frontends stay here until one waits again");
    if ((await serveOn(parts, deadline)) !== "superseded") return;
  }
  if (successor?.handOver() !== true)
    log.warn("the successor is gone: it takes the socket of frontends when it is back");
  await pause(BACKLOG_MS, deadline, clock);
}

function openConnections({ proxy }: DrainParts): number {
  return proxy.backends.all.reduce((sum, { load }) => sum + load, 0);
}

async function pause(ms: number, deadline: number, clock: Clock): Promise<void> {
  await sleep(Math.max(1, Math.min(ms, deadline - clock.monotonic())), { clock });
}
