import { describeError } from "#base/errors";
import type { HealthPart } from "#base/health";
import { type Logger, Repeats } from "#base/log";
import { keepSocket } from "#base/unix-socket";
import { callLocally, cniHandlers, type LocalCallOptions, serveGrpc, serveHandover } from "#features/cni";
import { CniCode, CniError, DEFAULT_SOCKET } from "#wire/cni";
import { type Answer, type HandedCall, handoverPath, NOT_MINE } from "#wire/cni-handover";
import { type CniCaller, methodPath } from "#wire/cnirpc";
import { type CallCoild, errorOf, runPlugin } from "../../shared/cni-plugin/index.ts";
import { markSocket } from "../../shared/served-mark/index.ts";

/** Options of the gRPC server; the hand-over server uses some of them. */
type ServeOptions = Parameters<typeof serveGrpc>[0] & {
  /** The service of CNI calls. `handlers` are the other methods. */
  readonly call: CniCaller;
  readonly log: Logger;
  /** The socket of gRPC. */
  readonly socketHealth: HealthPart;
  /** The hand-over socket. Without it calls are served by gRPC, so it does not keep the program from being ready. */
  readonly health: HealthPart;
};

/**
 * Serves both ways to call coild: gRPC on its socket, and on the hand-over socket beside it whole calls of the CNI executable, which are run
 * here as the executable would run them (docs/design/cni-executable.md). If coild cannot listen on the hand-over socket, it serves gRPC alone
 * and tries again. A socket whose file is lost is listened on again. Throws `SocketPathError` for the socket of gRPC.
 */
export async function serveCalls({ log, socketHealth, health, ...given }: ServeOptions): Promise<AsyncDisposable> {
  await using servers = new AsyncDisposableStack();
  const options = { ...given, handlers: { ...cniHandlers(given.call), ...given.handlers } };
  const { onBug, clock } = options;
  const keep = { log, clock, onBug };
  markSocket(options.socketPath, { kind: "coild", usual: DEFAULT_SOCKET, log });
  servers.use(await keepSocket(() => serveGrpc(options), { ...keep, path: options.socketPath, health: socketHealth }));
  const socketPath = handoverPath(options.socketPath);
  // By gRPC all calls are served.
  health.ok();
  if (socketPath === undefined) {
    health.degraded(
      `CNI calls take longer: ${options.socketPath} is too long for a hand-over socket beside it; choose a shorter --socket`,
    );
  } else {
    const refused = new Repeats();
    const run = async (call: HandedCall, at: { readonly signal: AbortSignal }) => {
      const answer = await runHanded(call, options, at);
      if (answer === NOT_MINE && refused.isNew("launcher", call.path)) {
        log.warn(
          "the network configuration names another socket than the launcher has: calls are made by the slower coil-standalone",
          {
            launcher: call.path,
            expected: socketPath,
          },
        );
      }
      return answer;
    };
    servers.use(
      await keepSocket(() => serveHandover({ socketPath, run, onBug, clock }), {
        ...keep,
        path: socketPath,
        health: slower(health),
        mayStartWithout: true,
      }),
    );
  }
  return servers.move();
}

/** Adds to a failure what it means for callers. */
function slower(health: HealthPart): HealthPart {
  return {
    ok: (reason) => health.ok(reason),
    degraded: (error) => health.degraded(`CNI calls take longer: ${describeError(error)}`),
  };
}

/**
 * Runs a call of the CNI executable in this process. A call whose configuration names another coild's socket is not begun: `path` and that
 * socket are both paths of the runtime, so a coild that is in a pod and sees its socket under another path also recognizes its own calls.
 */
export async function runHanded(
  { env, stdin, path }: HandedCall,
  options: LocalCallOptions & { readonly call: CniCaller },
  { signal }: { readonly signal: AbortSignal },
): Promise<Answer | typeof NOT_MINE> {
  let isMine = true;
  const callCoild: CallCoild = async (socket, call) => {
    if (handoverPath(socket) !== path) {
      isMine = false;
      throw new CniError(CniCode.internal, `this coild does not serve ${socket}`);
    }
    const done = await callLocally(options, methodPath(call.method), (at) => options.call(call, at), { signal });
    if ("status" in done) throw errorOf(done.status);
    return done.value;
  };
  const outcome = await runPlugin(env, Promise.resolve(stdin), callCoild);
  return isMine ? outcome : NOT_MINE;
}
