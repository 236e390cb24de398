/**
 * Peers that are programs: ours, and external ones by command line. All are started with Konnectivity's flags only, so a program that
 * needs other flags fails.
 */
import { ISTHMUS, type Running, start, until } from "#test/lab";
import { freePort } from "#test/ports";
import { fetchText } from "#test/proxies";
import type { Peer, RunningPeer, RunningServer } from "#test/tunnel-peer";

/** Words of a command line, split at blanks. */
type Command = readonly string[];

/** Our `proxy-server`, or the program of a command line. */
export function serverProgram(command?: Command): Peer<RunningServer> {
  return {
    name: command === undefined ? "ours" : "external",
    isOurs: command === undefined,
    start: async (places) => {
      const { serverHealthPort: healthPort } = places;
      const program = launch(command ?? [ISTHMUS, "proxy-server"], [
        ...["--mode=grpc", `--uds-name=${places.udsPath}`, "--server-port=0", "--server-count=1"],
        ...[`--agent-port=${places.agentPort}`, "--agent-bind-address=127.0.0.1", `--admin-port=${await freePort()}`],
        ...[`--health-port=${healthPort}`, "--health-bind-address=127.0.0.1"],
        ...[`--cluster-cert=${places.file("server.crt")}`, `--cluster-key=${places.file("server.key")}`],
        `--cluster-ca-cert=${places.file("ca.crt")}`,
      ]);
      const health = (path: string): Promise<string> => fetchText(`http://127.0.0.1:${healthPort}${path}`);
      await until("the server is healthy", async () => (await health("/healthz")).startsWith("200"), {
        seen: program.running.said,
      });
      return { ...program, hasAgent: async () => (await health("/readyz")).startsWith("200") };
    },
  };
}

/** Our `proxy-agent`, or the program of a command line. */
export function agentProgram(command?: Command): Peer<RunningPeer> {
  return {
    name: command === undefined ? "ours" : "external",
    isOurs: command === undefined,
    start: async (places) => {
      const healthPort = await freePort();
      return launch(command ?? [ISTHMUS, "proxy-agent"], [
        ...["--proxy-server-host=127.0.0.1", `--proxy-server-port=${places.agentPort}`],
        ...[`--health-server-port=${healthPort}`, `--admin-server-port=${await freePort()}`],
        ...[`--ca-cert=${places.file("ca.crt")}`, `--agent-cert=${places.file("agent.crt")}`],
        ...[`--agent-key=${places.file("agent.key")}`, "--sync-interval=200ms", "--sync-interval-cap=1s"],
      ]);
    },
  };
}

function launch(command: Command, flags: readonly string[]): RunningPeer & { readonly running: Running } {
  const running = start([...command, ...flags], { timeoutMs: 600_000 });
  return {
    running,
    violations: [],
    async kill() {
      running.child.kill("SIGKILL");
      await running.ended;
    },
  };
}

/** Fetches a page through the tunnel with the program of a command line: Konnectivity's test client and its flags. */
export async function fetchWithClient(
  command: Command,
  options: { readonly udsPath: string; readonly port: number; readonly path: string },
): Promise<{ readonly code: number | null; readonly printed: string }> {
  const { code, stdout, stderr } = await start([
    ...command,
    ...["--mode=grpc", `--proxy-uds=${options.udsPath}`, "--proxy-host=", "--proxy-port=0"],
    ...["--request-proto=http", "--request-host=127.0.0.1", `--request-port=${options.port}`],
    `--request-path=${options.path}`,
  ]).ended;
  return { code, printed: stdout + stderr };
}
