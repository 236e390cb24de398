/**
 * The API server of `cni-add`, a separate process, so that its CPU time can be measured separately. Listens on loopback here and
 * inside the network namespace that its argument names; sends both kubeconfigs to its parent and ends with it.
 */
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { openNetNs } from "#kernel/netns";
import { listenTcp } from "#kernel/socket";
import { startApiServer } from "#lab/api-server";

const PORT = 6443;

/** The message to the parent. */
export interface ApiServerMessage {
  readonly here: string;
  readonly inNode: string;
}

const [name = ""] = process.argv.slice(2);
process.once("disconnect", () => process.exit(0));
using netns = openNetNs({ name });
const fd = listenTcp(IpAddress.parse("127.0.0.1"), PORT, { netns });
const server = await startApiServer({
  listen: [
    { host: "127.0.0.1", port: 0 },
    { fd, host: "127.0.0.1" },
  ],
  log: nullLogger,
  clock: systemClock,
});
const [here, inNode] = server.urls.map((url) => server.kubeconfig({ server: url }));
process.send?.({ here, inNode });
