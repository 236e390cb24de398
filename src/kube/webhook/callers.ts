import { X509Certificate } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { isIP } from "node:net";
import { createSecureContext, type TLSSocket } from "node:tls";
import { FollowedFiles } from "./followed-files.ts";

/** The callers that may send reviews: clients with a certificate of an authority. */
export interface Callers {
  /** The path of the authority's certificates, PEM. */
  readonly caFile: string;
  /** The common names that count; empty: every certificate of the authority. */
  readonly names: readonly string[];
}

/** The authority's certificates, followed: until there are some that can be used nobody is to be believed. */
export function callerAuthority(path: string, onFault: (why: string) => void): FollowedFiles<string> {
  const check = ([text = ""]: readonly string[]): string => {
    // Without any certificate in it OpenSSL would say nothing.
    new X509Certificate(text);
    createSecureContext({ ca: text });
    return text;
  };
  return new FollowedFiles([path], check, onFault);
}

/** The reason why a request is not believed, with the HTTP status for it; `undefined`: it is. */
export type CallerFault = { readonly code: 403 | 421; readonly body: string } | undefined;

/**
 * Returns true if a request is of a caller that may send reviews, and is meant for this server: its `Host` is a name of the certificate that is served (RFC 9110, 7.4).
 * `isKnown`: there is an authority to believe. Pure but for what the connection tells.
 */
export function callerFault(
  request: Pick<IncomingMessage, "headers" | "socket">,
  { names }: Callers,
  { isKnown, served }: { readonly isKnown: boolean; readonly served: X509Certificate | undefined },
): CallerFault {
  const socket = request.socket as TLSSocket;
  if (!isKnown || !socket.authorized) {
    return {
      code: 403,
      body: "this webhook believes API servers alone: send a client certificate of the authority of --webhook-client-ca\n",
    };
  }
  const { CN: given } = socket.getPeerCertificate().subject ?? {};
  const commonNames = [given ?? []].flat();
  if (names.length > 0 && !commonNames.some((name) => names.includes(name))) {
    return { code: 403, body: "the client certificate's common name is not one of --webhook-client-name\n" };
  }
  const host = hostOf(request.headers.host);
  if (served === undefined || host === undefined || !isNameOf(served, host))
    return { code: 421, body: "the Host of this request is no name of the webhook's certificate\n" };
  return undefined;
}

/** The host of a `Host` field; `undefined` if it is not of the form host:port. */
function hostOf(header: string | undefined): string | undefined {
  if (header === undefined || !/^[\w.:[\]-]{1,300}$/.test(header) || !URL.canParse(`https://${header}`))
    return undefined;
  const { hostname } = new URL(`https://${header}`);
  return hostname === "" ? undefined : hostname;
}

function isNameOf(certificate: X509Certificate, host: string): boolean {
  const address = host.startsWith("[") ? host.slice(1, -1) : host;
  // Both throw for a text of the other kind.
  if (isIP(address) !== 0) return certificate.checkIP(address) !== undefined;
  return certificate.checkHost(host) !== undefined;
}
