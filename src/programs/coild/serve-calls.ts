import { type Logger, Repeats } from "#base/log";
import { callLocally, type LocalCallOptions, serveGrpc, serveHandover } from "#features/cni";
import { CniCode, CniError } from "#wire/cni";
import { type Answer, type HandedCall, handoverPath, NOT_MINE } from "#wire/cni-handover";
import { type CallCoild, errorOf, runPlugin } from "../cni-plugin/index.ts";

/** Options of gRPC, of which the hand-over has a part. */
type ServeOptions = Parameters<typeof serveGrpc>[0] & { readonly log: Logger };

/**
 * Serves both ways to call coild: gRPC on its socket, and on the hand-over socket beside it whole calls of the CNI executable, which are run
 * here as the executable would run them (docs/design/cni-executable.md).
 */
export async function serveCalls({ log, ...options }: ServeOptions): Promise<AsyncDisposable> {
  await using servers = new AsyncDisposableStack();
  servers.use(await serveGrpc(options));
  const socketPath = handoverPath(options.socketPath);
  if (socketPath === undefined) {
    log.warn("the path of the socket is too long for a hand-over socket beside it: calls of pods take longer", {
      socket: options.socketPath,
    });
  } else {
    const { onBug, clock } = options;
    const refused = new Repeats();
    const run = async (call: HandedCall, at: { readonly signal: AbortSignal }) => {
      const answer = await runHanded(call, options, at);
      if (answer === NOT_MINE && refused.isNew("launcher", call.path)) {
        log.warn("the network configuration names another socket than the launcher: coil-standalone makes such calls", {
          launcher: call.path,
          expected: socketPath,
        });
      }
      return answer;
    };
    servers.use(await serveHandover({ socketPath, run, onBug, clock }));
  }
  return servers.move();
}

/**
 * Runs a call of the CNI executable in this process. One whose configuration names another coild's socket is not begun: `path` and that socket
 * are both paths of the runtime, so a coild that is in a pod and sees its socket under another path knows its own calls too.
 */
export async function runHanded(
  { env, stdin, path }: HandedCall,
  options: LocalCallOptions,
  { signal }: { readonly signal: AbortSignal },
): Promise<Answer | typeof NOT_MINE> {
  let isMine = true;
  const callCoild: CallCoild = async (socket, method, message) => {
    if (handoverPath(socket) !== path) {
      isMine = false;
      throw new CniError(CniCode.internal, `this is not the coild at ${socket}`);
    }
    const { reply, status } = await callLocally(options, method, message, { signal });
    if (reply === undefined) throw errorOf(status);
    return reply;
  };
  const outcome = await runPlugin(env, Promise.resolve(stdin), callCoild);
  return isMine ? outcome : NOT_MINE;
}
