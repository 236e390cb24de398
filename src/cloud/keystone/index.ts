/**
 * The right to make requests to a cloud: credentials in the form of `clouds.yaml`, tokens of Keystone (Identity API v3), and the URL of a
 * service in its catalogue.
 *
 * Owns: authentication, renewal, the choice of an endpoint. Does not know: what is asked of the service.
 *
 * ```ts
 * const access = parseCredentials(readFileSync("/etc/isthmus/clouds.yaml", "utf8"));
 * await using auth = openSession({ clock, log }, { access, service: "network" });
 * ```
 */
export { parseCredentials } from "./credentials.ts";
export { openSession, type SessionOptions } from "./session.ts";
export { keystoneFault } from "./token.ts";
