import { join } from "node:path";
import { systemClock } from "#base/clock";
import type { Logger } from "#base/log";
import { mayFollow, ServerFollower } from "#kube/api-servers";
import type { KubeClient } from "#kube/client";
import { RUN_FOLDER } from "../estate/index.ts";

/**
 * Makes the clients of a daemon or controller use the API servers that the cluster names, too, until the result is disposed. All are of one connection; without any, and where the first one
 * may not follow them, it does nothing.
 */
export function followServers(
  program: string,
  clients: readonly KubeClient[],
  { log, env = process.env }: { readonly log: Logger; readonly env?: Readonly<Record<string, string | undefined>> },
): AsyncDisposable {
  const [api] = clients;
  if (api === undefined || !mayFollow(api.connection)) return { [Symbol.asyncDispose]: async () => undefined };
  const stop = new AbortController();
  const learn: KubeClient["learn"] = (servers) => {
    for (const client of clients) client.learn(servers);
  };
  const follower = new ServerFollower(
    { api, learn, log: log.child("api-servers"), clock: systemClock },
    { connection: api.connection, path: join(folderOf(program, env), "api-servers.json") },
  );
  // Without a handler: a bug ends the program.
  const running = follower.run({ signal: stop.signal });
  return {
    async [Symbol.asyncDispose](): Promise<void> {
      stop.abort(new DOMException("the program ends", "AbortError"));
      await running;
    },
  };
}

/** systemd names several folders with colons between; the first one is ours. */
function folderOf(program: string, env: Readonly<Record<string, string | undefined>>): string {
  const [given = ""] = env["RUNTIME_DIRECTORY"]?.split(":", 1) ?? [];
  return given === "" ? join(RUN_FOLDER, program) : join(given, program);
}
