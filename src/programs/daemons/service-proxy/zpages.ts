import type { Clock } from "#base/clock";
import { formatDuration } from "#base/config";
import { VERSION } from "#base/version";
import type { HttpRoutes } from "#wire/http-endpoint";
import { type ServiceProxyValues, serviceProxyFlags } from "../../shared/service-proxy-config/index.ts";

/** As in Kubernetes' programs: people read these pages. */
const WARNING =
  "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.";

/** `/flagz` and `/statusz` (KEP-4828, KEP-4827). `values`: of the command line. */
export function zpages(values: ServiceProxyValues, { clock }: { readonly clock: Clock }): HttpRoutes {
  const startedAt = clock.now();
  const since = clock.monotonic();
  return {
    "/flagz": () => ({ body: `\nservice-proxy flagz\n${WARNING}\n\n${flagLines(values).join("\n")}\n` }),
    "/statusz": () => {
      const lines = [
        `Started: ${new Date(startedAt).toUTCString()}`,
        `Up: ${uptime(clock.monotonic() - since)}`,
        `Node version: ${process.version}`,
        `Binary version: ${VERSION}`,
      ];
      return { body: `\nservice-proxy statusz\n${WARNING}\n\n${lines.join("\n")}\n` };
    },
  };
}

/** `name=value` of each flag that has an effect, by name. */
function flagLines(values: ServiceProxyValues): string[] {
  return Object.entries(serviceProxyFlags)
    .filter(([, { ignored }]) => ignored === undefined)
    .map(([key, { name, placeholder }]) => {
      const value: unknown = values[key as keyof ServiceProxyValues];
      const isDuration = placeholder === "DURATION" && typeof value === "number";
      return `${name}=${isDuration ? formatDuration(value) : String(value ?? "")}`;
    })
    .sort();
}

function uptime(ms: number): string {
  const seconds = Math.floor(ms / 1000);
  const two = (count: number): string => String(count).padStart(2, "0");
  return `${Math.floor(seconds / 3600)} hr ${two(Math.floor(seconds / 60) % 60)} min ${two(seconds % 60)} sec`;
}
