/**
 * A destination on loopback that does not answer, like one behind a dropping firewall or on a hanging host.
 *
 * ```ts
 * const port = await silentPort(t); // connecting to it neither succeeds nor fails while the test lasts
 * ```
 */
import { once } from "node:events";
import { closeSync } from "node:fs";
import { connect } from "node:net";
import { IpAddress } from "#base/ip";
import { listenTcp, localEndpoint } from "#kernel/socket";

/** A port of 127.0.0.1 whose queue of connections is full, so that the kernel drops further ones; freed with the test. */
export async function silentPort(scope: { after(cleanUp: () => unknown): void }): Promise<number> {
  const fd = listenTcp(IpAddress.parse("127.0.0.1"), 0, { backlog: 0 });
  scope.after(() => closeSync(fd));
  const { port } = localEndpoint(fd);
  const first = connect(port, "127.0.0.1");
  scope.after(() => first.destroy());
  await once(first, "connect");
  return port;
}
