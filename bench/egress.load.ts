/** A side of the load of the egress benchmark, a process in a namespace of its own: the server outside, or the client. Commands come by IPC. */
import { serve, setUps, transfer } from "./connect.load.ts";

/** A command of the parent; each is answered with one number. */
export type Command =
  | { readonly do: "serve"; readonly host: string; readonly ports: readonly number[] }
  /** Answered with bytes a second. */
  | {
      readonly do: "transfer";
      readonly host: string;
      readonly port: number;
      readonly bytes: number;
      readonly streams: number;
    }
  /** Answered with connections a second. */
  | {
      readonly do: "connect";
      readonly host: string;
      readonly port: number;
      readonly ms: number;
      readonly atOnce: number;
    };

async function run(command: Command): Promise<number> {
  if (command.do === "serve") {
    await serve(command.host, command.ports);
    return 0;
  }
  const { host, port } = command;
  const way = { host, port, proxyPort: undefined };
  if (command.do === "transfer") return command.bytes / (await transfer(way, command));
  const from = performance.now();
  const times = await setUps(way, command);
  return times.length / ((performance.now() - from) / 1000);
}

process.once("disconnect", () => process.exit(0));
process.on("message", (command: Command) => {
  run(command).then(
    (result) => process.send?.({ result }),
    (error: unknown) => process.send?.({ error: String(error) }),
  );
});
