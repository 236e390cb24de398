import { type Clock, systemClock } from "#base/clock";
import { switchFlag } from "#base/config";
import type { Logger } from "#base/log";
import { countRefusedScrape } from "#base/metrics";
import { RateLimitedLog } from "#base/rate-limit";
import type { KubeApi } from "#kube/client";
import type { Authorize, EndpointAnswer } from "#wire/http-endpoint";

/** `--metrics-authorization`, of each program that serves metrics and has a client of the API server. */
export const metricsAuthorizationFlag = {
  metricsAuthorization: switchFlag(
    "metrics-authorization",
    false,
    "metrics and profiles ask for a bearer token, whose account must be allowed to get their path (nonResourceURLs); the API server is asked. With --metrics-from the address comes first. The port has no TLS",
  ),
};

const UNAUTHENTICATED: EndpointAnswer = {
  status: 401,
  headers: { "www-authenticate": "Bearer" },
  body: "metrics need a bearer token here (--metrics-authorization)\n",
};

/**
 * Asks the API server for each request with another token or path, and at times again. `undefined` without the flag: everybody may. Programs without it load none of the
 * code for reviews.
 */
export async function metricsLogin(
  isOn: boolean,
  deps: { readonly api: Pick<KubeApi, "request">; readonly log: Logger; readonly clock?: Clock },
): Promise<Authorize | undefined> {
  if (!isOn) return undefined;
  const { api, log, clock = systemClock } = deps;
  const { AccessReviews } = await import("#kube/access");
  const reviews = new AccessReviews({ api, clock });
  const warnings = new RateLimitedLog({ log, clock });
  return async ({ authorization, method, path }) => {
    const verb = method.toLowerCase();
    const access = await reviews.judge(authorization, { path, verb });
    if (access.kind === "allowed") return undefined;
    countRefusedScrape();
    if (access.kind === "unauthenticated") return UNAUTHENTICATED;
    if (access.kind === "forbidden")
      return { status: 403, body: `the account of this token may not ${verb} ${path} (nonResourceURLs)\n` };
    warnings.warn("nobody reads metrics while it is not known who may (--metrics-authorization)", { why: access.why });
    return { status: 503, body: "it is not known whether you may: the API server was not asked, or did not answer\n" };
  };
}
