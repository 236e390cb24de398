import type { ListenAddress } from "#base/config";
import { claimSocketPath } from "#base/unix-socket";
import { KernelError } from "#kernel/errors";
import { epollStreamsFault, SharedUnixSocket } from "#kernel/reactor";
import { BACKLOG, claimAddress, ListenerError, UDS_UMASK } from "./listener.ts";
import type { AgentListen, FrontendListen } from "./listeners.ts";

/** The place where workers accept frontends: disposing it lets no further frontend come. */
export interface SharedFrontends extends Disposable {
  /** The descriptors that workers must inherit. */
  readonly descriptors: readonly number[];
  /** The reason why frontends cannot reach the workers; `undefined` if they can. */
  fault(): string | undefined;
}

/**
 * Opens what the workers of a server listen on together: the UNIX socket of frontends, and nothing for TCP addresses, which must be free. Rejects
 * with `ListenerError`, `SocketPathError`.
 */
export async function openShared(
  frontend: FrontendListen & { readonly kind: "uds" | "tcp" },
  agent: AgentListen,
): Promise<SharedFrontends> {
  await claimAddress(agent.address);
  if (frontend.kind === "tcp") return claimed(frontend.address);
  const { path, deleteExisting } = frontend;
  const fault = epollStreamsFault();
  if (fault !== undefined) {
    throw new ListenerError("cannot-listen", `workers cannot share ${path}: ${fault}; set --workers=1`);
  }
  await claimSocketPath(path, { deleteExisting });
  try {
    const socket = SharedUnixSocket.listen(path, { umask: UDS_UMASK, backlog: BACKLOG });
    const lost = `the file of ${path} was removed or replaced, and workers cannot listen there again: restart the program`;
    return {
      descriptors: [socket.fd],
      fault: () => (socket.isReachable ? undefined : lost),
      [Symbol.dispose]: () => socket[Symbol.dispose](),
    };
  } catch (error) {
    if (!(error instanceof KernelError)) throw error;
    throw new ListenerError("cannot-listen", `cannot listen on ${path}: ${error.message}`, { cause: error });
  }
}

async function claimed(address: ListenAddress): Promise<SharedFrontends> {
  await claimAddress(address);
  return { descriptors: [], fault: () => undefined, [Symbol.dispose]: () => undefined };
}
