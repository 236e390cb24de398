import { systemClock } from "#base/clock";
import { integerFlag } from "#base/config";
import { removeTransparent, runTransparentWatchdog, WATCHDOG_READY } from "#features/uplink-routing";
import { openKernel } from "#kernel/net";
import { openNft } from "#kernel/nft";
import { logFlags, loggerOf } from "../../shared/daemon/index.ts";
import { defineProgram, EXIT } from "../../shared/program/index.ts";

const whole = { min: 0, max: 0xffff_ffff };

const flags = {
  mark: integerFlag("mark", 0, "packet mark of the redirection", whole),
  table: integerFlag("table", 0, "its routing table", whole),
  rulePriority: integerFlag("rule-priority", 0, "priority of its rules", whole),
  routeProtocol: integerFlag("route-protocol", 0, "route protocol number that marks its routes", whole),
  ...logFlags,
};

/**
 * Removes the redirection of `uplink-proxy` when `uplink-proxy` ends or hangs (docs/spec/uplink-proxy.md#14). It ends after `uplink-proxy`.
 */
export const uplinkWatchdog = defineProgram({
  name: "uplink-watchdog",
  summary:
    "Removes the redirection of the transparent mode when uplink-proxy ends or hangs. uplink-proxy starts this program.",
  flags,
  run: async ({ values }) => {
    const log = loggerOf("uplink-watchdog", values);
    const kernel = openKernel();
    using own = kernel.openNetNs("own");
    using stack = kernel.openStack(own);
    using nft = openNft(own);
    const remove = (): void => void removeTransparent(stack, nft, values);
    // Signals go to the whole process group: the watchdog ignores them and waits for the end of the proxy.
    for (const name of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(name, () => undefined);
    const watched = runTransparentWatchdog({ input: process.stdin, remove, clock: systemClock, log });
    // After the proxy has ended, writes to it fail; the end of standard input shows that the proxy has ended.
    process.stdout.on("error", () => undefined);
    process.stdout.write(WATCHDOG_READY);
    await watched;
    return EXIT.ok;
  },
});
