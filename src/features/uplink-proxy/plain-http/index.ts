/**
 * Plain HTTP: requests with an absolute `http://` target are forwarded over an uplink (docs/spec/uplink-proxy.md#13).
 *
 * Owns: the two heads of a forwarded request, where its bodies end, and its exchange with the origin. Does not know: clients' connections, and which
 * uplink. The engine alone imports it, in one line, so it can be removed whole, and `#wire/http1` with it.
 *
 * ```ts
 * new HttpConnection(client, listener, { ...deps, plainHttp });
 * ```
 */
import type { PlainHttp } from "../front/index.ts";
import { forward } from "./forward.ts";
import { targetOf } from "./target.ts";

/** The server of plain requests, for all connections. */
export const plainHttp: PlainHttp = { targetOf, forward };
