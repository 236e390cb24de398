import { systemClock } from "#base/clock";
import { formatListenAddress, type ListenAddress } from "#base/config";
import { ExpectedError } from "#base/errors";
import type { Cidr } from "#base/ip";
import type { Logger } from "#base/log";
import { countRefusedScrape, type Registry } from "#base/metrics";
import {
  type Authorize,
  answerByPath,
  HttpEndpoint,
  type HttpRoutes,
  hasHealth,
  MetricsClients,
  SharedText,
} from "#wire/http-endpoint";

export type HealthServerErrorCode = "cannot-listen";

/** The server of a port for probes and scrapers cannot listen on its address. */
export class HealthServerError extends ExpectedError<HealthServerErrorCode> {
  override readonly name = "HealthServerError";
}

/** Listens until disposed. */
export interface Endpoint extends AsyncDisposable {
  readonly port: number;
}

/** Collaborators of {@link serveRoutes}. */
export interface ServeRoutesDeps {
  readonly routes: HttpRoutes;
  readonly log: Logger;
  readonly onBug: (error: unknown) => void;
}

/** Settings of {@link serveRoutes}. */
export interface ServeRoutesOptions {
  readonly address: ListenAddress;
  /** Other processes of the user may listen on the address too, and the kernel spreads the clients. Default: no. */
  readonly isShared?: boolean;
  readonly notFound?: string;
  /** Ranges of those who may read what is not health; empty: everybody. A port without health takes no connections of others. */
  readonly metricsFrom?: readonly Cidr[];
  /** Asked for each request that is not for health. Default: everybody may. */
  readonly authorize?: Authorize | undefined;
}

/** Serves plain HTTP for probes, scrapers and operators. Rejects with {@link HealthServerError} if listening fails. */
export async function serveRoutes(
  { routes, log, onBug }: ServeRoutesDeps,
  { address, isShared = false, notFound, metricsFrom = [], authorize }: ServeRoutesOptions,
): Promise<Endpoint> {
  const clients = new MetricsClients(metricsFrom, { onRefused: countRefusedScrape });
  const byPath = hasHealth(routes);
  const endpoint = new HttpEndpoint<undefined>({
    answer: (request) => answerByPath(routes, request, { notFound, clients: byPath ? clients : undefined, authorize }),
    admits: byPath ? undefined : (ends) => clients.admits(ends),
    onBug,
    log,
    clock: systemClock,
  });
  try {
    const { port } = await endpoint.listen(address, undefined, { reusePort: isShared });
    return { port, [Symbol.asyncDispose]: () => endpoint[Symbol.asyncDispose]() };
  } catch (error) {
    // Those of listening have a code.
    if (!(error instanceof Error && "code" in error)) throw error;
    const where = formatListenAddress(address);
    throw new HealthServerError("cannot-listen", `cannot listen on ${where}: ${error.message}`, { cause: error });
  }
}

/** `/metrics` in the Prometheus text format. */
export function metricsRoute(registry: Registry): HttpRoutes[string] {
  return textRoute(() => registry.metrics(), registry.contentType);
}

/** A text that costs time to make: clients share it. */
export function textRoute(make: () => Promise<string>, type: string): HttpRoutes[string] {
  const text = new SharedText(make, { clock: systemClock });
  return async () => ({ type, body: await text.read() });
}
